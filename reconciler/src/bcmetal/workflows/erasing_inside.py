"""Erasing in band, by the agent: planned by what it sees, proven by a pattern that the daemon chose and looks for after a power cycle.

The agent's word is taken for what it did, never for whether it worked: a released machine's agent ran on a tenant's hardware. So the
sectors and the pattern are random, they are read back before the erase, and read again once the machine was off; what still shows the
pattern is not erased, whatever was said.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from bcmetal.comparing.judging import own_disks
from bcmetal.decisions import Done, Failed
from bcmetal.placeholders import normal_serial
from bcmetal.states import Disks
from bcmetal.store import agent_tasks, drives
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.store.values import AddErasureRecord, DriveSeen, MarkDrives, SetNode
from bcmetal.workflows.erasing import (
    NOT_COVERED,
    close_the_erase,
    erasing_profile,
    not_erased,
    profile_erases,
    seen_elsewhere,
    waived,
)
from bcmetal.workflows.inside import drive_of, named_disks, ref_of, seen_inside
from bcmetal.workflows.machine import Machine, Outcome, Step
from bcmetal.workflows.ramdisk import RESTART
from bcmetal.workflows.tasks import result_of, task
from bcmetal.workflows.wrapped import only_where
from bcmetal_agent import wire
from bcmetal_agent.wire_inventory import Disk
from bcmetal_agent.wire_tasks import DriveOutcome, EraseDrive, EraseParams, EraseResult

SECTOR: Final = 4096
SECTORS: Final = 16
WRITTEN_BYTES_PER_S: Final = 100_000_000  # a disk that is written over from end to end
QUICK: Final = frozenset({"nvme-crypto", "nvme-block", "ata-crypto", "discard"})
Phase = Literal["inspect", "plant", "erase", "verify"]


def methods_of(m: Machine) -> tuple[str, ...]:
    """The profile's methods that are the agent's, in its order."""
    profile = erasing_profile(m)
    return () if profile is None else profile.agent_methods


async def intend_the_erase(m: Machine) -> Outcome:
    """Whether there is something to erase at all: a machine that is clean is not erased again when it retires."""
    again = m.operation.verb != "retire" or m.node.facts.disks is not Disks.CLEAN
    if "erases" not in m.memo:
        m.remember(erases=again and profile_erases(m))
    return Done()


def erases(m: Machine) -> bool:
    return bool(m.memo.get("erases"))


async def plan_by_the_agent(m: Machine) -> Outcome:
    """Every drive that must be erased: what the agent sees and what we know, without what was waived; and how each of them can be."""
    if not erases(m) or m.memo.get("plan") is not None:
        return Done()
    seen = await seen_inside(m)
    if isinstance(seen, Failed):
        return seen
    passed = {normal_serial(serial) for serial in waived(m)}
    own = [disk for disk in named_disks(seen) if normal_serial(disk.serial or "") not in passed]
    named = {normal_serial(disk.serial or "") for disk in named_disks(seen)}
    nameless = [disk.name for disk in own_disks(seen) if normal_serial(disk.serial or "") not in named]
    if nameless:
        return Failed(
            "erase-unsupported", f"disks without a serial of their own cannot be told apart: {', '.join(nameless)}"
        )
    serials = Counter(normal_serial(disk.serial or "") for disk in own)
    twins = [disk.name for disk in own if serials[normal_serial(disk.serial or "")] > 1]
    if twins:
        return Failed("erase-unsupported", f"disks with one serial cannot be told apart: {', '.join(twins)}")
    known = await m.doors.store.read(drives.of_node, m.node.node_id)
    missing = sorted(
        row.serial for row in known if row.may_hold_data and normal_serial(row.serial) not in named | passed
    )
    by_others = {normal_serial(disk.serial or "") for disk in seen.disks if disk.shared}
    if missing and {normal_serial(serial) for serial in missing} <= by_others:
        return Failed(
            "erase-shared-drive",
            f"drives that are seen twice, or over a fabric, are never written: {', '.join(missing)}",
        )
    if missing:
        return Failed(
            "erase-drive-missing", f"drives that may hold data are not seen from inside: {', '.join(missing)}"
        )
    plan = sorted(own, key=lambda disk: normal_serial(disk.serial or ""))
    if not plan and not passed:
        return Failed("erase-unsupported", "the agent sees no disk: an erase of nothing is no erase")
    shared = await seen_elsewhere(m, [drive_of(disk) for disk in plan])
    if shared is not None:
        return shared
    seed = base64.b64encode(m.doors.entropy(32)).decode()
    m.remember(plan=[_planned(m, disk) for disk in plan], seed=seed)
    return Done()


def _planned(m: Machine, disk: Disk) -> dict[str, Any]:
    """Sectors: the first, the last, and random ones between. The first megabyte holds what would make the disk boot."""
    blocks = disk.size_bytes // SECTOR
    chosen = {0, blocks - 1} if blocks else set()
    while len(chosen) < min(SECTORS, blocks):
        chosen.add(int.from_bytes(m.doors.entropy(8), "big") % blocks)
    ref = ref_of(disk)
    return {
        "serial": ref.serial,
        "sizeBytes": ref.size_bytes,
        "model": ref.model,
        "wwn": ref.wwn,
        "sectors": sorted(number * SECTOR for number in chosen),
    }


def pattern_of(seed: str, serial: str) -> bytes:
    """4096 bytes that no drive can have held before."""
    return hashlib.shake_256(f"{seed}\0{serial}".encode()).digest(SECTOR)


def _drives(m: Machine, methods: Mapping[str, Sequence[str]]) -> tuple[EraseDrive, ...]:
    seed = str(m.memo["seed"])
    return tuple(
        wire.read_doc(
            EraseDrive,
            {
                "disk": {name: one[name] for name in ("serial", "sizeBytes", "model", "wwn") if one[name] is not None},
                "methods": list(methods[one["serial"]]),
                "pattern": base64.b64encode(pattern_of(seed, one["serial"])).decode(),
                "sectors": one["sectors"],
            },
        )
        for one in m.memo["plan"]
    )


async def _phase(m: Machine, phase: Phase, methods: Mapping[str, Sequence[str]]) -> tuple[DriveOutcome, ...] | Outcome:
    """What the agent says of every drive of the plan, in the plan's order, once it is through with the phase."""
    row = await task(m, f"erase-{phase}", "erase", EraseParams(phase=phase, drives=_drives(m, methods)))
    if not isinstance(row, AgentTaskRow):
        return row
    result = result_of(row, EraseResult)
    if isinstance(result, Failed):
        return result
    said = {one.serial: one for one in result.drives}
    plan = [str(one["serial"]) for one in m.memo["plan"]]
    if set(said) != set(plan) or len(result.drives) != len(plan):
        return Failed(
            "agent-malformed-answer", f"the agent's answer to erase-{phase} is not about the drives of the plan"
        )
    if phase == "inspect":
        m.remember(unplanned=list(result.unplanned))
    return tuple(said[serial] for serial in plan)


