"""The SMBIOS tables (DMTF DSP0134), read by us: firmware writes them, so every length in them is somebody's word."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from bcmetal_agent.tasks.look_files import Machine, printable, raw, text
from bcmetal_agent.wire_inventory import Board, Dimm

TABLE: Final = "sys/firmware/dmi/tables/DMI"
_IDS: Final = "sys/class/dmi/id"
TABLE_LIMIT: Final = 1024 * 1024  # real ones are tens of KiB
STRUCTURES_LIMIT: Final = 8192
_END: Final = 127

_NO_VALUE: Final = frozenset(
    {"", "unknown", "none", "n/a", "not specified", "no dimm", "not available", "no module installed"}
)
# DSP0134 7.18.2
_MEMORY_TYPES: Final = {
    0x0F: "SDRAM", 0x12: "DDR", 0x13: "DDR2", 0x14: "DDR2 FB-DIMM", 0x18: "DDR3", 0x19: "FBD2", 0x1A: "DDR4",
    0x1B: "LPDDR", 0x1C: "LPDDR2", 0x1D: "LPDDR3", 0x1E: "LPDDR4", 0x1F: "Logical non-volatile device", 0x20: "HBM",
    0x21: "HBM2", 0x22: "DDR5", 0x23: "LPDDR5", 0x24: "HBM3", 0x07: "RAM",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Structure:
    """One structure: its formatted part (with the header of four bytes) and its strings. What lies past its end is absent."""

    kind: int
    handle: int
    data: bytes
    strings: tuple[str, ...] = ()

    def integer(self, offset: int, size: int) -> int | None:
        part = self.data[offset : offset + size]
        return int.from_bytes(part, "little") if len(part) == size else None

    def text(self, offset: int) -> str | None:
        n = self.integer(offset, 1)
        if not n or n > len(self.strings):
            return None
        found = self.strings[n - 1]
        return None if found.lower() in _NO_VALUE else found


def structures(table: bytes) -> Iterator[Structure]:
    """Until the end structure, or until the table stops making sense: what came before stands."""
    at, count = 0, 0
    table = table[:TABLE_LIMIT]
    while at + 4 <= len(table) and count < STRUCTURES_LIMIT:
        kind, length, handle = struct.unpack_from("<BBH", table, at)
        if length < 4 or at + length > len(table):
            return
        end = table.find(b"\0\0", at + length)
        if end < 0:
            return
        area = table[at + length : end]
        strings = tuple(printable(one)[:256] for one in area.split(b"\0")) if area else ()
        yield Structure(kind, handle, table[at : at + length], strings)
        if kind == _END:
            return
        at, count = end + 2, count + 1


def read(machine: Machine) -> tuple[Structure, ...]:
    """All structures; none where the firmware has no tables, or nobody may read them."""
    found = raw(machine.path(TABLE), TABLE_LIMIT)
    return () if found is None else tuple(structures(found))


def _first(found: Iterable[Structure], kind: int) -> Structure:
    return next((one for one in found if one.kind == kind), Structure(kind, 0, b""))


def board(machine: Machine, found: tuple[Structure, ...]) -> Board:
    """From the tables, and where these are silent from what the kernel took from them."""
    system, base, chassis = (_first(found, kind) for kind in (1, 2, 3))
    told = machine.path(_IDS)
    return Board(
        maker=system.text(0x04) or text(told / "sys_vendor"),
        product=system.text(0x05) or text(told / "product_name"),
        serial=system.text(0x07) or text(told / "product_serial"),
        sku=system.text(0x19) or text(told / "product_sku"),
        board_maker=base.text(0x04) or text(told / "board_vendor"),
        board_product=base.text(0x05) or text(told / "board_name"),
        board_serial=base.text(0x07) or text(told / "board_serial"),
        chassis_serial=chassis.text(0x07) or text(told / "chassis_serial"),
    )


def bios(machine: Machine, found: tuple[Structure, ...]) -> tuple[str | None, str | None, str | None]:
    """Maker, version, date."""
    first, told = _first(found, 0), machine.path(_IDS)
    return (
        first.text(0x04) or text(told / "bios_vendor"),
        first.text(0x05) or text(told / "bios_version"),
        first.text(0x08) or text(told / "bios_date"),
    )


def dimms(found: Iterable[Structure]) -> tuple[Dimm, ...]:
    """The slots that hold something. A slot's name is its locator, with its bank where the locator alone is there twice."""
    filled = [(one, size) for one in found if one.kind == 17 and (size := _size(one)) != 0]
    locators = [one.text(0x10) or f"handle 0x{one.handle:04x}" for one, _ in filled]
    slots = []
    for n, ((one, size), locator) in enumerate(zip(filled, locators, strict=True)):
        bank = one.text(0x11)
        twice = locators.count(locator) > 1
        slots.append(
            Dimm(
                slot=f"{bank or n} {locator}" if twice else locator,
                size_bytes=size,
                type=_MEMORY_TYPES.get(one.integer(0x12, 1) or 0),
                speed_mts=_speed(one),
                maker=one.text(0x17),
                part=one.text(0x1A),
                serial=one.text(0x18),
            )
        )
    return tuple(slots)


def _size(one: Structure) -> int | None:
    """0: the slot is empty. None: filled, and its size is not told."""
    size = one.integer(0x0C, 2)
    if size is None:
        return 0
    if size == 0xFFFF:
        return None
    if size == 0x7FFF:
        extended = one.integer(0x1C, 4)
        return None if extended is None else (extended & 0x7FFFFFFF) * 2**20
    return (size & 0x7FFF) * (2**10 if size & 0x8000 else 2**20)


def _speed(one: Structure) -> int | None:
    """What it runs at, else what it is made for."""
    for short, extended in ((0x20, 0x58), (0x15, 0x54)):
        speed = one.integer(short, 2)
        if speed == 0xFFFF:
            speed = one.integer(extended, 4)
        if speed:
            return speed
    return None


@dataclass(frozen=True, slots=True)
class Processor:
    """A socket as the firmware tells it. `populated` False: the socket is empty."""

    socket: str | None
    populated: bool
    max_mhz: int | None


def processors(found: Iterable[Structure]) -> tuple[Processor, ...]:
    """Central processors only (type 3)."""
    return tuple(
        Processor(one.text(0x04), bool((one.integer(0x18, 1) or 0) & 0x40), one.integer(0x14, 2) or None)
        for one in found
        if one.kind == 4 and one.integer(0x05, 1) in (3, None)
    )
