"""The machine's disks, and the one of them that a plan means: nothing is written to a device that `resolve` did not give.

The ramdisk has no udev: sysfs says what there is, and the disk itself where sysfs does not.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bcmetal_agent.tasks.disk_identity import identify, same_model, same_serial, same_wwn, text_of
from bcmetal_agent.tasks.disk_transport import attachment
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.look_files import names, number
from bcmetal_agent.wire_tasks import DiskRef

# Whole disks of hardware. Named, not excluded: what the kernel puts together (dm, md, loop, nbd, rbd …) is never a disk of a plan.
_DISKS: Final = re.compile(r"nvme\d+n\d+|sd[a-z]+|vd[a-z]+|xvd[a-z]+|mmcblk\d+|pmem\d+")
_SCSI_DISKS: Final = {0, 7, 14, 20}  # direct access, optical memory, simplified direct access, zoned (SPC-5, table 153)
_BLKGETSIZE64: Final = 0x80081272  # linux/fs.h
_BLKRRPART: Final = 0x125F


@dataclass(frozen=True, slots=True)
class Where:
    """The folders that the kernel tells of its disks in."""

    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A whole disk, as it is now. `number`: major:minor. `wwn`: with its kind, as `naa.5000…`, `eui.…`; None where it has none that is
    unique in the world. `transport`: nvme, ata, sas, scsi, virtio, usb, mmc, fc, iscsi, nvme-of. `ata`: it takes ATA commands, behind whatever
    it is. `virtual_medium`: a BMC's. `raid_volume`: a controller shows this in place of the drives behind it. `hidden`: what of it is
    there and not in its sectors (`boot0`, `rpmb`)."""

    path: Path
    name: str
    number: str
    size_bytes: int
    serial: str | None = None
    wwn: str | None = None
    model: str | None = None
    vendor: str | None = None
    firmware: str | None = None
    block_bytes: int = 512
    rotational: bool | None = None
    removable: bool = False
    read_only: bool = False
    transport: str | None = None
    shared: bool = False
    virtual_medium: bool = False
    ata: bool = False
    zoned: bool = False
    raid_volume: bool = False
    hidden: tuple[str, ...] = ()


def devices(where: Where | None = None) -> tuple[BlockDevice, ...]:
    """Every disk that could hold something, by name; empty drives, CD drives and what is put together by the kernel are left out."""
    where = where or Where()
    found = [_device(name, where) for name in sorted(names(where.sys / "block")) if _DISKS.fullmatch(name)]
    there = [device for device in found if device is not None]
    paths = Counter(device.wwn for device in there)
    return tuple(replace(device, shared=True) if device.wwn and paths[device.wwn] > 1 else device for device in there)


def find(ref: DiskRef, where: Where | None = None) -> BlockDevice:
    """The one disk that agrees with every field given. Raises TaskFailed: disk-missing, disk-ambiguous."""
    there = [device for device in devices(where) if not device.virtual_medium]
    agreeing = [device for device in there if _agrees(ref, device)]
    if not agreeing:
        raise TaskFailed("disk-missing", f"no disk {_named(ref)} is there{_nearest(ref, there)}")
    twins = agreeing + [
        other
        for other in there
        if other not in agreeing and other.wwn and agreeing[0].wwn and same_wwn(other.wwn, agreeing[0].wwn)
    ]
    if len(twins) > 1:
        told = ", ".join(device.name for device in twins)
        raise TaskFailed("disk-ambiguous", f"more than one disk says that it is {_named(ref)}: {told}")
    return agreeing[0]


def resolve(ref: DiskRef, where: Where | None = None) -> BlockDevice:
    """The disk to write to. Raises TaskFailed: disk-missing, disk-ambiguous, disk-shared, disk-read-only, disk-in-use."""
    where = where or Where()
    device = find(ref, where)
    if device.shared:
        raise TaskFailed(
            "disk-shared",
            f"{device.name} ({device.serial}) is reached over {device.transport or 'several paths'}, other machines may see it too",
        )
    if device.read_only:
        raise TaskFailed("disk-read-only", f"{device.name} ({device.serial}) takes no writes")
    user = in_use(device, where)
    if user is not None:
        raise TaskFailed("disk-in-use", f"{device.name} ({device.serial}) is in use: {user}")
    return device


def in_use(device: BlockDevice, where: Where | None = None) -> str | None:
    """What of this machine holds the disk or a partition of it: mounted, swap, or a device on top of it (md, dm)."""
    where = where or Where()
    block = where.sys / "block" / device.name
    parts = [block, *(block / name for name in names(block) if (block / name / "partition").exists())]
    numbers, nodes = set(), set()
    for part in parts:
        nodes.add(part.name)
        numbers.add(text_of(part / "dev"))
        for holder in names(part / "holders"):
            return f"{holder} is built on {part.name}"
    for line in _lines(where.proc / "self/mountinfo"):
        fields = line.split(" ")
        source = line.partition(" - ")[2].split(" ")[1:2]  # btrfs has numbers of its own, so its source is looked at
        if len(fields) > 4 and (fields[2] in numbers or (source and _node_of(source[0]) in nodes)):
            return f"mounted at {fields[4]}"
    for line in _lines(where.proc / "swaps")[1:]:
        if _node_of(line.split(" ")[0].split("\t")[0]) in nodes:
            return "swap"
    return None


