"""A small ISO 9660 image of one file, made at run time, so that the demonstration needs no download and no ISO tool.

ECMA-119: sixteen empty sectors, a primary volume descriptor, a terminator, both path tables, the root directory, the file.
"""

from __future__ import annotations

import struct
from typing import Final

SECTOR: Final = 2048
PATH_TABLE_L, PATH_TABLE_M, ROOT, FILE = 18, 19, 20, 21
_DATE: Final = bytes((126, 1, 1, 0, 0, 0, 0))  # 2026-01-01, in years since 1900
_LONG_DATE: Final = b"2026010100000000\0"
_NO_DATE: Final = b"0" * 16 + b"\0"


def make_iso(volume: str, content: bytes) -> bytes:
    """An ISO 9660 image, level 1, that holds `content` as README.TXT; `volume` is its label, at most 32 of A-Z 0-9 _."""
    root = _record(b"\0", ROOT, SECTOR, folder=True)
    directory = root + _record(b"\1", ROOT, SECTOR, folder=True) + _record(b"README.TXT;1", FILE, len(content))
    sectors = FILE + max(1, -(-len(content) // SECTOR))
    path_l = b"\1\0" + struct.pack("<IH", ROOT, 1) + b"\0\0"
    path_m = b"\1\0" + struct.pack(">IH", ROOT, 1) + b"\0\0"
    parts = [
        bytes(16 * SECTOR),
        _primary(volume, sectors, len(path_l), root),
        _sector(b"\xffCD001\1"),
        _sector(path_l),
        _sector(path_m),
        _sector(directory),
        content.ljust((sectors - FILE) * SECTOR, b"\0"),
    ]
    return b"".join(parts)


def _sector(data: bytes) -> bytes:
    return data.ljust(SECTOR, b"\0")


def _both(form: str, value: int) -> bytes:
    """A number in both byte orders (ECMA-119 7.2.3 and 7.3.3)."""
    return struct.pack(f"<{form}", value) + struct.pack(f">{form}", value)


def _record(name: bytes, sector: int, length: int, *, folder: bool = False) -> bytes:
    body = b"\0" + _both("I", sector) + _both("I", length) + _DATE + bytes((2 if folder else 0, 0, 0))
    body += _both("H", 1) + bytes((len(name),)) + name
    body += b"\0" * ((len(body) + 1) % 2)
    return bytes((len(body) + 1,)) + body


def _primary(volume: str, sectors: int, path_table_bytes: int, root: bytes) -> bytes:
    text = b"".join(
        (
            b"\1CD001\1\0",
            b" " * 32,
            volume.encode("ascii").ljust(32),
            bytes(8),
            _both("I", sectors),
            bytes(32),
            _both("H", 1),
            _both("H", 1),
            _both("H", SECTOR),
            _both("I", path_table_bytes),
            struct.pack("<II", PATH_TABLE_L, 0),
            struct.pack(">II", PATH_TABLE_M, 0),
            root,
            b" " * (128 * 4 + 37 * 3),
            _LONG_DATE,
            _LONG_DATE,
            _NO_DATE,
            _NO_DATE,
            b"\1\0",
        )
    )
    return _sector(text)
