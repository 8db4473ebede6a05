"""What a kernel shows of a machine's disks: a tree as of sysfs, device nodes, and the programs that talk to the drives."""

from __future__ import annotations

import os
import shlex
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from bcmetal_drivers.emulated.disks.state import Drive, changing, load, save

PROGRAMS: Final = ("nvme", "hdparm", "sg_sanitize", "sg_requests", "sg_opcodes")


class Kind(StrEnum):
    """How a disk is attached."""

    NVME = "nvme"
    NVME_TCP = "nvme-tcp"
    ATA = "ata"
    SAS = "sas"
    FC = "fc"
    ISCSI = "iscsi"
    USB = "usb"
    VIRTIO = "virtio"


_SCSI_PATHS: Final = {
    Kind.ATA: "pci0000:00/0000:00:1f.2/ata{n}/host{n}/target{n}:0:0/{n}:0:0:0",
    Kind.SAS: "pci0000:00/0000:01:00.0/host{n}/port-{n}:0/end_device-{n}:0/target{n}:0:0/{n}:0:0:0",
    Kind.FC: "pci0000:00/0000:02:00.0/host{n}/rport-{n}:0-0/target{n}:0:0/{n}:0:0:0",
    Kind.ISCSI: "platform/host{n}/session1/target{n}:0:0/{n}:0:0:0",
    Kind.USB: "pci0000:00/0000:00:14.0/usb1/1-{n}/1-{n}:1.0/host{n}/target{n}:0:0/{n}:0:0:0",
}


@dataclass(frozen=True, slots=True)
class FakeDisk:
    """`name` in /dev, `drive`: the name of its state (for NVMe its controller's)."""

    name: str
    drive: str
    serial: str
    wwn: str
    model: str
    size_bytes: int
    node: Path


