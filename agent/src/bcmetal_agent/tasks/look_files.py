"""Reading the kernel's small files: bounded, printable, and absent rather than an error where a file is not there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE_LIMIT: Final = 64 * 1024
ENTRIES_LIMIT: Final = 4096
_PCI: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where /sys, /proc and /dev are. Only of the live machine (root `/`) are devices asked by ioctl, by packet or by program."""

    root: Path = Path("/")

    @property
    def live(self) -> bool:
        return self.root == Path("/")

    def path(self, inside: str) -> Path:
        return self.root / inside


def raw(path: Path, limit: int = FILE_LIMIT) -> bytes | None:
    """At most `limit` bytes of a file; None where it is not there or does not answer."""
    try:
        with path.open("rb", buffering=0) as file:
            found = bytearray()
            while len(found) < limit and (chunk := file.read(limit - len(found))):
                found += chunk
    except OSError:
        return None
    return bytes(found)


def printable(data: bytes | str) -> str:
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text).strip()


def text(path: Path, limit: int = 512) -> str | None:
    """The file's text without control characters; None where it is absent or empty."""
    found = raw(path, 4096)
    return None if found is None else printable(found)[:limit] or None


def number(path: Path) -> int | None:
    """A whole number from 0, decimal or 0x…; None where the file holds none (the kernel writes -1 for unknown)."""
    return whole(text(path, 32))


def whole(value: object) -> int | None:
    """A whole number from 0 of what a kernel or a tool said; None for all else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = int(value, 16 if value.lower().startswith("0x") else 10)
        except ValueError:
            return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 2**53 else None


def names(path: Path, limit: int = ENTRIES_LIMIT) -> list[str]:
    """The folder's entries, sorted so that eth2 comes before eth10; none where there is no folder."""
    try:
        found = os.listdir(path)
    except OSError:
        return []
    return sorted((name for name in found if name.isprintable()), key=natural)[:limit]


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key for sorting names with numbers in them."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts]


def link_name(path: Path) -> str | None:
    """The last part of where a symbolic link leads."""
    try:
        return os.path.basename(os.readlink(path)) or None
    except OSError:
        return None


def pci_of(path: Path) -> str | None:
    """The PCI address of the function that a device's path leads through, the nearest one."""
    try:
        parts = path.resolve().parts
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        return None
    return next((part for part in reversed(parts) if _PCI.fullmatch(part)), None)
