"""Release: take a machine back from its tenant and make it available again.

1. know_the_machine        the machine is the one that was inspected
2. plan_the_erase          every drive has a method that the profile and the pool allow, or nothing is touched
3. end_the_membership      its certificates and unused join tokens are revoked
4. power_off               seen off
5. eject_media             seen empty
6. withdraw_the_medium     served no more
7. clear_boot_override     seen cleared
8. mark_the_disks          from here on they are half erased
9. erase_the_drives        by the BMC, each job followed to its end
10. verify_the_erase       each drive read back and recorded
11. compare_the_baseline   what the tenant changed at the BMC is named, and fails
12. let_the_system_go      there is no system on it any more

Where the profile lists methods of the agent's, 2 is `intend_the_erase`, and 8 to 10 are the agent's: the ramdisk starts, every drive is
planned, asked, planted with a pattern, erased, and read again after a power cycle (9 to 16 of a commission, without its tests).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bcmetal.decisions import Done, Failed
from bcmetal.states import System
from bcmetal.store import baselines
from bcmetal.store.values import SetNode
from bcmetal.workflows.asked import Asked
from bcmetal.workflows.erasing import ERASE, plan_the_erase
from bcmetal.workflows.erasing_inside import INSIDE, intend_the_erase
from bcmetal.workflows.inside import look_from_inside
from bcmetal.workflows.machine import Machine, Outcome, Step
from bcmetal.workflows.membership import end_the_membership
from bcmetal.workflows.ramdisk import LEAVE, START
from bcmetal.workflows.steps import (
    UNDO,
    clear_boot_override,
    eject_media,
    know_the_machine,
    power_off,
    withdraw_the_medium,
)
from bcmetal_drivers.capabilities import Baseline, need, offers


def differences(before: Mapping[str, object], after: Mapping[str, object], at: str = "") -> list[str]:
    """Paths whose values differ, each with both values, in order."""
    found: list[str] = []
    for key in sorted({*before, *after}):
        path = f"{at}.{key}" if at else key
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found.extend(differences(old, new, path))
        elif old != new:
            found.append(f"{path} was {old!r}, and is {new!r}")
    return found


async def compare_the_baseline(m: Machine) -> Outcome:
    """Compare the BMC with its baseline; what cannot be explained fails."""
    if not offers(m.bmc, Baseline):
        return Done()
    before = await m.doors.store.read(baselines.latest, m.node.node_id)
    if before is None:
        m.condition("boot-path", "warning", "no-baseline", "the BMC has no baseline: it was never commissioned here")
        return Done()
    changed = differences(before, dict(await m.look(need(m.bmc, Baseline).baseline)))
    if changed:
        return Failed("baseline-changed", "; ".join(changed)[:1000])
    return Done()


async def let_the_system_go(m: Machine) -> Outcome:
    """Nothing of the tenant's system is left to be booted by us."""
    m.note(SetNode({"system": System.NONE, "desired_power": "off"}))
    return Done()


STEPS = (
    know_the_machine,
    plan_the_erase,
    end_the_membership,
    power_off,
    eject_media,
    withdraw_the_medium,
    clear_boot_override,
    *ERASE,
    compare_the_baseline,
    let_the_system_go,
)
BY_THE_AGENT = (
    know_the_machine,
    intend_the_erase,
    end_the_membership,
    power_off,
    eject_media,
    withdraw_the_medium,
    clear_boot_override,
    *START,
    look_from_inside,
    *INSIDE,
    *LEAVE,
    compare_the_baseline,
    let_the_system_go,
)
CLEANUP = UNDO


def steps_for(asked: Asked) -> Sequence[Step]:
    return BY_THE_AGENT if asked.releases_by_agent else STEPS
