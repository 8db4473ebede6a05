"""Erasing out of band, by the BMC's own erase of each drive: planned, polled, read back, recorded.

A BMC's word is taken only where the pool says so (`trust_bmc_erase`); what its own reading contradicts fails in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from bcmetal.decisions import Again, Done, Failed, Micros
from bcmetal.settings_profiles import CommissionProfile, ReleaseProfile
from bcmetal.states import Disks
from bcmetal.store import drives
from bcmetal.store.values import AddErasureRecord, DriveSeen, MarkDrives, SetNode
from bcmetal.workflows.machine import Machine, Outcome, Unsure
from bcmetal.workflows.raid import delete_volumes_on
from bcmetal_drivers.capabilities import DriveErase, need, offers
from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.resources import Drive, Job, JobState

SOON_S = 0.25
POLL_S = 10.0
ERASED_BYTES_PER_S = 100_000_000  # a disk that is written over from end to end; a crypto erase is far quicker
NOT_COVERED = ("boot partitions", "RPMB", "DPU and BMC flash")


def waived(m: Machine) -> frozenset[str]:
    """Serials that the operation's waiver passes over."""
    waiver = m.input.get("eraseWaiver") or {}
    return frozenset(waiver.get("serials") or ())


def erasing_profile(m: Machine) -> CommissionProfile | ReleaseProfile | None:
    """The profile that was named, or the pool's, of this verb."""
    return m.asked.commission_profile if m.operation.verb == "commission" else m.asked.release_profile


def profile_erases(m: Machine) -> bool:
    profile = erasing_profile(m)
    return profile is not None and profile.erases


def erase_wanted(m: Machine) -> bool:
    """Whether the profile erases at all, and there is something left to erase."""
    return bool(m.memo.get("erases"))


async def plan_the_erase(m: Machine) -> Outcome:
    """Name every drive that must be erased: the union of what the BMC shows and what we know; refuse before anything is touched."""
    if m.operation.verb == "retire" and m.node.facts.disks is Disks.CLEAN:
        m.remember(erases=False)
        return Done()
    if not profile_erases(m):
        m.remember(erases=False)
        return Done()
    if not m.pool.trust_bmc_erase:
        return Failed(
            "erase-unsupported",
            "the profile erases by the BMC, and the pool does not trust that: set `trust_bmc_erase`, or list the agent's methods",
        )
    if not offers(m.bmc, DriveErase):
        return Failed("erase-unsupported", "this BMC cannot erase drives")
    try:
        shown = {drive.serial: drive for drive in await m.look(need(m.bmc, DriveErase).drives)}
    except Unsupported as error:
        return Failed("erase-unsupported", str(error))
    known = {row.serial: row for row in await m.doors.store.read(drives.of_node, m.node.node_id)}
    passed = waived(m)
    missing = sorted(s for s, row in known.items() if row.may_hold_data and s not in shown and s not in passed)
    if missing:
        return Failed("erase-drive-missing", f"drives that may hold data are not there: {', '.join(missing)}")
    plan = sorted(serial for serial in shown if serial not in passed)
    named = [DriveSeen(serial, shown[serial].model, shown[serial].wwn, None) for serial in plan]
    shared = await seen_elsewhere(m, named)
    if shared is not None:
        return shared
    unable = sorted(serial for serial in plan if not shown[serial].erasable)
    if unable:
        return Failed("erase-unsupported", f"the BMC offers no erase of: {', '.join(unable)}")
    if not plan and not passed:
        return Failed("erase-unsupported", "the BMC shows no drive: an erase of nothing is no erase")
    largest = max((shown[serial].capacity_bytes or 0 for serial in plan), default=0)
    estimate_s = int(largest / ERASED_BYTES_PER_S)  # the BMC erases them side by side
    names = {one.serial: asdict(one) for one in named}
    m.remember(erases=True, plan=plan, names=names, jobs={}, erase_began_at=m.now)
    m.take_longer("erase", estimate_s)
    return Done()


async def seen_elsewhere(m: Machine, wanted: Sequence[DriveSeen]) -> Failed | None:
    """What another node sees too is shared storage, or was moved and not looked for since: nobody writes there."""
    found = await m.doors.store.read(drives.seen_elsewhere, m.node.node_id, wanted)
    if not found:
        return None
    return Failed(
        "erase-shared-drive", f"drives that another node sees too are never written: {', '.join(sorted(found))}"
    )


async def mark_the_disks(m: Machine) -> Outcome:
    """From here on the disks are neither what they were, nor clean."""
    if not erase_wanted(m) or m.node.facts.disks is Disks.HALF:
        return Done()
    await m.ready_to_act()
    m.note(SetNode({"disks": Disks.HALF}), MarkDrives(tuple(m.memo["plan"]), True))
    return Done()


async def clear_the_volumes(m: Machine) -> Outcome:
    """RAID volumes on the drives that are to be erased are deleted."""
    return await delete_volumes_on(m, list(m.memo["plan"])) if erase_wanted(m) else Done()


