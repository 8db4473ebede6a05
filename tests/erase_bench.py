"""Drives to erase: fakes of all kinds over loop devices, and what the daemon would ask for them."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bcmetal_agent.tasks.disks import Where
from bcmetal_agent.tasks.doing import Stopped
from bcmetal_agent.tasks.erase import erase
from bcmetal_agent.wire_tasks import DiskRef, DriveOutcome, EraseDrive, EraseParams, EraseResult, Method
from bcmetal_drivers.emulated.disks import Cabinet, FakeDisk, Kind

MIB: Final = 1 << 20
NEEDLE: Final = b"a tenant's secret, once in each sector of the disk"


def why_no_loop() -> str | None:
    """Why no loop device can be had here; None when it can."""
    if os.geteuid() != 0 or shutil.which("losetup", path="/usr/sbin:/sbin") is None:
        return "needs root and losetup"
    return None if Path("/dev/loop-control").exists() else "no loop devices here"


class Recorder:
    """A `Doing` that keeps everything. `on_log` is called with each line; `stop_at` thousandths, `check` raises Stopped."""

    def __init__(self) -> None:
        self.text = ""
        self.thousandths = [0]
        self.messages: list[str] = []
        self.stop_at = 1001
        self.on_log: Callable[[str], None] = lambda line: None

    def progress(self, thousandths: int, message: str | None = None) -> None:
        self.thousandths.append(thousandths)
        self.messages.append(message or "")

    def log(self, text: str) -> None:
        self.text += text
        self.on_log(text)

    def check(self) -> None:
        if self.thousandths[-1] >= self.stop_at:
            raise Stopped


class Bench:
    """`disk` makes one, full of NEEDLE; `run` runs a phase over them. Loop devices are let go by `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cabinet = Cabinet(folder / "cabinet")
        self.where = Where(self.cabinet.sys, self.cabinet.dev, self.cabinet.proc)
        self.doing = Recorder()
        self.pattern = os.urandom(4096)
        self._loops: list[str] = []

    def loop(self, size_bytes: int = 4 * MIB, folder: Path | None = None) -> Path:
        """A block device over a sparse file."""
        file = (folder or self.folder) / f"disk{len(self._loops)}"
        with file.open("wb") as f:
            f.truncate(size_bytes)
        loop = subprocess.run(
            ["losetup", "--find", "--show", "--nooverlap", file], check=True, capture_output=True, text=True, timeout=10
        ).stdout.strip()
        self._loops.append(loop)
        return Path(loop)

    def disk(self, kind: Kind, serial: str, size_bytes: int = 4 * MIB, **settings: Any) -> FakeDisk:
        node = self.loop(size_bytes)
        fill(node)
        return self.cabinet.add(kind, node, serial, **settings)

    def close(self) -> None:
        for loop in self._loops:
            with contextlib.suppress(subprocess.CalledProcessError):
                subprocess.run(["losetup", "--detach", loop], check=True, capture_output=True, timeout=10)

    def run(self, phase: Any, *drives: EraseDrive) -> EraseResult:
        return erase(EraseParams(phase, drives), self.doing, self.where)

    def one(self, phase: Any, drive: EraseDrive) -> DriveOutcome:
        (outcome,) = self.run(phase, drive).drives
        return outcome

    def planned(self, disk: FakeDisk, methods: Sequence[Method], **other: Any) -> EraseDrive:
        """As the daemon plans it: everything that it knows of the disk, and three sectors."""
        ref = {"serial": disk.serial, "size_bytes": disk.size_bytes, "model": disk.model, "wwn": f"0x{disk.wwn}"}
        if disk.name.startswith("vd"):
            ref["wwn"] = ref["model"] = None
        sectors = (0, 4096 * (disk.size_bytes // 8192), disk.size_bytes // 4096 * 4096 - 4096)
        return EraseDrive(DiskRef(**{**ref, **other}), tuple(methods), base64.b64encode(self.pattern).decode(), sectors)


def fill(node: Path) -> None:
    """Every 512 bytes hold the needle."""
    sector = NEEDLE.ljust(512, b"\0")
    with node.open("r+b") as disk:
        size = disk.seek(0, os.SEEK_END)
        disk.seek(0)
        disk.write(sector * (size // 512))
        disk.flush()
        os.fsync(disk.fileno())


def left(disk: FakeDisk, needle: bytes = NEEDLE) -> int:
    """How often it is still there."""
    with disk.node.open("rb") as f:
        return f.read().count(needle)


def untouched(disk: FakeDisk) -> bool:
    return left(disk) == disk.size_bytes // 512
