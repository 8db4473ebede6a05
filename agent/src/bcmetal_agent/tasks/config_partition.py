"""`writeConfigDrive`: what the first boot needs, as an ISO 9660 image in a partition of its own at the disk's end.

The partition has a place of its own there, so that the system's last partition can take all the room before it. Only that partition's entry
grows; its filesystem is grown by the system itself at its first boot. Done again, with another token in the image, the content is replaced.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import hashlib
import os
import struct
import uuid
import zlib
from dataclasses import dataclass
from typing import Final

from bcmetal_agent.tasks import gpt
from bcmetal_agent.tasks.disks import Where, opened, resolve
from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.write_image_disk import Sectors
from bcmetal_agent.wire_tasks import WriteConfigDriveParams, WroteConfigDrive

NAME: Final = "bcmetal-config"
LEAST_BYTES: Final = 8 * 2**20  # room for a longer one, when the task is done again
_ALIGN: Final = 2**20
_ISO_LIMIT: Final = 64 * 2**20
_ISO_SECTOR: Final = 2048
_ISO_AT: Final = 16 * _ISO_SECTOR  # its primary volume descriptor
_LABELS: Final = (b"cidata", b"config-2")
_BLKRRPART: Final = 0x125F  # linux/fs.h
_FIXED: Final = {  # what does not grow though it comes last: no filesystem that a system would grow at its first boot
    uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"),  # EFI system partition
    uuid.UUID("21686148-6449-6e6f-744e-656564454649"),  # BIOS boot
    uuid.UUID("9e1a2d38-c612-4316-aa26-8b49521e5a8b"),  # PReP boot
    uuid.UUID("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"),  # swap
    uuid.UUID("e3c9e316-0b5c-4db8-817d-f92df00215ae"),  # Microsoft reserved
}
_MBR_LINUX: Final = 0x83
_MBR_FIXED: Final = {0x05, 0x0F, 0x85, 0x82, 0xEF}  # extended partitions, swap, EFI system partition
_MBR_END: Final = 2**32


@dataclass(frozen=True, slots=True)
class _Place:
    number: int
    start: int  # bytes
    length: int
    grown: bool


def write_config_drive(params: WriteConfigDriveParams, doing: Doing, where: Where | None = None) -> WroteConfigDrive:
    """`grown`: the partition before it reaches up to it. Raises TaskFailed: those of `disks.resolve`, bad-params, no-room-for-config-drive,
    disk-write-failed, disk-read-back-differs."""
    iso = _unpacked(params)
    device = resolve(params.disk, where)
    if device.block_bytes > _ISO_SECTOR:  # fs/isofs: "Logical zone size(2048) < hardware blocksize(4096)"
        raise TaskFailed(
            "no-room-for-config-drive",
            f"{device.name} ({device.serial}) has sectors of {device.block_bytes} bytes: Linux mounts no ISO 9660 image from there",
        )
    doing.progress(0, f"writing the config drive to {device.name} ({device.serial})")
    with opened(device, os.O_RDWR | os.O_DIRECT) as fd:
        disk = Sectors(fd, device)
        try:
            place = _in_gpt(disk, iso, params.grow) if gpt.present(disk) else _in_mbr(disk, iso, params.grow)
        except (gpt.BadTable, gpt.NoRoom) as e:
            raise TaskFailed("no-room-for-config-drive", f"{device.name} ({device.serial}), with the image: {e}") from e
        with contextlib.suppress(OSError):  # disks without partitions for the kernel, such as some loop devices
            fcntl.ioctl(fd, _BLKRRPART)
    doing.log(f"partition {place.number} of {device.name}: the config drive, {len(iso)} bytes at byte {place.start}\n")
    doing.progress(1000, "the config drive is written")
    return WroteConfigDrive(partition=place.number, offset_bytes=place.start, grown=place.grown)


def _unpacked(params: WriteConfigDriveParams) -> bytes:
    try:
        unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        iso = unpacker.decompress(base64.b64decode(params.iso, validate=True), _ISO_LIMIT)
    except (binascii.Error, zlib.error):
        raise TaskFailed("bad-params", "the config drive is no gzip in base64") from None
    if not unpacker.eof or hashlib.sha256(iso).hexdigest() != params.sha256:
        raise TaskFailed("bad-params", "the config drive is not the one that its checksum names")
    if not _is_config_drive(iso[_ISO_AT : _ISO_AT + _ISO_SECTOR]):
        raise TaskFailed("bad-params", "the config drive is no ISO 9660 image with the label cidata or config-2")
    return iso


def _is_config_drive(descriptor: bytes) -> bool:
    """ECMA-119, 8.4: the volume identifier."""
    return descriptor[:6] == b"\x01CD001" and descriptor[40:72].rstrip(b" \0").lower() in _LABELS


def _fill(disk: Sectors, start: int, length: int, iso: bytes) -> None:
    """The content, and nothing of a former one behind it; read back."""
    if len(iso) > length:
        raise gpt.NoRoom(f"the partition of the former config drive has {length} bytes, this one needs {len(iso)}")
    content = iso.ljust(length, b"\0")
    disk.put(start, content)
    disk.flush()
    if disk.get(start, length) != content:
        raise disk.differs("gives back something else than the config drive that was written to it")


def _room(free_from: int, free_to: int, block: int, needed: int) -> tuple[int, int]:
    """Start and length, in blocks, of a place at the end of the free blocks."""
    align = _ALIGN // block
    needed = -(-needed // _ALIGN) * _ALIGN
    for size in (max(needed, LEAST_BYTES), needed):
        start = (free_to - size // block) // align * align
        if start >= free_from:
            return start, size // block
    free = max(0, free_to - free_from) * block
    raise gpt.NoRoom(f"{needed} bytes are needed behind its last partition, {free} are free")


# ---------------------------------------------------------------- GPT


def _in_gpt(disk: Sectors, iso: bytes, grow: bool) -> _Place:
    table = gpt.moved_to_end(gpt.read(disk), disk.size_bytes)
    number = next((n for n, e in table.entries.items() if (e.name, e.kind) == (NAME, gpt.LINUX)), None)
    if number is None:
        start, length = _room(table.free_from, table.last_usable + 1, disk.block, len(iso))
        table, number = gpt.added(table, gpt.Entry(gpt.LINUX, uuid.uuid4(), start, start + length - 1, name=NAME))
    ours = table.entries[number]
    _fill(disk, ours.first * disk.block, (ours.last - ours.first + 1) * disk.block, iso)
    before = [(entry.last, n) for n, entry in table.entries.items() if entry.last < ours.first]
    grown = False
    if before and grow and table.entries[max(before)[1]].kind not in _FIXED:
        table = gpt.grown(table, max(before)[1], ours.first - 1)
        grown = True
    gpt.write(disk, table)
    if gpt.read(disk) != table:
        raise disk.differs("gives back another partition table than was written to it")
    return _Place(number, ours.first * disk.block, (ours.last - ours.first + 1) * disk.block, grown)


# ---------------------------------------------------------------- MBR


@dataclass(frozen=True, slots=True)
class _Slot:
    index: int
    kind: int
    first: int
    blocks: int

    @property
    def end(self) -> int:
        return self.first + self.blocks


def _in_mbr(disk: Sectors, iso: bytes, grow: bool) -> _Place:
    """Primary partitions alone: behind an extended one there is room, inside of it nothing is touched."""
    sector = bytearray(disk.get(0, disk.block))
    slots = [_Slot(i, *struct.unpack_from("<4xB3xII", sector, 446 + 16 * i)) for i in range(4)]
    used = [slot for slot in slots if slot.kind and slot.blocks]
    if sector[510:512] != b"\x55\xaa" or not used or any(sector[446 + 16 * i] not in (0, 0x80) for i in range(4)):
        raise gpt.NoRoom("it has no partition table")
    end = min(disk.size_bytes // disk.block, _MBR_END)
    if any(not slot.first or slot.end > end for slot in used):
        raise gpt.BadTable("its partitions reach beyond the end of the disk")
    ours = next((slot for slot in used if _holds_one(disk, slot)), None)
    if ours is None:
        free = next((slot.index for slot in slots if not slot.kind), None)
        if free is None:
            raise gpt.NoRoom("all four partitions of its MBR are used")
        start, length = _room(max(slot.end for slot in used), end, disk.block, len(iso))
        ours = _Slot(free, _MBR_LINUX, start, length)
    _fill(disk, ours.first * disk.block, ours.blocks * disk.block, iso)
    changed = [ours]
    before = max((slot for slot in used if slot.end <= ours.first), key=lambda slot: slot.end, default=None)
    grown = before is not None and grow and before.kind not in _MBR_FIXED
    if before is not None and grown:
        changed.append(_Slot(before.index, before.kind, before.first, ours.first - before.first))
    for slot in changed:
        at = 446 + 16 * slot.index
        # Past what cylinders, heads and sectors can say: the largest of them, as all tools write it.
        first_chs = sector[at + 1 : at + 4] if slot is not ours else b"\xfe\xff\xff"
        struct.pack_into(
            "<B3sB3sII", sector, at, sector[at], bytes(first_chs), slot.kind, b"\xfe\xff\xff", slot.first, slot.blocks
        )
    disk.put(0, bytes(sector))
    disk.flush()
    return _Place(ours.index + 1, ours.first * disk.block, ours.blocks * disk.block, grown)


def _holds_one(disk: Sectors, slot: _Slot) -> bool:
    """An MBR has no names: a partition is ours when a config drive lies in it, as `_room` makes them."""
    start = slot.first * disk.block
    if slot.kind != _MBR_LINUX or start % _ALIGN or slot.blocks * disk.block < _ALIGN:
        return False
    return _is_config_drive(disk.get(start + _ISO_AT, 4096)[:_ISO_SECTOR])
