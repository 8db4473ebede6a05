"""Disks to write images to, real loop devices of both sector sizes, and image servers that break off, stall and lie."""

from __future__ import annotations

import hashlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bcmetal_agent.tasks.disks import Where
from bcmetal_agent.tasks.doing import ImageDoor
from bcmetal_agent.tasks.write_image import write_image
from bcmetal_agent.tasks.write_image_source import Patience
from bcmetal_agent.wire_tasks import DiskRef, WriteImageParams, WroteImage
from bcmetal_drivers.emulated.disks import Cabinet, FakeDisk, Kind
from erase_bench import Recorder

MIB: Final = 1 << 20
QUICK: Final = Patience(stall_s=1.0, tries=3, first_s=0.01, longest_s=0.02)
BEFORE: Final = b"an earlier tenant's system was here "


class Door:
    """The way to `packed`. Each connection takes the next of `faults`, the last ones none: a number of bytes after which it breaks off by an
    OSError, `("ends", bytes)` without one, `("hangs", bytes)`, or an OSError at opening."""

    def __init__(self, packed: bytes, *faults: int | tuple[str, int] | OSError, slice_bytes: int | None = None) -> None:
        self.packed = packed
        self.offsets: list[int] = []
        self.on_read: Callable[[int], None] = lambda offset: None
        self.slice_bytes = slice_bytes
        self._faults = list(faults)
        self._released = threading.Event()

    @contextmanager
    def __call__(self, offset: int) -> Iterator[_Reading]:
        self.offsets.append(offset)
        fault = self._faults.pop(0) if self._faults else None
        if isinstance(fault, OSError):
            raise fault
        kind, after = ("breaks", fault) if isinstance(fault, int) else fault or ("", 0)
        yield _Reading(self, offset, kind, offset + after if kind else len(self.packed))

    def hang(self) -> None:
        self._released.wait(30)

    def release(self) -> None:
        self._released.set()


class _Reading:
    def __init__(self, door: Door, at: int, kind: str, until: int) -> None:
        self._door, self._at, self._kind, self._until = door, at, kind, min(until, len(door.packed))

    def read(self, size: int, /) -> bytes:
        self._door.on_read(self._at)
        if self._at >= self._until and self._kind == "breaks":
            raise ConnectionResetError("the server broke off")
        if self._at >= self._until and self._kind == "hangs":
            self._door.hang()
            raise TimeoutError("hung")
        chunk = self._door.packed[self._at : min(self._at + min(size, self._door.slice_bytes or size), self._until)]
        self._at += len(chunk)
        return chunk


class ImageBench:
    """`disk` makes one, full of an earlier tenant's data; `write` writes an image to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.cabinet = Cabinet(folder / "cabinet")
        self.where = Where(self.cabinet.sys, self.cabinet.dev, self.cabinet.proc)
        self.doing = Recorder()
        self._loops: list[str] = []

    def loop(self, file: Path, sector: int = 512) -> Path:
        argv = ["losetup", "--find", "--show", "--nooverlap", "--sector-size", str(sector), str(file)]
        loop = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
        self._loops.append(loop)
        return Path(loop)

    def file(self, size_bytes: int, folder: Path | None = None) -> Path:
        path = (folder or self._folder) / f"disk{len(self._loops)}"
        with path.open("wb") as f:
            f.truncate(size_bytes)
        return path

    def disk(self, size_bytes: int = 16 * MIB, *, sector: int = 512, serial: str = "S1", fill: bool = True) -> FakeDisk:
        file = self.file(size_bytes)
        if fill:
            file.write_bytes((BEFORE * (size_bytes // len(BEFORE) + 1))[:size_bytes])
        return self.attach(file, sector=sector, serial=serial)

    def attach(self, file: Path, *, sector: int = 512, serial: str = "S1") -> FakeDisk:
        disk = self.cabinet.add(Kind.NVME, self.loop(file, sector), serial)
        (self.cabinet.sys / "block" / disk.name / "queue/logical_block_size").write_text(f"{sector}\n")
        return disk

    def params(self, disk: FakeDisk, packed: bytes, **other: Any) -> WriteImageParams:
        wanted = {"sha256": hashlib.sha256(packed).hexdigest(), "size_bytes": len(packed), **other}
        return WriteImageParams(ref(disk), **wanted)

    def write(self, disk: FakeDisk, packed: bytes, door: ImageDoor | None = None, **other: Any) -> WroteImage:
        return write_image(self.params(disk, packed, **other), self.doing, door or Door(packed), self.where, QUICK)

    def close(self) -> None:
        while self._loops:  # each once: its number may be somebody else's afterwards
            subprocess.run(["losetup", "--detach", self._loops.pop()], check=False, capture_output=True, timeout=10)


def ref(disk: FakeDisk) -> DiskRef:
    return DiskRef(disk.serial, disk.size_bytes, disk.model, f"0x{disk.wwn}")


def content(disk: FakeDisk) -> bytes:
    with disk.node.open("rb") as f:
        return f.read()


def boots_nothing(disk: FakeDisk) -> bool:
    """No boot sector, no partition table at either end."""
    found = content(disk)
    return not any(found[:MIB]) and not any(found[-MIB:])
