"""GUID partition tables (UEFI specification 2.10, chapter 5), read and written as they are, for sectors of any size.

What is read comes from an image, so all of it is checked and bounded. What is not understood (types, names, attributes) is kept.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

LINUX: Final = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
_SIGNATURE: Final = b"EFI PART"
_HEADER: Final = struct.Struct("<8sIIIIQQQQ16sQIII")
_REVISION: Final = 0x00010000
_ENTRY: Final = struct.Struct("<16s16sQQQ72s")
_ENTRIES_LIMIT: Final = 512 * 1024  # bytes of the table; the usual one has 16 KiB
_PROTECTIVE: Final = 0xEE
_MBR_BLOCKS: Final = 0xFFFFFFFF


class BadTable(Exception):
    """No GPT that could be worked with; the text says what is wrong with it."""


class NoRoom(Exception):
    """The table or the disk has no place for that."""


class Disk(Protocol):
    """Offsets and lengths are whole blocks."""

    @property
    def block(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def get(self, start: int, length: int, /) -> bytes: ...
    def put(self, start: int, data: bytes, /) -> None: ...
    def flush(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """`first` and `last`: logical blocks, both of the partition. `more`: what an entry larger than 128 bytes has besides."""

    kind: uuid.UUID
    unique: uuid.UUID
    first: int
    last: int
    attributes: int = 0
    name: str = ""
    more: bytes = b""


@dataclass(frozen=True, slots=True)
class Table:
    """`entries` by partition number, from 1. `blocks`: of the disk."""

    disk_guid: bytes
    blocks: int
    block: int
    first_usable: int
    last_usable: int
    entries_at: int
    count: int
    entry_bytes: int
    entries: Mapping[int, Entry] = field(default_factory=dict)

    @property
    def table_blocks(self) -> int:
        return -(-self.count * self.entry_bytes // self.block)

    @property
    def free_from(self) -> int:
        """The block behind the last partition."""
        return max([self.first_usable, *(entry.last + 1 for entry in self.entries.values())])


def present(disk: Disk) -> bool:
    """Whether the MBR says that a GPT follows, which is what firmwares and kernels look at."""
    mbr = disk.get(0, disk.block)
    return mbr[510:512] == b"\x55\xaa" and any(mbr[446 + 16 * i + 4] == _PROTECTIVE for i in range(4))


def read(disk: Disk) -> Table:
    """The table of a disk, by its first header, or by the second one at the disk's end. Raises BadTable."""
    try:
        return _read(disk, 1)
    except BadTable as bad:
        for other in (512, 4096):
            if other != disk.block and disk.get(0, 8192)[other : other + 8] == _SIGNATURE:
                raise BadTable(f"it is made for sectors of {other} bytes, the disk has {disk.block}") from None
        try:
            return _read(disk, disk.size_bytes // disk.block - 1)
        except BadTable:
            raise bad from None


def moved_to_end(table: Table, size_bytes: int) -> Table:
    """The same for a disk of another size, as when the image was made for a smaller one. Raises NoRoom."""
    blocks = size_bytes // table.block
    last_usable = blocks - 2 - table.table_blocks
    if any(entry.last > last_usable for entry in table.entries.values()) or last_usable < table.first_usable:
        raise NoRoom("its partitions reach beyond the end of the disk")
    return replace(table, blocks=blocks, last_usable=last_usable)


def added(table: Table, entry: Entry) -> tuple[Table, int]:
    """With one more partition, and its number. Raises NoRoom."""
    number = next((n for n in range(1, table.count + 1) if n not in table.entries), None)
    if number is None:
        raise NoRoom(f"its partition table has {table.count} entries, and all are used")
    if not table.first_usable <= entry.first <= entry.last <= table.last_usable:
        raise NoRoom("the partition lies outside of what the table may use")
    if any(entry.first <= other.last and other.first <= entry.last for other in table.entries.values()):
        raise NoRoom("another partition lies there")
    return replace(table, entries={**table.entries, number: entry}), number


def grown(table: Table, number: int, last: int) -> Table:
    """With that partition up to another last block. Raises NoRoom."""
    entry = table.entries[number]
    others = [other for n, other in table.entries.items() if n != number]
    if last > table.last_usable or any(entry.last < other.first <= last for other in others) or last < entry.last:
        raise NoRoom("the partition cannot grow so far")
    return replace(table, entries={**table.entries, number: replace(entry, last=last)})


def write(disk: Disk, table: Table) -> None:
    """The copy at the disk's end first, so that there is always a whole one. The boot code and a hybrid MBR are kept."""
    array = _array(table)
    end = table.blocks - 1
    blocks = array.ljust(table.table_blocks * table.block, b"\0")
    for mine, other, at in ((end, 1, end - table.table_blocks), (1, end, table.entries_at)):
        disk.put(at * table.block, blocks)
        disk.put(mine * table.block, _header(table, mine, other, at, array).ljust(table.block, b"\0"))
        disk.flush()
    _protect(disk, table)


# ---------------------------------------------------------------- reading


def _read(disk: Disk, at: int) -> Table:
    block = disk.block
    if not 0 < at < disk.size_bytes // block:
        raise BadTable("the disk is too small for one")
    raw = disk.get(at * block, block)
    (signature, revision, size, crc, _, mine, _, first, last, guid, entries_at, count, entry_bytes, entries_crc) = (
        _HEADER.unpack_from(raw)
    )
    if signature != _SIGNATURE or revision >> 16 != 1:
        raise BadTable("there is no GPT header")
    if not _HEADER.size <= size <= block or zlib.crc32(raw[:16] + bytes(4) + raw[20:size]) != crc or mine != at:
        raise BadTable("its GPT header is damaged")
    if entry_bytes < 128 or entry_bytes & (entry_bytes - 1) or not 0 < count * entry_bytes <= _ENTRIES_LIMIT:
        raise BadTable(f"its GPT has {count} entries of {entry_bytes} bytes")
    blocks = disk.size_bytes // block
    length = -(-count * entry_bytes // block)
    if not 2 <= entries_at <= blocks - length or not 2 <= first <= last < blocks:
        raise BadTable("its GPT lies outside of the disk")
    array = disk.get(entries_at * block, length * block)[: count * entry_bytes]
    if zlib.crc32(array) != entries_crc:
        raise BadTable("its partition table is damaged")
    # The first copy lies at block 2 or behind; read from the second one, it is written where it always lies.
    table = Table(guid, blocks, block, first, last, entries_at if at == 1 else 2, count, entry_bytes)
    if table.entries_at + length > first:
        raise BadTable("its first partition may begin inside of the partition table")
    return replace(table, entries=_entries(array, entry_bytes, blocks))


def _entries(array: bytes, entry_bytes: int, blocks: int) -> dict[int, Entry]:
    found = {}
    for number, at in enumerate(range(0, len(array), entry_bytes), 1):
        kind, unique, first, last, attributes, name = _ENTRY.unpack_from(array, at)
        if not any(kind):
            continue
        if not 2 <= first <= last < blocks:
            raise BadTable(f"its partition {number} lies outside of the disk")
        found[number] = Entry(
            uuid.UUID(bytes_le=kind),
            uuid.UUID(bytes_le=unique),
            first,
            last,
            attributes,
            name.decode("utf-16-le", "surrogatepass").rstrip("\0"),
            array[at + _ENTRY.size : at + entry_bytes].rstrip(b"\0"),
        )
    return found


# ---------------------------------------------------------------- writing


def _array(table: Table) -> bytes:
    array = bytearray(table.count * table.entry_bytes)
    for number, entry in table.entries.items():
        raw = _ENTRY.pack(
            entry.kind.bytes_le,
            entry.unique.bytes_le,
            entry.first,
            entry.last,
            entry.attributes,
            entry.name.encode("utf-16-le", "surrogatepass"),
        )
        at = (number - 1) * table.entry_bytes
        array[at : at + table.entry_bytes] = (raw + entry.more).ljust(table.entry_bytes, b"\0")
    return bytes(array)


def _header(table: Table, mine: int, other: int, at: int, array: bytes) -> bytes:
    def packed(crc: int) -> bytes:
        return _HEADER.pack(
            _SIGNATURE, _REVISION, _HEADER.size, crc, 0, mine, other, table.first_usable, table.last_usable,
            table.disk_guid, at, table.count, table.entry_bytes, zlib.crc32(array),
        )  # fmt: skip

    return packed(zlib.crc32(packed(0)))


def _protect(disk: Disk, table: Table) -> None:
    """The protective MBR spans the disk; a hybrid one, with partitions of its own, is left as it is."""
    mbr = bytearray(disk.get(0, disk.block))
    kinds = [mbr[446 + 16 * i + 4] for i in range(4)]
    if sorted(kinds) != [0, 0, 0, _PROTECTIVE]:
        return
    at = 446 + 16 * kinds.index(_PROTECTIVE)
    struct.pack_into("<I", mbr, at + 12, min(table.blocks - struct.unpack_from("<I", mbr, at + 8)[0], _MBR_BLOCKS))
    disk.put(0, bytes(mbr))
    disk.flush()
