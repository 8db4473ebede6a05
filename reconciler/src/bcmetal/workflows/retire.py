"""Retire: give a machine up for good. As release, then hand its BMC over and forget what we hold of it.

1. know_the_machine       the machine is the one that was inspected (a waiver for the whole machine skips this and what follows at the BMC)
2. plan_the_erase         a machine that is clean is not erased again
3. end_the_membership     its certificates and unused join tokens are revoked, whatever was waived
4. power_off              seen off
5. eject_media            seen empty
6. withdraw_the_medium    served no more
7. clear_boot_override    seen cleared
8. mark_the_disks         from here on they are half erased
   clear_the_volumes      RAID volumes on the drives that are to be erased
9. erase_the_drives       by the BMC, each job followed to its end
10. verify_the_erase      each drive read back and recorded
11. hand_the_bmc_over     to the pool's hand-over credential, where it names one
12. forget_its_secrets    unless they are to be kept

With the agent's methods of erasing, 2 and 8 to 10 are as in release; a machine that is clean is not started for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from bcmetal.decisions import Again, Done, Failed
from bcmetal.states import System
from bcmetal.store.values import DropSealed, SetNode
from bcmetal.workflows.asked import Asked
from bcmetal.workflows.erasing import ERASE, plan_the_erase, waive_the_machine
from bcmetal.workflows.erasing_inside import INSIDE, erases, intend_the_erase
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
from bcmetal.workflows.wrapped import only_where
from bcmetal_drivers.capabilities import Accounts, need
from bcmetal_drivers.errors import DriverError, RejectedCredentials, Transient


def _machine_is_waived(m: Machine) -> bool:
    return bool((m.input.get("eraseWaiver") or {}).get("machine"))


def _unless_waived(*steps: Step) -> tuple[Step, ...]:
    """A waiver for the whole machine skips every step that needs its BMC."""
    return only_where(lambda m: not _machine_is_waived(m), *steps)


async def hand_the_bmc_over(m: Machine) -> Outcome:
    """Give the BMC the pool's hand-over password, and prove it; without one, the BMC keeps what it has."""
    if _machine_is_waived(m):
        waive_the_machine(m)
        return Done()
    if m.pool.hand_over is None or m.input.get("keepCredentials") or m.input.get("discardCredentials"):
        return Done()
    wanted = m.line.named(m.pool.hand_over)
    try:
        await m.line.trial(m.address, wanted, m.trust, lambda there: need(there, Accounts).accounts())
    except Transient:
        raise
    except RejectedCredentials:
        await m.act(need(m.bmc, Accounts).set_password, wanted.username, wanted.password)
        return Again("proves the hand-over password", 1.0)
    except DriverError as error:
        return Failed("hand-over", str(error))
    return Done()


async def forget_its_secrets(m: Machine) -> Outcome:
    """Purge what we hold of the BMC, unless the credentials are to be kept."""
    bmc = m.node.bmc
    if bmc is not None and not m.input.get("keepCredentials"):
        m.note(DropSealed(bmc.bmc_id))
    m.note(SetNode({"system": System.NONE, "desired_power": None}))
    return Done()


STEPS = (
    *_unless_waived(know_the_machine, plan_the_erase),
    end_the_membership,
    *_unless_waived(power_off, eject_media, withdraw_the_medium, clear_boot_override, *ERASE),
    hand_the_bmc_over,
    forget_its_secrets,
)
BY_THE_AGENT = (
    *_unless_waived(know_the_machine, intend_the_erase),
    end_the_membership,
    *_unless_waived(power_off, eject_media, withdraw_the_medium, clear_boot_override),
    *_unless_waived(*only_where(erases, *START, look_from_inside), *INSIDE, *only_where(erases, *LEAVE)),
    hand_the_bmc_over,
    forget_its_secrets,
)
CLEANUP = UNDO


def steps_for(asked: Asked) -> Sequence[Step]:
    return BY_THE_AGENT if asked.releases_by_agent else STEPS