async def ask_the_drives(m: Machine) -> Outcome:
    """Each drive says how it can be erased; one that can not by any method of the profile's ends this before anything is written."""
    if not erases(m):
        return Done()
    if m.memo.get("methods") is not None or not m.memo["plan"]:
        return Done()
    allowed = methods_of(m)
    found = await _phase(m, "inspect", dict.fromkeys((one["serial"] for one in m.memo["plan"]), allowed))
    if not isinstance(found, tuple):
        return found
    bad = [f"{one.serial}: {one.message or one.state}" for one in found if one.state != "done"]
    if bad:
        return Failed(_code(found), f"drives that cannot be erased: {'; '.join(bad)}")
    methods = {one.serial: [name for name in allowed if name in one.offers] for one in found}
    unable = [f"{one.serial} offers {', '.join(one.offers) or 'nothing'}" for one in found if not methods[one.serial]]
    if unable:
        return Failed("erase-unsupported", f"the profile allows {', '.join(allowed)}; {'; '.join(unable)}")
    slow = [one["sizeBytes"] for one in m.memo["plan"] if methods[one["serial"]][0] not in QUICK]
    m.remember(methods=methods)
    m.take_longer("erase", int(max(slow, default=0) / WRITTEN_BYTES_PER_S))
    return Done()


def _fault_of(found: Sequence[DriveOutcome]) -> str:
    """Of drives that had said before how they can be erased."""
    code = _code(found)
    return "erase-failed" if code == "erase-unsupported" else code


def _code(found: Sequence[DriveOutcome]) -> str:
    states = {one.state for one in found}
    if "shared" in states:
        return "erase-shared-drive"
    if "missing" in states:
        return "erase-drive-missing"
    return "erase-unsupported" if states <= {"done", "unsupported", "read-only", "frozen", "locked"} else "erase-failed"


async def mark_the_planned(m: Machine) -> Outcome:
    """From here on the disks are neither what they were, nor clean."""
    if not erases(m) or m.node.facts.disks is Disks.HALF:
        return Done()
    await m.ready_to_act()
    m.note(SetNode({"disks": Disks.HALF}), MarkDrives(tuple(one["serial"] for one in m.memo["plan"]), True))
    return Done()