class Cabinet:
    """The disks of one machine, all of it in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.sys, self.dev, self.proc = folder / "sys", folder / "dev", folder / "proc"
        self.programs, self._states = folder / "bin", folder / "states"
        for made in (self.sys / "block", self.dev, self.proc / "self", self.programs, self._states):
            made.mkdir(parents=True)
        (self.proc / "self/mountinfo").write_text("")
        (self.proc / "swaps").write_text("Filename\tType\tSize\tUsed\tPriority\n")
        for name in PROGRAMS:
            argv = [sys.executable, "-m", "bcmetal_drivers.emulated.disks", str(self._states), name]
            (self.programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
            (self.programs / name).chmod(0o755)
        self._count = 0

    def add(
        self,
        kind: Kind,
        node: Path,
        serial: str,
        *,
        model: str = "FAKEDISK 9000",
        vendor: str = "ACME",
        wwn: str | None = None,
        rotational: bool = False,
        read_only: bool = False,
        discards: bool = True,
        security: Mapping[str, Any] | None = None,
        **state: Any,
    ) -> FakeDisk:
        """`state`, `security`: fields of `state.Drive` and `state.Security`. `wwn`: hex digits, made from the count if not given."""
        n = self._count
        self._count += 1
        digits = wwn or f"5000c500{n:08x}"
        size = _size(node)
        drive = Drive(serial, model, sectors=size // 512, nodes={"1": str(node)}, **state)
        for name, value in (security or {}).items():
            setattr(drive.security, name, value)
        if kind in (Kind.NVME, Kind.NVME_TCP):
            name, owner = f"nvme{n}n1", f"nvme{n}"
            device = self.sys / f"devices/pci0000:00/nvme/{owner}"
            transport = "tcp" if kind is Kind.NVME_TCP else "pcie"
            _write(
                device,
                {"serial": serial.ljust(20), "model": model.ljust(40), "firmware_rev": "1.0", "transport": transport},
            )
            (self.dev / owner).write_text("")
        elif kind is Kind.VIRTIO:
            name = owner = f"vd{chr(ord('a') + n)}"
            device = self.sys / f"devices/pci0000:00/virtio{n}"
            _write(device, {"vendor": "0x1af4"})
        else:
            name = owner = f"sd{chr(ord('a') + n)}"
            device = self._scsi(kind, n, drive, digits, "ATA" if kind is Kind.ATA else vendor)
        block = {"wwid": f"eui.{digits}\n", "nsid": "1\n"} if name.startswith("nvme") else {}
        if kind is Kind.VIRTIO:
            block = {"serial": serial}
        self._block(name, device, node, size, rotational, read_only, discards, block)
        save(self._path(owner), drive)
        return FakeDisk(name, owner, serial, digits, model, size, node)

    def add_namespace(self, beside: FakeDisk, node: Path, nsid: int = 2) -> FakeDisk:
        """One more disk of the same NVMe controller."""
        name = f"{beside.drive}n{nsid}"
        digits = f"{int(beside.wwn, 16) + (nsid << 32):016x}"
        device = (self.sys / "block" / beside.name / "device").resolve()
        size = _size(node)
        self._block(name, device, node, size, False, False, True, {"wwid": f"eui.{digits}\n", "nsid": f"{nsid}\n"})
        with changing(self._path(beside.drive)) as drive:
            drive.nodes[str(nsid)] = str(node)
        return FakeDisk(name, beside.drive, beside.serial, digits, beside.model, size, node)

    def state(self, disk: FakeDisk) -> Drive:
        return load(self._path(disk.drive))

    def change(self, disk: FakeDisk, security: Mapping[str, Any] | None = None, **state: Any) -> None:
        with changing(self._path(disk.drive)) as drive:
            for name, value in state.items():
                setattr(drive, name, value)
            for name, value in (security or {}).items():
                setattr(drive.security, name, value)

    def power_cycle(self) -> None:
        """Drives with a password are locked, and the firmware freezes those that it freezes at each boot."""
        for path in self._states.glob("*.json"):
            with changing(path) as drive:
                drive.security.locked = drive.security.enabled
                drive.security.frozen = drive.security.frozen_at_boot

    def unplug(self, disk: FakeDisk) -> None:
        (self.sys / "block" / disk.name).rename(self.sys / f"unplugged-{disk.name}")

    def mount(self, disk: FakeDisk, at: str) -> None:
        number = (self.sys / "block" / disk.name / "dev").read_text().strip()
        with (self.proc / "self/mountinfo").open("a") as table:
            table.write(f"36 35 {number} / {at} rw - ext4 /dev/{disk.name} rw\n")

    def _path(self, owner: str) -> Path:
        return self._states / f"{owner}.json"

    def _scsi(self, kind: Kind, n: int, drive: Drive, digits: str, vendor: str) -> Path:
        device = self.sys / "devices" / _SCSI_PATHS[kind].format(n=n)
        _write(
            device, {"type": "0", "vendor": vendor.ljust(8), "model": drive.model[:16].ljust(16), "rev": drive.firmware}
        )
        raw = drive.serial.encode().rjust(20)
        (device / "vpd_pg80").write_bytes(b"\x00\x80" + struct.pack(">H", len(raw)) + raw)
        name = bytes.fromhex(digits)
        (device / "vpd_pg83").write_bytes(
            b"\x00\x83" + struct.pack(">H", 4 + len(name)) + bytes([1, 3, 0, len(name)]) + name
        )
        return device

    def _block(
        self,
        name: str,
        device: Path,
        node: Path,
        size: int,
        rotational: bool,
        read_only: bool,
        discards: bool,
        more: Mapping[str, str],
    ) -> None:
        block = self.sys / "block" / name
        number = node.stat().st_rdev
        _write(
            block,
            {
                "size": str(size // 512), "ro": str(int(read_only)), "removable": "0", "hidden": "0",
                "dev": f"{os.major(number)}:{os.minor(number)}", "queue/logical_block_size": "512",
                "queue/rotational": str(int(rotational)), "queue/zoned": "none",
                "queue/discard_max_bytes": str(2**32 if discards else 0), **more,
            },
        )  # fmt: skip
        (block / "holders").mkdir()
        (block / "device").symlink_to(device)
        (self.dev / name).symlink_to(node)


def _write(folder: Path, attributes: Mapping[str, str]) -> None:
    for name, value in attributes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value)


def _size(node: Path) -> int:
    fd = os.open(node, os.O_RDONLY)
    try:
        return os.lseek(fd, 0, os.SEEK_END)
    finally:
        os.close(fd)
