"""ELF files small enough to write by hand (System V ABI, AMD64): a kernel module's `.modinfo`, a program's needed libraries."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def a_module(*fields: str) -> bytes:
    info = b"".join(field.encode() + b"\0" for field in fields)
    names = b"\0.modinfo\0.shstrtab\0"
    sections_at = 64 + len(info) + len(names)
    head = _head(phoff=0, phnum=0, shoff=sections_at, shnum=3, shstrndx=2)
    table = bytes(64) + _section(1, 64, len(info)) + _section(10, 64 + len(info), len(names))
    return head + info + names + table


def a_program(needs: Sequence[str]) -> bytes:
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in needs)
    dynamic_at = 64 + 2 * 56
    size = 16 * (len(needs) + 3)
    strings_at = dynamic_at + size
    tags = [(1, strings.index(name.encode() + b"\0")) for name in needs]
    tags += [(5, 0x400000 + strings_at), (10, len(strings)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in tags)
    whole = strings_at + len(strings)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, whole, whole, 4096)
    heads = load + struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, 0x400000 + dynamic_at, 0, size, size, 8)
    return _head(phoff=64, phnum=2, shoff=0, shnum=0, shstrndx=0) + heads + dynamic + strings


def _head(*, phoff: int, phnum: int, shoff: int, shnum: int, shstrndx: int) -> bytes:
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    return ident + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, phoff, shoff, 0, 64, 56, phnum, 64, shnum, shstrndx)


def _section(name: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size, 0, 0, 1, 0)
