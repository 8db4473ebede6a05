"""Commission: make a machine ready to be deployed, by the profile that was named or is the pool's.

1. know_the_machine       the machine is the one that was inspected
2. compare_the_profile    CPUs, memory, drives and model are what the profile expects
3. plan_the_erase         every drive has a method that the profile and the pool allow, or nothing is touched
4. power_off              seen off
5. eject_media            no medium of somebody else is left
6. clear_boot_override    no override of somebody else is left
7. set_the_boot_mode      as the profile says, read back
8. set_secure_boot        as the profile says, read back
9. reset_the_keys         UEFI's keys to the maker's, where the profile says so
10. bring_the_firmware    to the profile's baseline: fetched, taken by the BMC, its version read back several times in a row
11. set_the_bios          the profile's BIOS settings; 7 and 9 to 11 start the machine for what its firmware takes at a boot only
12. mark_the_disks        from here on they are half erased
    clear_the_volumes     RAID volumes on the drives that are to be erased
13. erase_the_drives      by the BMC, each job followed to its end
14. verify_the_erase      each drive read back and recorded
    lay_out_the_raid      volumes as the profile says, of drives that are erased already; where the agent erases, before its ramdisk
15. close_the_host_ways   the host's ways into its BMC, as far as the maker allows
    close_the_network_ways   IPMI's weak spots, and IPMI itself where Redfish serves
16. rotate_the_password   a password of its own for the BMC, where the profile says so
17. record_the_baseline   what the BMC must be like again at release

Where the profile has tests, a bill of materials, or methods of erasing that are the agent's, the machine starts its ramdisk after 11. Step 3
is `intend_the_erase` then, unless the BMC erases: it plans at 3 as above, and does 12 to 14 after the agent's part. That is:

a. offer_the_ramdisk, insert_the_ramdisk, arm_the_ramdisk, start_the_ramdisk, wait_for_the_agent
b. look_from_inside      compared with the BMC's view, each difference named
c. compare_with_the_bom  what the machine is made of
d. test_the_hardware     each test with its log; where the profile says so, a machine that failed is held for somebody to look at
e. plan_by_the_agent, ask_the_drives, mark_the_planned, plant_the_pattern, erase_by_the_agent
f. end_the_start and the start again, for what an erase left is looked at after a power cycle
g. verify_by_the_agent   what the daemon had planted is gone; each drive has its record (e to g only where the agent erases)
h. power_off_at_the_end, eject_media_at_the_end, withdraw_the_medium_at_the_end, clear_boot_override_at_the_end
    say_not_erased        where the profile erases nothing
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bcmetal.decisions import Done, Failed
from bcmetal.store.values import SetNode, StoreBaseline
from bcmetal.workflows.asked import Asked
from bcmetal.workflows.bios import is_offered, reset_the_keys, set_secure_boot, set_the_bios, set_the_boot_mode
from bcmetal.workflows.closing import close_the_host_ways, close_the_network_ways
from bcmetal.workflows.erasing import ERASE, plan_the_erase, say_not_erased
from bcmetal.workflows.erasing_inside import INSIDE, intend_the_erase
from bcmetal.workflows.firmware import bring_the_firmware
from bcmetal.workflows.inside import look_from_inside
from bcmetal.workflows.machine import Machine, Outcome, Step
from bcmetal.workflows.observing import digest_of, note_inventory
from bcmetal.workflows.raid import lay_out_the_raid
from bcmetal.workflows.ramdisk import LEAVE, START
from bcmetal.workflows.rotating import rotate_the_password
from bcmetal.workflows.steps import UNDO, clear_boot_override, eject_media, know_the_machine, power_off
from bcmetal.workflows.testing import compare_with_the_bom, test_the_hardware
from bcmetal.workflows.wrapped import only_where
from bcmetal_drivers.capabilities import Baseline, Inventories, need, offers


async def compare_the_profile(m: Machine) -> Outcome:
    """Compare what the BMC sees with what the profile expects; every difference is named."""
    profile = m.asked.commission_profile
    if profile is None:
        name = m.input.get("profile") or m.pool.commission
        return Failed("profile-mismatch", f"the configuration has no commission profile {name}")
    seen = await m.look(need(m.bmc, Inventories).inventory)
    await note_inventory(m, seen)
    expect = profile.expect
    differences: list[str] = []

    def told(section: str) -> bool:
        """Some BMCs tell of no CPU and no memory while the machine is off; the agent counts them later."""
        return not seen.sections.get(section, "").startswith("unknown")

    if expect.cpus is not None and told("cpus") and len(seen.cpus) < expect.cpus:
        differences.append(f"{len(seen.cpus)} CPUs where {expect.cpus} are expected")
    if expect.memory_gib is not None and told("memory") and (seen.memory_bytes or 0) < expect.memory_gib * 2**30:
        found = (seen.memory_bytes or 0) // 2**30
        differences.append(f"{found} GiB of memory where {expect.memory_gib} are expected")
    if expect.drives is not None and len(seen.drives) < expect.drives:
        differences.append(f"{len(seen.drives)} drives where {expect.drives} are expected")
    if expect.model is not None and not re.fullmatch(expect.model, seen.identity.model or ""):
        differences.append(f"the model is {seen.identity.model!r}, which is not {expect.model!r}")
    if differences:
        return Failed("profile-mismatch", "; ".join(differences))
    return Done()


def _of_its_own(m: Machine) -> bool:
    profile = m.asked.commission_profile
    return profile is not None and profile.rotate_bmc


async def record_the_baseline(m: Machine) -> Outcome:
    """Keep what the BMC must be like again when a tenant hands the machine back."""
    m.note(SetNode({"profile": str(m.input.get("profile") or m.pool.commission)}))
    m.condition("service", "ok")
    await is_offered(m)
    if not offers(m.bmc, Baseline):
        return Done()
    doc = dict(await m.look(need(m.bmc, Baseline).baseline))
    m.note(StoreBaseline(digest_of(doc), doc))
    return Done()


SETTINGS = (set_the_boot_mode, set_secure_boot, reset_the_keys, bring_the_firmware, set_the_bios)
CLOSE = (close_the_host_ways, close_the_network_ways, *only_where(_of_its_own, rotate_the_password))
STEPS = (
    know_the_machine,
    compare_the_profile,
    plan_the_erase,
    power_off,
    eject_media,
    clear_boot_override,
    *SETTINGS,
    *ERASE,
    lay_out_the_raid,
    *CLOSE,
    record_the_baseline,
)
CLEANUP = UNDO


def steps_for(asked: Asked) -> Sequence[Step]:
    if not asked.commissions_by_agent:
        return STEPS
    profile = asked.commission_profile
    by_agent = profile is not None and bool(profile.agent_methods)
    by_bmc = profile is not None and not by_agent and profile.bmc_erases
    return (
        know_the_machine,
        compare_the_profile,
        *((plan_the_erase,) if by_bmc else (intend_the_erase,)),
        power_off,
        eject_media,
        clear_boot_override,
        *SETTINGS,
        *(() if by_bmc else (lay_out_the_raid,)),
        *START,
        look_from_inside,
        compare_with_the_bom,
        test_the_hardware,
        *(INSIDE if by_agent else ()),
        *LEAVE,
        *((*ERASE, lay_out_the_raid) if by_bmc else () if by_agent else (say_not_erased,)),
        *CLOSE,
        record_the_baseline,
    )
