"""Give an ISO 9660 image one fixed date wherever it has one, so that the same files make the same image.

pycdlib stamps what it makes with the present time and takes no other. ECMA-119 (8.4.26.1, 9.1.5), and Rock Ridge's TF entry (RRIP 1.12, 4.1.6).
"""

from __future__ import annotations

import struct
from typing import Final

SECTOR: Final = 2048
_RECORDED: Final = bytes((80, 1, 1, 0, 0, 0, 0))  # 1980-01-01, in seven bytes
_VOLUME: Final = b"1980010100000000\0"
_NEVER: Final = b"0" * 16 + b"\0"
_DIRECTORY: Final = 2
_LONG_FORM: Final = 0x80


def fix(image: bytearray) -> None:
    """In place, in the primary and in Joliet's descriptor and all that hangs on them."""
    at = 16 * SECTOR
    while image[at + 1 : at + 6] == b"CD001" and image[at] != 255:
        if image[at] in (1, 2):
            for offset, date in ((813, _VOLUME), (830, _VOLUME), (847, _NEVER), (864, _VOLUME)):
                image[at + offset : at + offset + 17] = date
            root = at + 156
            image[root + 18 : root + 25] = _RECORDED
            _fix_folder(image, *_extent(image, root))
        at += SECTOR


def _extent(image: bytearray, record: int) -> tuple[int, int]:
    block, size = struct.unpack_from("<I4xI", image, record + 2)
    return block * SECTOR, size


def _fix_folder(image: bytearray, start: int, size: int) -> None:
    at, n = start, 0
    while at < start + size:
        length = image[at]
        if length == 0:  # no record crosses a sector
            at += SECTOR - at % SECTOR
            continue
        image[at + 18 : at + 25] = _RECORDED
        name = image[at + 32]
        _fix_times(image, at + 33 + name + (name + 1) % 2, at + length)
        if image[at + 25] & _DIRECTORY and n > 1:  # the first two are itself and its parent
            _fix_folder(image, *_extent(image, at))
        at, n = at + length, n + 1


def _fix_times(image: bytearray, at: int, end: int) -> None:
    """System use entries: two letters, length, version."""
    while at + 4 <= end and image[at + 2] >= 4:
        if image[at : at + 2] == b"TF" and not image[at + 4] & _LONG_FORM:
            for n in range(at + 5, at + image[at + 2], 7):
                image[n : n + 7] = _RECORDED
        at += image[at + 2]
