"""`setBoot`: the firmware boots the deployed disk first, by an entry of its own.

The entry names the EFI system partition by its GUID, so that a disk in another slot is still found. Former entries of ours go, all others
stay; BootNext is left to the BMC.
"""

from __future__ import annotations

import os
import re
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bcmetal_agent.tasks.disks import BlockDevice, Where, opened, resolve
from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.efi_variables import FOLDER, Partition, Variables, label_of, load_option
from bcmetal_agent.wire_tasks import SetBoot, SetBootParams

OURS: Final = "bcmetal"
LOADER: Final = "\\EFI\\BOOT\\BOOTX64.EFI"
_ESP: Final = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b").bytes_le
_ESP_MBR: Final = 0xEF
_LOADER: Final = re.compile(r"(\\[A-Za-z0-9._ +-]{1,64}){1,8}")
_ENTRIES: Final = 1024
_BLOCKS: Final = 2**48  # of the largest disk that there could be


@dataclass(frozen=True)
class Firmware:
    """`efi`: there only where the machine was booted by UEFI."""

    efi: Path = Path("/sys/firmware/efi")
    variables: Path = FOLDER


def set_boot(
    params: SetBootParams, doing: Doing, firmware: Firmware | None = None, where: Where | None = None
) -> SetBoot:
    """Done again it changes nothing."""
    there = firmware or Firmware()
    loader = (params.loader or LOADER).replace("/", "\\")
    if not _LOADER.fullmatch(loader) or any(part.strip(". ") == "" for part in loader.split("\\")[1:]):
        raise TaskFailed("bad-params", "the loader is a path as \\EFI\\BOOT\\BOOTX64.EFI")
    if not params.label or not params.label.isprintable():
        raise TaskFailed("bad-params", "the boot entry's label is not printable")
    if not there.efi.exists():
        doing.log("this machine was not booted by UEFI: it has no boot entries\n")
        return SetBoot()
    esp = _system_partition(resolve(params.disk, where))
    return SetBoot(put_first(Variables(there.variables), params.label, load_option(params.label, esp, loader), doing))


def put_first(variables: Variables, label: str, option: bytes, doing: Doing) -> str:
    """The number of the entry that has this content now, first of all."""
    options = variables.options()
    stale = [number for number, value in options.items() if value != option and label_of(value) in (label, OURS)]
    same = [number for number, value in options.items() if value == option]
    # A stale entry is written over: full flash is the commonest fault here, and nothing is without an entry meanwhile.
    number = next(iter([*same, *stale]), None)
    if number is None:
        number = next(n for n in range(0x10000) if n not in options)
    variables.write_option(number, option)
    gone = {one for one in (*same, *stale) if one != number}
    order = [number, *(one for one in variables.order() if one != number and one not in gone)]
    variables.write_order(order)
    for one in sorted(gone):
        doing.log(f"Boot{one:04X} was ours, and is removed\n")
        variables.remove_option(one)
    doing.log(f"Boot{number:04X} {label}: first of {len(order)}\n")
    return f"{number:04X}"


# ---------------------------------------------------------------- the EFI system partition


def _system_partition(device: BlockDevice) -> Partition:
    with opened(device) as disk:
        found = system_partition(disk, device.block_bytes)
    if found is None:
        raise TaskFailed(
            "no-system-partition",
            f"{device.name} ({device.serial}) has no EFI system partition, which this machine's firmware boots from",
        )
    return found


def system_partition(disk: int, block_bytes: int) -> Partition | None:
    """The first one of an open disk, by its GPT, or by its MBR where it has no GPT."""
    for size in dict.fromkeys((block_bytes, 512, 4096)):
        for found in (*_of_gpt(disk, size), *_of_mbr(disk)):
            return found
    return None


def _of_gpt(disk: int, block: int) -> Iterator[Partition]:
    """UEFI specification 2.10, chapter 5.3."""
    header = os.pread(disk, 92, block)
    if len(header) < 92 or header[:8] != b"EFI PART":
        return
    at, count, size = struct.unpack_from("<QII", header, 72)
    if not 128 <= size <= 4096 or size % 8 or count > _ENTRIES or at >= _BLOCKS:
        return
    table = os.pread(disk, count * size, at * block)
    for index in range(min(count, len(table) // size)):
        kind, unique, first, last = struct.unpack_from("<16s16sQQ", table, index * size)
        if kind == _ESP and first <= last:
            yield Partition(index + 1, first, last - first + 1, uuid.UUID(bytes_le=unique))


def _of_mbr(disk: int) -> Iterator[Partition]:
    sector = os.pread(disk, 512, 0)
    if len(sector) < 512 or sector[510:] != b"\x55\xaa":
        return
    (signature,) = struct.unpack_from("<I", sector, 440)
    for index in range(4):
        kind, first, blocks = struct.unpack_from("<4xB3xII", sector, 446 + 16 * index)
        if kind == _ESP_MBR and blocks:
            yield Partition(index + 1, first, blocks, signature)