@contextmanager
def opened(device: BlockDevice, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of this very disk; one for writing is exclusive, so that nobody mounts or assembles it meanwhile.

    Raises TaskFailed: disk-missing when another one is behind the node now, disk-in-use, disk-read-only.
    """
    writing = flags & os.O_ACCMODE != os.O_RDONLY
    try:
        fd = os.open(device.path, flags | os.O_CLOEXEC | (os.O_EXCL if writing else 0))
    except OSError as e:
        code = {errno.EBUSY: "disk-in-use", errno.EROFS: "disk-read-only", errno.EACCES: "disk-read-only"}
        raise TaskFailed(code.get(e.errno or 0, "disk-missing"), f"{device.name}: {e.strerror}") from e
    try:
        node = os.fstat(fd)
        number = f"{os.major(node.st_rdev)}:{os.minor(node.st_rdev)}"
        if not stat.S_ISBLK(node.st_mode) or number != device.number or size_of(fd) != device.size_bytes:
            raise TaskFailed("disk-missing", f"{device.path} is not the disk any more that was found")
        yield fd
    finally:
        os.close(fd)


def size_of(fd: int) -> int:
    """Bytes of an open block device; 0 when it went away."""
    size = bytearray(8)
    try:
        fcntl.ioctl(fd, _BLKGETSIZE64, size)
    except OSError:
        return 0
    return int(struct.unpack("=Q", size)[0])


def reread_partitions(device: BlockDevice) -> bool:
    """Let the kernel look at the partition table anew; False when it did not (in use, or a kind without partitions)."""
    with opened(device) as fd:
        try:
            fcntl.ioctl(fd, _BLKRRPART)
        except OSError:
            return False
    return True


# ---------------------------------------------------------------- one disk


def _device(name: str, where: Where) -> BlockDevice | None:
    block = where.sys / "block" / name
    size = (number(block / "size") or 0) * 512
    kind = block / "device/type"
    unfit = name.startswith("sd") and kind.exists() and number(kind) not in _SCSI_DISKS
    if not size or number(block / "hidden") or unfit:
        return None
    path, spins = where.dev / name, number(block / "queue/rotational")
    said = identify(block, path)
    attached = attachment(block, where.sys, said)
    return BlockDevice(
        path=path,
        name=name,
        number=text_of(block / "dev") or "",
        size_bytes=size,
        serial=said.serial,
        wwn=said.wwn,
        model=said.model,
        vendor=said.vendor,
        firmware=said.firmware,
        block_bytes=number(block / "queue/logical_block_size") or 512,
        rotational=None if spins is None else spins == 1,
        removable=number(block / "removable") == 1,
        read_only=number(block / "ro") == 1,
        transport=attached.transport,
        shared=attached.shared,
        virtual_medium=attached.virtual_medium,
        raid_volume=attached.raid_volume,
        ata=said.ata,
        zoned=(text_of(block / "queue/zoned") or "none") != "none",
        hidden=tuple(sorted(e.name.removeprefix(name) for e in where.sys.glob(f"block/{name}boot*")))
        + (("rpmb",) if _has_rpmb(block) else ()),
    )


def _has_rpmb(block: Path) -> bool:
    return f"{block.name}rpmb" in (*names(block), *names(block / "device"))


def _agrees(ref: DiskRef, device: BlockDevice) -> bool:
    return (
        device.serial is not None
        and same_serial(ref.serial, device.serial)
        and ref.size_bytes == device.size_bytes
        and (ref.model is None or (device.model is not None and same_model(ref.model, device.model, device.vendor)))
        and (ref.wwn is None or (device.wwn is not None and same_wwn(ref.wwn, device.wwn)))
    )


def _named(ref: DiskRef) -> str:
    more = [f"model {ref.model}" if ref.model else "", f"WWN {ref.wwn}" if ref.wwn else ""]
    return " ".join([f"with serial {ref.serial} and {ref.size_bytes} bytes", *(one for one in more if one)])


def _nearest(ref: DiskRef, there: list[BlockDevice]) -> str:
    """The same serial with something else that differs is worth saying: a truncated disk, or a serial given twice."""
    for device in there:
        if device.serial is not None and same_serial(ref.serial, device.serial):
            return f"; {device.name} has that serial, {device.size_bytes} bytes, model {device.model}, WWN {device.wwn}"
    return ""


# ---------------------------------------------------------------- sysfs and procfs


def _node_of(path: str) -> str:
    return os.path.basename(os.path.realpath(path)) if path.startswith("/") else ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
