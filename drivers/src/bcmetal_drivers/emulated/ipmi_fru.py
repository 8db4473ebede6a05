"""FRU images as the "Platform Management FRU Information Storage Definition" lays them out."""

from __future__ import annotations


def fru_image(
    *, maker: str, model: str, part_number: str, serial: str, board_serial: str, asset_tag: str = ""
) -> bytes:
    """Common header, a board area and a product area, all in 8-bit text, English."""
    board = _area(b"\x00" + b"\x00\x00\x00", maker, f"{model} board", board_serial, part_number, "")
    product = _area(b"\x00", maker, model, part_number, "1.0", serial, asset_tag, "")
    header = bytes((1, 0, 0, 1, 1 + len(board) // 8, 0, 0))
    return _sealed(header) + board + product


def _area(prefix: bytes, *fields: str) -> bytes:
    body = prefix + b"".join(_field(text) for text in fields) + b"\xc1"
    size = (len(body) + 3 + 7) // 8 * 8  # version, length and checksum around it, in units of 8 bytes
    return _sealed((bytes((1, size // 8)) + body).ljust(size - 1, b"\x00"))


def _field(text: str) -> bytes:
    raw = text.encode("latin-1", "replace")[:63]
    if len(raw) == 1:
        raw += b" "  # a length of 1 would read as the end of the fields
    return bytes((0xC0 | len(raw),)) + raw if raw else b"\x00"


def _sealed(data: bytes) -> bytes:
    """With the byte that makes the sum zero."""
    return data + bytes((-sum(data) & 0xFF,))