async def plant_the_pattern(m: Machine) -> Outcome:
    """The pattern is on every drive, and was read back: what is looked for after the erase was there before it."""
    if not erases(m) or not m.memo["plan"]:
        return Done()
    found = await _phase(m, "plant", m.memo["methods"])
    if not isinstance(found, tuple):
        return found
    bad = [f"{one.serial}: {one.message or one.state}" for one in found if one.state != "done"]
    if bad:  # a drive that does not give it back is not the same as one whose erase could be seen
        return Failed(_fault_of(found), f"drives do not give back what was written to them: {'; '.join(bad)}")
    return Done()


async def erase_by_the_agent(m: Machine) -> Outcome:
    """Every drive of the plan says that it is erased."""
    if not erases(m) or not m.memo["plan"]:
        return Done()
    # another node may have been inspected since the plan
    shared = await seen_elsewhere(
        m, [DriveSeen(one["serial"], one["model"], one["wwn"], one["sizeBytes"]) for one in m.memo["plan"]]
    )
    if shared is not None:
        return shared
    found = await _phase(m, "erase", m.memo["methods"])
    if not isinstance(found, tuple):
        return found
    bad = [f"{one.serial}: {one.message or one.state}" for one in found if one.state != "done" or one.method is None]
    if bad:
        return Failed(_fault_of(found), "; ".join(bad))
    row = await m.doors.store.read(agent_tasks.of, m.operation.operation_id, "erase-erase")
    if row is not None:  # by the daemon's clock: a machine's own may be anything
        m.remember(erase_began_at=row.handed_at, erase_ended_at=row.ended_at)
    m.remember(erased={one.serial: _said(one) for one in found})
    return Done()


def _said(one: DriveOutcome) -> dict[str, Any]:
    return {
        "method": one.method,
        "standard": one.standard,
        "notCovered": list(one.not_covered),
        "log": one.drive_log,
    }


async def verify_by_the_agent(m: Machine) -> Outcome:
    """After a power cycle no sector shows the pattern any more; each drive has its record."""
    if not erases(m):
        return not_erased(m)
    found: tuple[DriveOutcome, ...] = ()
    if m.memo["plan"]:
        outcome = await _phase(m, "verify", m.memo["methods"])
        if not isinstance(outcome, tuple):
            return outcome
        found = outcome
    for one, planned in zip(found, m.memo["plan"], strict=True):
        if one.state != "done" or len(one.samples) != len(planned["sectors"]):
            return Failed(
                "erase-not-verified", f"drive {one.serial} could not be read back: {one.message or one.state}"
            )
        pattern = hashlib.sha256(pattern_of(str(m.memo["seed"]), one.serial)).hexdigest()
        left = [str(at) for at, sample in zip(planned["sectors"], one.samples, strict=True) if sample == pattern]
        if left:
            return Failed(
                "erase-not-verified",
                f"drive {one.serial} was said to be erased, and still holds what was planted at byte {', '.join(left)}",
            )
    for one, planned in zip(found, m.memo["plan"], strict=True):
        m.note(AddErasureRecord(m.new_id("er"), one.serial, _record(m, one, planned)))
        m.tell("metal.erasure.recorded", serial=one.serial, verifier="daemon")
    m.note(MarkDrives(tuple(one.serial for one in found), False))
    close_the_erase(m)
    return Done()


def _record(m: Machine, one: DriveOutcome, planned: Mapping[str, Any]) -> dict[str, object]:
    said = m.memo["erased"][one.serial]
    return {
        "serial": one.serial,
        "model": planned["model"],
        "wwn": planned["wwn"],
        "capacityBytes": planned["sizeBytes"],
        "method": said["method"],
        "standard": said["standard"] or "none",
        "startedAt": m.memo["erase_began_at"],
        "endedAt": m.memo["erase_ended_at"],
        "verifier": "daemon",
        "verifiedAt": m.now,
        "readBack": {
            "sectors": planned["sectors"],
            "pattern": hashlib.sha256(pattern_of(str(m.memo["seed"]), one.serial)).hexdigest(),
            "samples": list(one.samples),
        },
        "result": "erased",
        "notCovered": sorted({*NOT_COVERED, *said["notCovered"]}),
        "driveLog": said["log"],
        "unplanned": list(m.memo.get("unplanned") or ()),
        "operation": m.operation.operation_id,
    }


def _writes(m: Machine) -> bool:
    """Where nothing is written, the machine is not started again for it."""
    return erases(m) and bool(m.memo.get("plan"))


INSIDE: Final[Sequence[Step]] = (
    plan_by_the_agent,
    ask_the_drives,
    mark_the_planned,
    plant_the_pattern,
    erase_by_the_agent,
    *only_where(_writes, *RESTART),
    verify_by_the_agent,
)
