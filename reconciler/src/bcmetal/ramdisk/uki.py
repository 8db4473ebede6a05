"""A unified kernel image: sections added to systemd's EFI stub (systemd-stub(7); PE/COFF specification, section headers).

In pure Python, since it is little: no objcopy, and the same input always gives the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

_HEADER: Final = struct.Struct("<8sIIIIIIHHI")
_READ_DATA: Final = 0x40000040  # initialised data, readable
_CERTIFICATES: Final = 4  # the data directory of a signature, which no longer fits what is signed


def unified(stub: bytes, *, kernel: bytes, initrd: bytes, command_line: str, os_release: str, version: str) -> bytes:
    """The image. ValueError for a stub that is none."""
    return with_sections(
        stub,
        (
            (b".osrel", os_release.encode()),
            (b".cmdline", command_line.encode()),
            (b".uname", version.encode()),
            (b".linux", kernel),
            (b".initrd", initrd),
        ),
    )


def with_sections(pe: bytes, sections: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The PE32+ file with these sections behind its own, each at the next free address."""
    if len(pe) < 0x40 or pe[:2] != b"MZ":
        raise ValueError("no PE file")
    (at,) = struct.unpack_from("<I", pe, 0x3C)
    if pe[at : at + 4] != b"PE\0\0" or len(pe) < at + 264:
        raise ValueError("no PE file")
    count, optional_size = struct.unpack_from("<H12xH", pe, at + 6)
    optional = at + 24
    if struct.unpack_from("<H", pe, optional)[0] != 0x20B:
        raise ValueError("no PE32+ file")
    section_align, file_align = struct.unpack_from("<II", pe, optional + 32)
    (headers_size,) = struct.unpack_from("<I", pe, optional + 60)
    table = optional + optional_size
    end = table + _HEADER.size * (count + len(sections))
    first_data = min(_HEADER.unpack_from(pe, table + _HEADER.size * i)[4] for i in range(count))
    if end > min(headers_size, first_data):
        raise ValueError("the stub has no room for more sections")
    address = max(_end(pe, table + _HEADER.size * i) for i in range(count))
    head = bytearray(pe[:first_data])
    body = [pe[first_data:] + bytes(-len(pe) % file_align)]
    offset = len(pe) + -len(pe) % file_align
    added = 0
    for number, (name, data) in enumerate(sections):
        address += -address % section_align
        raw = len(data) + -len(data) % file_align
        fields = (name.ljust(8, b"\0"), len(data), address, raw, offset, 0, 0, 0, 0, _READ_DATA)
        _HEADER.pack_into(head, table + _HEADER.size * (count + number), *fields)
        body.append(data + bytes(raw - len(data)))
        offset, address, added = offset + raw, address + len(data), added + raw
    struct.pack_into("<H", head, at + 6, count + len(sections))
    (initialised,) = struct.unpack_from("<I", head, optional + 8)
    struct.pack_into("<I", head, optional + 8, initialised + added)
    struct.pack_into("<I", head, optional + 56, address + -address % section_align)
    struct.pack_into("<I", head, optional + 64, 0)  # the checksum: EFI does not look at it
    struct.pack_into("<II", head, optional + 112 + 8 * _CERTIFICATES, 0, 0)
    return bytes(head) + b"".join(body)


def _end(pe: bytes, header: int) -> int:
    _, size, address, *_ = _HEADER.unpack_from(pe, header)
    return int(address + size)
