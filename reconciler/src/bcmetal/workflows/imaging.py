"""Steps that put a system on a machine's disk, by the agent: the disk chosen, the image and the config drive written, the firmware told."""

from __future__ import annotations

import asyncio
from typing import Final

from bcmetal.comparing.root_device import LEAST_BYTES, Hints, NoRootDevice, root_device
from bcmetal.decisions import Back, Done, Failed
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.store.values import MarkDrives
from bcmetal.workflows.erasing import seen_elsewhere
from bcmetal.workflows.inside import drive_of, ref_of, seen_inside
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.tasks import result_of, task
from bcmetal_agent import wire
from bcmetal_agent.wire_inventory import Disk
from bcmetal_agent.wire_tasks import (
    DiskRef,
    SetBoot,
    SetBootParams,
    WriteConfigDriveParams,
    WriteImageParams,
    WroteConfigDrive,
    WroteImage,
)

SECTOR: Final = 512
ROOM_BYTES: Final = 16 * 2**20  # for the config drive, and the second copy of the partition table
NOT_YET: Final = "0" * 64  # what is made while the task is handed out


async def choose_the_disk(m: Machine) -> Outcome:
    """The disk that the hints mean, or the rule's; one that no other node sees."""
    if m.memo.get("disk") is not None:
        return Done()
    seen = await seen_inside(m)
    if isinstance(seen, Failed):
        return seen
    hints = m.node.root_device
    raw = int(m.memo.get("image_raw_bytes") or 0)
    least = raw + ROOM_BYTES if hints else max(raw + ROOM_BYTES, LEAST_BYTES)
    try:
        chosen = root_device(seen.disks, Hints.of(hints), least)
    except ValueError as error:
        return Failed("no-root-device", str(error))
    if isinstance(chosen, NoRootDevice):
        return Failed("no-root-device", chosen.message)
    if chosen.block_bytes > SECTOR:  # a partition table for other sectors, and no kernel mounts an ISO on them
        return Failed(
            "no-root-device",
            f"{_said(chosen)}, has sectors of {chosen.block_bytes} bytes, and images are made for {SECTOR}: "
            "choose another disk, or format it to sectors of 512 bytes",
        )
    shared = await seen_elsewhere(m, [drive_of(chosen)])
    if shared is not None:
        return shared
    m.remember(disk=wire.to_doc(ref_of(chosen)), disk_said=_said(chosen))
    return Done()


def _said(disk: Disk) -> str:
    return f"{disk.model or 'a disk'}, serial {disk.serial}, {disk.size_bytes / 2**30:.1f} GiB"


def _disk(m: Machine) -> DiskRef:
    return wire.read_doc(DiskRef, dict(m.memo["disk"]))


async def write_the_image(m: Machine) -> Outcome:
    """The image is on the disk, and the disk gives back what was written."""
    file = m.doors.shelf.folder / str(m.memo["image_file"])
    if m.memo.get("wrote") is None and not await asyncio.to_thread(file.is_file):  # held for long, and pruned meanwhile
        return Back("fetch_the_image", "the image is not on the shelf any more")
    params = WriteImageParams(
        disk=_disk(m),
        sha256=str(m.memo["image_sha256"]),
        size_bytes=int(m.memo["image_bytes"]),
        compression=m.memo["image_compression"],
        raw_bytes=m.memo.get("image_raw_bytes"),
    )
    m.note(MarkDrives((params.disk.serial,), True, m.node.tenant_id))
    row = await task(m, "write-image", "writeImage", params, file=str(m.memo["image_file"]))
    if not isinstance(row, AgentTaskRow):
        return row
    wrote = result_of(row, WroteImage)
    if isinstance(wrote, Failed):
        return wrote
    if wrote.written_sha256 != wrote.read_back_sha256:
        return Failed("disk-read-back-differs", f"{m.memo['disk_said']} does not give back what was written to it")
    m.remember(wrote={"bytes": wrote.written_bytes, "ms": wrote.took_ms, "sha256": wrote.written_sha256})
    return Done()


async def write_the_config_drive(m: Machine) -> Outcome:
    """What the first boot needs lies in a partition of its own; its join token was minted as the task was handed out."""
    params = WriteConfigDriveParams(disk=_disk(m), iso="", sha256=NOT_YET)
    row = await task(m, "write-config-drive", "writeConfigDrive", params)
    if not isinstance(row, AgentTaskRow):
        return row
    wrote = result_of(row, WroteConfigDrive)
    return wrote if isinstance(wrote, Failed) else Done()


async def set_the_boot_entry(m: Machine) -> Outcome:
    """The firmware starts from this disk; a machine that booted without UEFI has nothing to be set."""
    row = await task(m, "set-boot", "setBoot", SetBootParams(disk=_disk(m), label=m.node.name))
    if not isinstance(row, AgentTaskRow):
        return row
    done = result_of(row, SetBoot)
    return done if isinstance(done, Failed) else Done()
