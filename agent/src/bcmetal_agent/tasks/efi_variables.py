"""The firmware's boot variables through efivarfs (UEFI specification 2.10, sections 3.1, 3.3 and 10.3).

Each variable is a file: four bytes of attributes, then the value, written by one write(2). What the firmware, or whoever had the machine
before, left there is read with care and kept as it is.
"""

from __future__ import annotations

import errno
import os
import re
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bcmetal_agent.tasks.doing import TaskFailed

FOLDER: Final = Path("/sys/firmware/efi/efivars")
_GLOBAL: Final = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
_BOOT: Final = re.compile(rf"Boot([0-9A-F]{{4}})-{_GLOBAL}", re.IGNORECASE)
_ATTRIBUTES: Final = 0x7  # non-volatile, for the boot services and for the running system
_ACTIVE: Final = 0x1  # LOAD_OPTION_ACTIVE
_LIMIT: Final = 64 * 1024
_END: Final = b"\x7f\xff\x04\x00"


@dataclass(frozen=True)
class Partition:
    """As a HARD_DRIVE_DEVICE_PATH names it. `signature`: a GUID of GPT, or the 32 bits of an MBR's disk."""

    number: int
    first_block: int
    blocks: int
    signature: uuid.UUID | int

    def node(self) -> bytes:
        if isinstance(self.signature, uuid.UUID):
            who = self.signature.bytes_le + b"\x02\x02"
        else:
            who = struct.pack("<I12x", self.signature) + b"\x01\x01"
        return struct.pack("<BBHIQQ", 4, 1, 42, self.number, self.first_block, self.blocks) + who


def load_option(label: str, partition: Partition, loader: str) -> bytes:
    """An EFI_LOAD_OPTION. Without optional data: shim and some loaders take that for the name of what they shall load."""
    name = loader.encode("utf-16-le") + b"\0\0"
    path = partition.node() + struct.pack("<BBH", 4, 4, 4 + len(name)) + name + _END
    return struct.pack("<IH", _ACTIVE, len(path)) + label.encode("utf-16-le") + b"\0\0" + path


def label_of(option: bytes) -> str | None:
    """The description of an EFI_LOAD_OPTION; None for what is none."""
    for at in range(6, len(option) - 1, 2):
        if option[at : at + 2] == b"\0\0":
            return option[6:at].decode("utf-16-le", "replace")
    return None


class Variables:
    """Every method raises TaskFailed: what the firmware does not take is not to be had by trying again."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def options(self) -> dict[int, bytes]:
        """The boot entries by number."""
        return dict(sorted(self._options()))

    def order(self) -> list[int]:
        """BootOrder; empty where there is none."""
        raw = self._read("BootOrder")
        return [] if raw is None else [number for (number,) in struct.iter_unpack("<H", raw[: len(raw) & ~1])]

    def write_option(self, number: int, option: bytes) -> None:
        self._write(f"Boot{number:04X}", option)

    def write_order(self, order: list[int]) -> None:
        self._write("BootOrder", struct.pack(f"<{len(order)}H", *order))

    def remove_option(self, number: int) -> None:
        for path in self._paths(f"Boot{number:04X}"):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise _refused(f"remove Boot{number:04X}", error) from None

    def _options(self) -> Iterator[tuple[int, bytes]]:
        for name in self._names():
            found = _BOOT.fullmatch(name)
            if found is not None:
                yield int(found.group(1), 16), self._value(self._folder / name) or b""

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._folder))
        except OSError as error:
            raise TaskFailed("efi-variables", f"the firmware's variables cannot be read: {error.strerror}") from None

    def _paths(self, name: str) -> list[Path]:
        """Some firmware writes the hexadecimal digits in lower case."""
        wanted = f"{name}-{_GLOBAL}".lower()
        return [self._folder / one for one in self._names() if one.lower() == wanted]

    def _read(self, name: str) -> bytes | None:
        return next((value for path in self._paths(name) if (value := self._value(path)) is not None), None)

    def _value(self, path: Path) -> bytes | None:
        try:
            with path.open("rb", buffering=0) as file:
                raw = file.read(_LIMIT) or b""
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TaskFailed(
                "efi-variables", f"{path.name.partition('-')[0]} cannot be read: {error.strerror}"
            ) from None
        return raw[4:] if len(raw) >= 4 else None

    def _write(self, name: str, value: bytes) -> None:
        if self._read(name) == value:
            return  # every write wears the firmware's flash
        path = next(iter(self._paths(name)), self._folder / f"{name}-{_GLOBAL}")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                os.write(descriptor, struct.pack("<I", _ATTRIBUTES) + value)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _refused(f"write {name}", error) from None
        if self._read(name) != value:
            raise TaskFailed("efi-variables", f"the firmware did not keep {name}")


def _refused(what: str, error: OSError) -> TaskFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
        return TaskFailed("efi-variables-full", f"the firmware has no room to {what}: its variables are full")
    return TaskFailed("efi-variables", f"the firmware does not let the agent {what}: {error.strerror}")
