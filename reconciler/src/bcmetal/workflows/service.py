"""Service: named works on a machine that keeps its disks as they are, while it is deployed or available.

1. know_the_machine        the machine is the one that was inspected
2. remember_the_power      whether it is to be up again at the end
3. take_it_down            softly, and by force where that was agreed; only where one of the works needs it
4. the works, as they were asked for, by the values of the commission profile:
   set_the_boot_mode, set_secure_boot, reset_the_keys, bring_the_firmware, set_the_bios, close_the_host_ways, reset_the_bmc
5. bring_it_back_up        as it was before
6. know_the_machine_after  it is still the same, and its BMC answers
7. amend_the_baseline      what was changed here is no change of the tenant's
8. end_the_service         the condition of an earlier one is over

What fails brings the machine back up, and says so in the condition `service`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from bcmetal.decisions import Again, Done, Failed
from bcmetal.states import State
from bcmetal.store import baselines
from bcmetal.store.values import SetSighting, StoreBaseline
from bcmetal.workflows.asked import Asked
from bcmetal.workflows.bios import reset_the_keys, set_secure_boot, set_the_bios, set_the_boot_mode
from bcmetal.workflows.bmc_restart import ask_for_a_restart, asked_for, seen_back
from bcmetal.workflows.closing import close_the_host_ways
from bcmetal.workflows.firmware import BROUGHT, bring_the_firmware
from bcmetal.workflows.machine import Machine, Outcome, Step, Unsure
from bcmetal.workflows.observing import digest_of
from bcmetal.workflows.restarting import stop, under_way
from bcmetal.workflows.steps import (
    clear_what_we_armed,
    know_the_machine,
    power_off,
    power_on,
    wait_to_be_told,
    withdraw_what_we_offered,
)
from bcmetal.workflows.wrapped import once_more
from bcmetal_drivers.capabilities import Baseline, Power, need, offers
from bcmetal_drivers.errors import Refused, Unsupported
from bcmetal_drivers.resources import PowerAction, PowerState

SOFT_PATIENCE_S: Final = 300.0
SOFT_POLL_S: Final = 5.0
BOOTS: Final = ("boot_mode", "keys", "firmware", "bios")  # what a start in setup may be under way for


def _works(m: Machine) -> tuple[str, ...]:
    return tuple(str(one) for one in m.input.get("steps") or ())


async def remember_the_power(m: Machine) -> Outcome:
    """Before anything is touched; a machine whose power is not known is not touched."""
    if "was_on" in m.memo:
        return Done()
    power = await m.look(need(m.bmc, Power).power_state)
    m.note(SetSighting(power=power))
    if power is PowerState.UNKNOWN:
        return wait_to_be_told(m)
    m.remember(was_on=power in (PowerState.ON, PowerState.POWERING_ON))
    return Done()


async def take_it_down(m: Machine) -> Outcome:
    """Ask its system to shut down; a system that does not is switched off only where that was agreed."""
    power = await m.look(need(m.bmc, Power).power_state)
    m.note(SetSighting(power=power))
    if power is PowerState.OFF or m.memo.get("forced"):
        return await power_off(m)
    if power is PowerState.UNKNOWN:
        return wait_to_be_told(m)
    asked = m.since_s("soft_asked_at")
    try:
        if asked is None:
            m.remember(took_down=True, soft_asked_at=m.now)
            await m.act(need(m.bmc, Power).set_power, PowerAction.SOFT_OFF)
    except (Unsupported, Refused) as error:
        return await _by_force(m, f"its BMC cannot ask the system to shut down ({error})")
    if asked is not None and asked > SOFT_PATIENCE_S:
        return await _by_force(m, f"the system was asked to shut down {asked:.0f} s ago, and runs")
    return Again("waits for the system to shut down", SOFT_POLL_S)


async def _by_force(m: Machine, why: str) -> Outcome:
    if not m.input.get("force"):
        return Failed("power-not-reached", f"{why}: shut it down from inside, or ask for the service with `force`")
    m.remember(forced=True)
    return await power_off(m)


async def reset_the_bmc(m: Machine) -> Outcome:
    """Restart the BMC, once, and see it back."""
    if asked_for(m):
        return await seen_back(m)
    unsure = isinstance(await ask_for_a_restart(m), Unsure)
    told = "it is not known whether the BMC was told to restart; " if unsure else ""
    return Again(f"{told}waits for the BMC to come back", 0.0)


async def bring_it_back_up(m: Machine) -> Outcome:
    """As it was found."""
    return await power_on(m) if m.memo.get("was_on") else Done()


async def amend_the_baseline(m: Machine) -> Outcome:
    """What this service brought belongs to the baseline. Of a machine without a tenant all is recorded anew."""
    if not offers(m.bmc, Baseline):
        return Done()
    before = await m.doors.store.read(baselines.latest, m.node.node_id)
    if before is None:
        return Done()
    after = dict(await m.look(need(m.bmc, Baseline).baseline))
    without_tenant = m.operation.origin_state in (State.AVAILABLE, State.COMMISSION_FAILED)
    doc = after if without_tenant else amended(before, after, _works(m), m.memo.get(BROUGHT) or {}, _bios_of(m))
    m.note(StoreBaseline(digest_of(doc), doc))
    return Done()


def _bios_of(m: Machine) -> frozenset[str]:
    profile = m.asked.commission_profile
    return frozenset(profile.bios) if profile is not None else frozenset()


def amended(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    works: Sequence[str],
    brought: Mapping[str, str],
    bios: frozenset[str],
) -> dict[str, Any]:
    """The baseline with what these works changed, and nothing else of what the BMC shows now."""
    doc = dict(before)

    def merged(section: str, names: frozenset[str]) -> None:
        known, now = before.get(section), after.get(section)
        if isinstance(known, Mapping) and isinstance(now, Mapping):
            doc[section] = {**known, **{name: now[name] for name in names if name in now}}

    if "firmware" in works:
        merged("firmware", frozenset(brought))
        versions = set(brought.values())
        listed, shown = before.get("bmc") or (), after.get("bmc") or ()
        doc["bmc"] = [
            new if new.get("firmware") in versions else old for old, new in zip(listed, shown, strict=False)
        ] or list(listed)
    if "bios" in works:
        merged("bios", bios)
    brings = (
        ("secureBoot", "secureBoot"),
        ("secureBootKeys", "secureBootKeys"),
        ("secureBootKeys", "secureBootCertificates"),
        ("bootMode", "boot"),
    )
    for work, section in brings:
        if work in works and section in after:
            doc[section] = after[section]
    return doc


async def end_the_service(m: Machine) -> Outcome:
    m.condition("service", "ok")
    return Done()


WORKS: Final[Mapping[str, Step]] = MappingProxyType(
    {
        "bootMode": set_the_boot_mode,
        "secureBoot": set_secure_boot,
        "secureBootKeys": reset_the_keys,
        "firmware": bring_the_firmware,
        "bios": set_the_bios,
        "hostWays": close_the_host_ways,
        "resetBmc": reset_the_bmc,
    }
)
WHILE_IT_RUNS: Final = frozenset({"hostWays", "resetBmc"})
BEFORE = (know_the_machine, remember_the_power)
AFTER = (bring_it_back_up, *once_more("after", know_the_machine), amend_the_baseline, end_the_service)
STEPS = (*BEFORE, take_it_down, *WORKS.values(), *AFTER)


def steps_for(asked: Asked) -> Sequence[Step]:
    """The works in the order in which they were asked for; `powerCycle` is the way down and up alone."""
    wanted = [str(one) for one in asked.input.get("steps") or WORKS]
    down = (take_it_down,) if set(wanted) - WHILE_IT_RUNS else ()
    return (*BEFORE, *down, *(WORKS[one] for one in wanted if one in WORKS), *AFTER)


# ---------------------------------------------------------------- cleanup


async def leave_the_setup(m: Machine) -> Outcome:
    """A machine that stands in its setup for us is not up."""
    for key in BOOTS:
        if under_way(m, key):
            outcome = await stop(m, key)
            if not isinstance(outcome, Done):
                return outcome
    return Done()


async def bring_it_back_up_again(m: Machine) -> Outcome:
    return await power_on(m) if m.memo.get("took_down") and m.memo.get("was_on") else Done()


async def say_that_it_failed(m: Machine) -> Outcome:
    error = m.operation.error or {}
    text = f"its last service ended in {error.get('step')}: {error.get('message')}"
    m.condition("service", "error", str(error.get("code") or "internal"), text[:1000])
    return Done()


CLEANUP = (
    leave_the_setup,
    withdraw_what_we_offered,
    clear_what_we_armed,
    bring_it_back_up_again,
    say_that_it_failed,
)
