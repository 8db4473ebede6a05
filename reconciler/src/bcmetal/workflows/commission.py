"""Commission: make a machine ready to be deployed, by the profile that was named or is the pool's.

1. know_the_machine       the machine is the one that was inspected
2. compare_the_profile    CPUs, memory, drives and model are what the profile expects
3. plan_the_erase         every drive has a method that the profile and the pool allow, or nothing is touched
4. power_off              seen off
5. eject_media            no medium of somebody else is left
6. clear_boot_override    no override of somebody else is left
7. set_the_boot_mode      as the profile says, read back
8. set_secure_boot        as the profile says, read back
9. mark_the_disks         from here on they are half erased
10. erase_the_drives      by the BMC, each job followed to its end
11. verify_the_erase      each drive read back and recorded
12. record_the_baseline   the BMC's accounts, network and firmware, to be compared at release

Where the profile has tests, a bill of materials, or methods of erasing that are the agent's, the machine starts its ramdisk after 8. Step 3
is `intend_the_erase` then, unless the BMC erases: it plans at 3 as above, and does 9 to 11 after 16.

9. offer_the_ramdisk, insert_the_ramdisk, arm_the_ramdisk, start_the_ramdisk, wait_for_the_agent
10. look_from_inside      compared with the BMC's view, each difference named
11. compare_with_the_bom  what the machine is made of
12. test_the_hardware     each test with its log; where the profile says so, a machine that failed is held for somebody to look at
13. plan_by_the_agent, ask_the_drives, mark_the_planned, plant_the_pattern, erase_by_the_agent
14. end_the_start and the start again, for what an erase left is looked at after a power cycle
15. verify_by_the_agent   what the daemon had planted is gone; each drive has its record (13 to 15 only where the agent erases)
16. power_off_at_the_end, eject_media_at_the_end, withdraw_the_medium_at_the_end, clear_boot_override_at_the_end
    say_not_erased        where the profile erases nothing
17. record_the_baseline
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

from bcmetal.decisions import Again, Done, Failed
from bcmetal.store.values import SetNode, SetSighting, StoreBaseline
from bcmetal.workflows.asked import Asked
from bcmetal.workflows.erasing import ERASE, plan_the_erase, say_not_erased
from bcmetal.workflows.erasing_inside import INSIDE, intend_the_erase
from bcmetal.workflows.inside import look_from_inside
from bcmetal.workflows.machine import Machine, Outcome, Step
from bcmetal.workflows.observing import note_inventory
from bcmetal.workflows.ramdisk import LEAVE, START
from bcmetal.workflows.steps import UNDO, clear_boot_override, eject_media, know_the_machine, power_off
from bcmetal.workflows.testing import compare_with_the_bom, test_the_hardware
from bcmetal_drivers.capabilities import (
    Baseline,
    BootMode,
    BootModes,
    Inventories,
    SecureBoot,
    need,
    offers,
)
from bcmetal_drivers.errors import Unsupported

BOOT_MODE_ASKS = 3


async def compare_the_profile(m: Machine) -> Outcome:
    """Compare what the BMC sees with what the profile expects; every difference is named."""
    profile = m.asked.commission_profile
    if profile is None:
        name = m.input.get("profile") or m.pool.commission
        return Failed("profile-mismatch", f"the configuration has no commission profile {name}")
    seen = await m.look(need(m.bmc, Inventories).inventory)
    note_inventory(m, seen)
    expect = profile.expect
    differences: list[str] = []
    if expect.cpus is not None and len(seen.cpus) < expect.cpus:
        differences.append(f"{len(seen.cpus)} CPUs where {expect.cpus} are expected")
    if expect.memory_gib is not None and (seen.memory_bytes or 0) < expect.memory_gib * 2**30:
        found = (seen.memory_bytes or 0) // 2**30
        differences.append(f"{found} GiB of memory where {expect.memory_gib} are expected")
    if expect.drives is not None and len(seen.drives) < expect.drives:
        differences.append(f"{len(seen.drives)} drives where {expect.drives} are expected")
    if expect.model is not None and not re.fullmatch(expect.model, seen.identity.model or ""):
        differences.append(f"the model is {seen.identity.model!r}, which is not {expect.model!r}")
    if differences:
        return Failed("profile-mismatch", "; ".join(differences))
    return Done()


async def set_the_boot_mode(m: Machine) -> Outcome:
    """UEFI or legacy, as the profile says; a BMC that does not tell its boot mode is left alone."""
    profile = m.asked.commission_profile
    if profile is None or profile.boot_mode is None or not offers(m.bmc, BootModes):
        return Done()
    want = BootMode(profile.boot_mode)
    try:
        mode = await m.look(need(m.bmc, BootModes).boot_mode)
    except Unsupported:
        return Done()
    if mode is None or mode is want:
        m.note(SetSighting(boot_mode=mode))
        return Done()
    asked = int(m.memo.get("boot_mode_asked", 0))
    if asked >= BOOT_MODE_ASKS:
        return Failed("boot-mode", f"asked {asked} times for boot mode {want}, and the BMC still shows {mode}")
    m.remember(boot_mode_asked=asked + 1)
    await m.act(need(m.bmc, BootModes).set_boot_mode, want)
    return Again("looks whether the boot mode is set", 0.0)


async def set_secure_boot(m: Machine) -> Outcome:
    """On or off, where the profile says so; a profile that is silent leaves it as it is."""
    profile = m.asked.commission_profile
    if profile is None or profile.secure_boot is None:
        return Done()
    if await m.look(need(m.bmc, SecureBoot).secure_boot) is profile.secure_boot:
        return Done()
    asked = int(m.memo.get("secure_boot_asked", 0))
    if asked >= BOOT_MODE_ASKS:
        return Failed("boot-mode", f"asked {asked} times for secure boot {profile.secure_boot}, and it is not so")
    m.remember(secure_boot_asked=asked + 1)
    await m.act(need(m.bmc, SecureBoot).set_secure_boot, profile.secure_boot)
    return Again("looks whether secure boot is as the profile says", 0.0)


async def record_the_baseline(m: Machine) -> Outcome:
    """Keep what the BMC must be like again when a tenant hands the machine back."""
    m.note(SetNode({"profile": str(m.input.get("profile") or m.pool.commission)}))
    if not offers(m.bmc, Baseline):
        return Done()
    doc = dict(await m.look(need(m.bmc, Baseline).baseline))
    digest = hashlib.sha256(json.dumps(doc, sort_keys=True).encode()).hexdigest()
    m.note(StoreBaseline(digest, doc))
    return Done()


STEPS = (
    know_the_machine,
    compare_the_profile,
    plan_the_erase,
    power_off,
    eject_media,
    clear_boot_override,
    set_the_boot_mode,
    set_secure_boot,
    *ERASE,
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
        set_the_boot_mode,
        set_secure_boot,
        *START,
        look_from_inside,
        compare_with_the_bom,
        test_the_hardware,
        *(INSIDE if by_agent else ()),
        *LEAVE,
        *(ERASE if by_bmc else () if by_agent else (say_not_erased,)),
        record_the_baseline,
    )
