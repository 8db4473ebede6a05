"""`setBoot`: the firmware boots the deployed disk first, by an entry of its own.

The entry names the EFI system partition by its GUID, so that a disk in another slot is still found. Former entries of ours go, all others
stay; BootNext is left to the BMC.
"""

from __future__ import annotations

import os
import re
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bcmetal_agent.tasks import gpt
from bcmetal_agent.tasks.disks import Where, opened, resolve
from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.efi_variables import FOLDER, Partition, Variables, label_of, load_option
from bcmetal_agent.tasks.write_image_disk import Sectors
from bcmetal_agent.wire_tasks import SetBoot, SetBootParams

OURS: Final = "bcmetal"
LOADER: Final = "\\EFI\\BOOT\\BOOTX64.EFI"
_ESP: Final = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
_ESP_MBR: Final = 0xEF
_LOADER: Final = re.compile(r"(\\[A-Za-z0-9._ +-]{1,64}){1,8}")


@dataclass(frozen=True)
class Firmware:
    """`efi`: there only where the machine was booted by UEFI."""

    efi: Path = Path("/sys/firmware/efi")
    variables: Path = FOLDER


def set_boot(
    params: SetBootParams, doing: Doing, firmware: Firmware | None = None, where: Where | None = None
) -> SetBoot:
    """Done again it changes nothing. Raises TaskFailed: those of `disks.resolve`, bad-params, no-system-partition, efi-variables,
    efi-variables-full."""
    there = firmware or Firmware()
    loader = (params.loader or LOADER).replace("/", "\\")
    if not _LOADER.fullmatch(loader) or any(part.strip(". ") == "" for part in loader.split("\\")[1:]):
        raise TaskFailed("bad-params", "the loader is a path as \\EFI\\BOOT\\BOOTX64.EFI")
    if not params.label or not params.label.isprintable():
        raise TaskFailed("bad-params", "the boot entry's label is not printable")
    if not there.efi.exists():
        doing.log("this machine was not booted by UEFI: it has no boot entries\n")
        return SetBoot()
    device = resolve(params.disk, where)
    with opened(device, os.O_RDONLY | os.O_DIRECT) as fd:
        esp = system_partition(Sectors(fd, device))
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


def system_partition(disk: Sectors) -> Partition:
    """The first one by the disk's GPT, or by its MBR where that names no GPT. Raises TaskFailed: no-system-partition."""
    try:
        found = _of_gpt(gpt.read(disk)) if gpt.present(disk) else _of_mbr(disk)
    except gpt.BadTable as bad:
        raise _no_system_partition(disk, f": {bad}") from bad
    if found is None:
        raise _no_system_partition(disk, ", which this machine's firmware boots from")
    return found


def _no_system_partition(disk: Sectors, why: str) -> TaskFailed:
    name = f"{disk.device.name} ({disk.device.serial})"
    return TaskFailed("no-system-partition", f"{name} has no EFI system partition{why}")


def _of_gpt(table: gpt.Table) -> Partition | None:
    for number, entry in sorted(table.entries.items()):
        if entry.kind == _ESP:
            return Partition(number, entry.first, entry.last - entry.first + 1, entry.unique)
    return None


def _of_mbr(disk: Sectors) -> Partition | None:
    sector = disk.get(0, disk.block)
    if sector[510:512] != b"\x55\xaa":
        return None
    (signature,) = struct.unpack_from("<I", sector, 440)
    for index in range(4):
        kind, first, blocks = struct.unpack_from("<4xB3xII", sector, 446 + 16 * index)
        if kind == _ESP_MBR and blocks:
            return Partition(index + 1, first, blocks, signature)
    return None
