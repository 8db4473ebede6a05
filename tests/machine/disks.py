"""Disks of a virtual machine: sparse files, and how qemu is told of them."""

from __future__ import annotations

import mmap
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

MIB: Final = 1 << 20


class DiskKind(StrEnum):
    NVME = "nvme"
    ATA = "ata"
    SCSI = "scsi"
    VIRTIO = "virtio-blk"


@dataclass(frozen=True, slots=True)
class Disk:
    """`wwn` is 16 hex digits: the NAA name of ATA and SCSI disks, the EUI-64 of NVMe's; virtio-blk has none."""

    kind: DiskKind
    serial: str
    size_bytes: int = 256 * MIB
    wwn: str = ""
    model: str = "BENCHDISK"

    @property
    def rotational(self) -> bool:
        return self.kind is DiskKind.ATA

    def doc(self) -> dict[str, Any]:
        return asdict(self)


def disk_of(doc: dict[str, Any]) -> Disk:
    return Disk(**{**doc, "kind": DiskKind(doc["kind"])})


def make_file(disk: Disk, path: Path) -> None:
    """Sparse; one that is there stays as it is."""
    if not path.exists():
        with path.open("wb") as f:
            f.truncate(disk.size_bytes)


def arguments(disk: Disk, n: int, path: Path) -> list[str]:
    """For qemu. The device that boots is `disk<n>`, its block node `node<n>`."""
    file = f"driver=file,node-name=file{n},filename={_quoted(path)},cache.direct=off,discard=unmap"
    raw = f"driver=raw,node-name=node{n},file=file{n},discard=unmap,detect-zeroes=off"
    blocks = [part for block in (file, raw) for part in ("-blockdev", block)]
    wwn = f",wwn=0x{disk.wwn}" if disk.wwn else ""
    drive = f"drive=node{n},id=disk{n},serial={disk.serial}"
    match disk.kind:
        case DiskKind.NVME:
            port = f"pcie-root-port,id=port{n},chassis={n + 1},slot={n + 1}"
            if disk.wwn:
                space = f"nvme-ns,bus=nvme{n},nsid=1,id=disk{n},drive=node{n},eui64=0x{disk.wwn}"
                controller = f"nvme,id=nvme{n},bus=port{n},serial={disk.serial}"
                devices = [port, controller, space]
            else:
                devices = [port, f"nvme,bus=port{n},{drive}"]
        case DiskKind.ATA:
            devices = [f"ide-hd,bus=ide.{n},{drive},model={disk.model}{wwn},rotation_rate=7200"]
        case DiskKind.SCSI:
            devices = [
                f"scsi-hd,bus=scsi.0,scsi-id={n + 1},{drive},vendor=QEMU,product={disk.model},rotation_rate=1{wwn}"
            ]
        case DiskKind.VIRTIO:
            devices = [f"virtio-blk-pci,{drive}"]
    return blocks + [part for device in devices for part in ("-device", device)]


def holds(path: Path, needle: bytes) -> bool:
    """Whether the bytes are anywhere on the disk."""
    with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as all_of_it:
        return all_of_it.find(needle) >= 0


def plant(path: Path, needle: bytes, every_bytes: int = 4 * MIB) -> None:
    """Write the bytes all over the disk, its first and its last sector among the places."""
    size = path.stat().st_size
    with path.open("r+b") as f:
        for at in [*range(0, size - 512, every_bytes), size - 512]:
            f.seek(at)
            f.write(needle)


def _quoted(path: Path) -> str:
    return str(path).replace(",", ",,")
