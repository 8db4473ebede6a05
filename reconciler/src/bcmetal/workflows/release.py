"""Release: take a machine back from its tenant and make it available again.

1. know_the_machine        the machine is the one that was inspected
2. plan_the_erase          every drive has a method that the profile and the pool allow, or nothing is touched
3. end_the_membership      its certificates and unused join tokens are revoked
4. power_off               seen off
5. eject_media             seen empty
6. withdraw_the_medium     served no more
7. clear_boot_override     seen cleared
8. mark_the_disks          from here on they are half erased
   clear_the_volumes       RAID volumes on the drives that are to be erased
9. erase_the_drives        by the BMC, each job followed to its end
10. verify_the_erase       each drive read back and recorded
    lay_out_the_raid       as at commission: volumes were deleted for the erase
    close_the_network_ways as at commission: what its tenant opened there is closed
11. mend_the_bmc           planted accounts, directories, subscriptions and protocols go; the boot order is put back
12. mend_the_firmware      what has an image in the firmware baseline is brought back to it
13. mend_by_a_boot         BIOS settings, boot mode, secure boot, by one start of the machine, which is off again then
14. compare_the_baseline   what could not be put back, or explained, is named, and fails
15. close_the_host_ways    as at commission: its tenant was root there
16. rotate_the_password    a new one, where the profile says so: the BMC had another user meanwhile
17. let_the_system_go      there is no system on it any more

Where the profile lists methods of the agent's, 2 is `intend_the_erase`, and 8 to 10 are the agent's: the ramdisk starts, every drive is
planned, asked, planted with a pattern, erased, and read again after a power cycle (9 to 16 of a commission, without its tests).
"""

from __future__ import annotations

from collections.abc import Sequence

from bcmetal.decisions import Done
from bcmetal.states import System
from bcmetal.store.values import SetNode
from bcmetal.workflows.asked import Asked
from bcmetal.workflows.closing import close_the_host_ways, close_the_network_ways
from bcmetal.workflows.erasing import ERASE, plan_the_erase
from bcmetal.workflows.erasing_inside import INSIDE, intend_the_erase
from bcmetal.workflows.inside import look_from_inside
from bcmetal.workflows.machine import Machine, Outcome, Step
from bcmetal.workflows.membership import end_the_membership
from bcmetal.workflows.mending import (
    compare_the_baseline,
    hold_what_is_unverified,
    mend_by_a_boot,
    mend_the_bmc,
    mend_the_firmware,
)
from bcmetal.workflows.raid import lay_out_the_raid
from bcmetal.workflows.ramdisk import LEAVE, START
from bcmetal.workflows.rotating import rotate_the_password
from bcmetal.workflows.steps import (
    UNDO,
    clear_boot_override,
    eject_media,
    know_the_machine,
    power_off,
    withdraw_the_medium,
)
from bcmetal.workflows.wrapped import only_where


async def let_the_system_go(m: Machine) -> Outcome:
    """Nothing of the tenant's system is left to be booted by us."""
    m.note(SetNode({"system": System.NONE, "desired_power": "off"}))
    m.condition("service", "ok")
    hold_what_is_unverified(m)
    return Done()


def _rotates(m: Machine) -> bool:
    profile = m.asked.release_profile
    return profile is not None and profile.rotate_bmc


MEND = (
    lay_out_the_raid,
    close_the_network_ways,
    mend_the_bmc,
    mend_the_firmware,
    mend_by_a_boot,
    compare_the_baseline,
    close_the_host_ways,
    *only_where(_rotates, rotate_the_password),
)


STEPS = (
    know_the_machine,
    plan_the_erase,
    end_the_membership,
    power_off,
    eject_media,
    withdraw_the_medium,
    clear_boot_override,
    *ERASE,
    *MEND,
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
    *MEND,
    let_the_system_go,
)
CLEANUP = UNDO


def steps_for(asked: Asked) -> Sequence[Step]:
    return BY_THE_AGENT if asked.releases_by_agent else STEPS
