"""Disks as the inventory shows them, with the names that udev would give them in an installed system: the ramdisk has no udev."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from bcmetal_agent.tasks.disks import BlockDevice, Where, devices
from bcmetal_agent.tasks.look_files import Machine, link_name, names, number, pci_of, text
from bcmetal_agent.wire_inventory import Disk

_BY_ID, _BY_PATH = "/dev/disk/by-id/", "/dev/disk/by-path/"
_HCTL: Final = re.compile(r"(\d+):(\d+):(\d+):(\d+)")
_USB: Final = re.compile(r"\d+-([\d.]+):(\d+\.\d+)")


def where(machine: Machine) -> Where:
    return Where(machine.path("sys"), machine.path("dev"), machine.path("proc"))


def disks(machine: Machine) -> tuple[Disk, ...]:
    return tuple(_shown(machine, one) for one in devices(where(machine)))


def _shown(machine: Machine, one: BlockDevice) -> Disk:
    return Disk(
        name=one.name,
        size_bytes=one.size_bytes,
        serial=one.serial,
        wwn=one.wwn,
        model=one.model,  # without its maker before it: a plan's disk is found again by these very words
        firmware=one.firmware,
        transport=one.transport,
        rotational=one.rotational,
        removable=one.removable,
        read_only=one.read_only,
        shared=one.shared,
        virtual_medium=one.virtual_medium,
        block_bytes=one.block_bytes,
        by_id=by_id(one),
        by_path=by_path(machine.path("sys/block") / one.name, one),
    )


def by_id(one: BlockDevice) -> tuple[str, ...]:
    """As 60-persistent-storage.rules name them."""
    found = []
    kind = {"nvme": "nvme", "nvme-of": "nvme", "virtio": "virtio", "mmc": "mmc"}.get(
        one.transport or "", "ata" if one.ata else ""
    )
    if kind == "virtio" and one.serial:
        found.append(f"virtio-{_replaced(one.serial[:20])}")
    elif kind and one.model and one.serial:
        found.append(f"{kind}-{_replaced(one.model)}_{_replaced(one.serial)}")
    if one.wwn and kind == "nvme":
        found.append(f"nvme-{one.wwn}")
    elif one.wwn:
        unique = one.wwn.partition(".")[2]
        found.append(f"wwn-0x{unique}")
        if not one.ata:
            found.append(f"scsi-{'3' if one.wwn.startswith('naa.') else '2'}{unique}")
    return tuple(_BY_ID + name for name in found)


def _replaced(text_: str) -> str:
    return re.sub(r"[^A-Za-z0-9#+\-.:=@_]", "_", re.sub(r"\s+", "_", text_.strip()))


def by_path(block: Path, one: BlockDevice) -> str | None:
    """As udev's path_id names it; None where it does not know the bus."""
    try:
        real = block.resolve()
    except (OSError, RuntimeError):
        return None
    pci = pci_of(real)
    if pci is None:
        return None
    parts = real.parts
    scsi = next((part for part in reversed(parts) if _HCTL.fullmatch(part)), None) or link_name(block / "device") or ""
    if one.transport == "nvme":
        tail = f"-nvme-{number(block / 'nsid') or 1}"
    elif one.transport == "virtio":
        tail = ""
    elif one.ata and (port := next((part for part in parts if re.fullmatch(r"ata\d+", part)), None)):
        ports = os.path.join(*parts[: parts.index(port) + 1])
        tail = f"-ata-{number(Path(ports) / 'ata_port' / port / 'port_no') or 1}"
    elif one.transport == "sas":
        address = text(block / "device/sas_address", 32)
        match = _HCTL.fullmatch(scsi)
        if address is None or match is None:
            return None
        tail = f"-sas-{address}-lun-{match[4]}"
    elif match := _HCTL.fullmatch(scsi):
        tail = f"-scsi-{_relative_host(parts)}:{match[2]}:{match[3]}:{match[4]}"
        usb = next((found for part in reversed(parts) if (found := _USB.fullmatch(part))), None)
        if usb is not None:
            tail = f"-usb-0:{usb[1]}:{usb[2]}{tail}"
    else:
        return None
    return f"{_BY_PATH}pci-{pci}{tail}"


def _relative_host(parts: tuple[str, ...]) -> int:
    """Hosts are numbered in the order of their finding: udev counts from the first host of the same parent."""
    n = next((n for n, part in enumerate(parts) if re.fullmatch(r"host\d{1,9}", part)), None)
    if n is None:
        return 0
    mates = (name for name in names(Path(*parts[:n])) if re.fullmatch(r"host\d{1,9}", name))
    return int(parts[n][4:]) - min((int(name[4:]) for name in mates), default=int(parts[n][4:]))