async def erase_the_drives(m: Machine) -> Outcome:
    """Start the erase of one drive after another, and follow their jobs to the end."""
    if not erase_wanted(m):
        return Done()
    plan: list[str] = list(m.memo["plan"])
    jobs: dict[str, str] = dict(m.memo["jobs"])
    for serial in plan:
        if serial not in jobs:
            return await _start(m, serial, jobs)
    running = 0
    for serial in plan:
        if jobs[serial] == "done":
            continue
        job = await m.look(need(m.bmc, DriveErase).erase_job, jobs[serial])
        if job.state is JobState.FAILED:
            return Failed("erase-failed", f"the erase of drive {serial} failed: {job.message or 'no reason given'}")
        if job.state is JobState.RUNNING:
            running += 1
        else:  # done, or a job that the BMC forgot: the drive itself is read back in any case
            jobs[serial] = "done"
            m.remember(jobs=jobs)
    if running:
        since_s = m.since_s("erase_began_at") or 0.0
        after_s = min(POLL_S, max(SOON_S, since_s / 10))
        return Again(f"erases {running} of {len(plan)} drives", after_s, (len(plan) - running) / len(plan))
    return Done()


async def _start(m: Machine, serial: str, jobs: dict[str, str]) -> Outcome:
    # another node may have been inspected since the plan
    shared = await seen_elsewhere(m, [DriveSeen(**m.memo["names"][serial])])
    if shared is not None:
        return shared
    began: Job | Unsure = await m.act_once(f"erase {serial}", need(m.bmc, DriveErase).erase, serial)
    if isinstance(began, Unsure):  # an empty drive does not prove an erase: it may have been empty before
        return Again(f"it is not known whether the erase of {serial} began; it is started once more", 0.0)
    jobs[serial] = "done" if began.state is JobState.DONE or not began.ref else began.ref
    m.remember(jobs=jobs)
    return Again(f"erases drive {serial}", 0.0)


async def verify_the_erase(m: Machine) -> Outcome:
    """Read every drive back, and write its record. What shows data fails; what shows nothing is `verifier: bmc`."""
    if not erase_wanted(m):
        return not_erased(m)
    plan: list[str] = list(m.memo["plan"])
    shown = {drive.serial: drive for drive in await m.look(need(m.bmc, DriveErase).drives)}
    gone = sorted(serial for serial in plan if serial not in shown)
    if gone:
        return Failed("erase-drive-missing", f"drives vanished during their erase: {', '.join(gone)}")
    lying = sorted(serial for serial in plan if shown[serial].has_data is True)
    if lying:
        return Failed("erase-not-verified", f"the BMC says erased, and the drive still shows data: {', '.join(lying)}")
    for serial in plan:
        m.note(AddErasureRecord(m.new_id("er"), serial, _record(m, shown[serial])))
        m.tell("metal.erasure.recorded", serial=serial, verifier="bmc")
    m.note(MarkDrives(tuple(plan), False))
    close_the_erase(m)
    return Done()


def close_the_erase(m: Machine) -> None:
    """Every planned drive is erased: the machine is clean, unless a waiver passed over some."""
    passed = sorted(waived(m))
    for serial in passed:
        m.note(AddErasureRecord(m.new_id("er"), serial, _waiver(m, serial)))
        m.tell("metal.erasure.recorded", serial=serial, verifier="none")
    m.note(SetNode({"disks": Disks.CLEAN if not passed else m.node.facts.disks, "not_erased": bool(passed)}))
    if passed:
        m.condition("erasure", "warning", "not-erased", f"by a waiver, not erased: {', '.join(passed)}")
    else:
        m.condition("erasure", "ok")


def _record(m: Machine, drive: Drive) -> dict[str, object]:
    return {
        "serial": drive.serial,
        "model": drive.model,
        "capacityBytes": drive.capacity_bytes,
        "method": "bmc-secure-erase",
        "standard": "none claimed: the BMC's own erase",
        "startedAt": m.memo["erase_began_at"],
        "endedAt": m.now,
        "verifier": "bmc",
        "readBack": "shows no data" if drive.has_data is False else "the BMC does not tell",
        "result": "erased",
        "notCovered": list(NOT_COVERED),
        "operation": m.operation.operation_id,
    }


def _waiver(m: Machine, serial: str | None) -> dict[str, object]:
    waiver = m.input.get("eraseWaiver") or {}
    return {
        "serial": serial,
        "result": "not erased",
        "verifier": "none",
        "reason": waiver.get("reason"),
        "custody": waiver.get("custody"),
        "by": m.operation.by,
        "endedAt": Micros(m.now),
        "operation": m.operation.operation_id,
    }


def waive_the_machine(m: Machine) -> None:
    """The record of a machine that leaves without any erase."""
    m.note(AddErasureRecord(m.new_id("er"), "machine", _waiver(m, None)), SetNode({"not_erased": True}))
    m.tell("metal.erasure.recorded", serial=None, verifier="none")
    m.condition("erasure", "warning", "not-erased", "by a waiver, the whole machine left without an erase")


def not_erased(m: Machine) -> Outcome:
    """Under `erase: none`: said honestly, unless the disks are clean already."""
    if m.node.facts.disks is Disks.CLEAN:
        return Done()
    m.note(SetNode({"not_erased": True}))
    m.condition("erasure", "warning", "not-erased", "the profile erases nothing: the disks hold what they held")
    return Done()


async def say_not_erased(m: Machine) -> Outcome:
    """A profile that erases nothing says so."""
    return not_erased(m)


ERASE = (mark_the_disks, clear_the_volumes, erase_the_drives, verify_the_erase)
