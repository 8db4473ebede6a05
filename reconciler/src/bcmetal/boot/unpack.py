"""Unpack a gzip, xz or zstd stream piece by piece, in bounded memory, however it was made."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, Literal

from bcmetal.boot.zstd import Zstd, ZstdError

Compression = Literal["none", "gzip", "xz", "zstd"]

CHUNK: Final = 256 * 1024
XZ_MEMORY: Final = 512 * 2**20  # `xz -9` needs 65 MiB, and a hostile stream may ask for 4 GiB


class Broken(Exception):
    """The stream is damaged, ends too early, or needs more memory than it may have."""


def unpacked(file: BinaryIO, compression: Compression, size: int = CHUNK) -> Iterator[bytes]:
    """Pieces of `size` bytes, the last one shorter; none is empty. Raises Broken."""
    pieces = _PIECES[compression](file, size)
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)


def _plain(file: BinaryIO, size: int) -> Iterator[bytes]:
    yield from iter(lambda: file.read(size), b"")


def _gzip(file: BinaryIO, size: int) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as stream:
            yield from iter(lambda: stream.read(size), b"")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Broken("the image's gzip stream is damaged") from error


def _xz(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Streams one after the other, as `xz` takes them: padded to four bytes by zeros."""
    held = b""
    begun = False
    while True:
        held = _skip_padding(file, held)
        if not held:
            break
        begun = True
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
        while not stream.eof:
            if stream.needs_input and not held:
                held = file.read(CHUNK)
                if not held:
                    raise Broken("the image's xz stream ends too early")
            try:
                piece = stream.decompress(held, size)
            except (lzma.LZMAError, MemoryError) as error:
                raise Broken("the image's xz stream is damaged, or needs too much memory") from error
            held = b""
            if piece:
                yield piece
        held = stream.unused_data
    if not begun:
        raise Broken("the image's xz stream is empty")


def _skip_padding(file: BinaryIO, held: bytes) -> bytes:
    while True:
        held = held.lstrip(b"\0")
        if held:
            return held
        held = file.read(CHUNK)
        if not held:
            return b""


def _zstd(file: BinaryIO, size: int) -> Iterator[bytes]:
    try:
        with Zstd() as stream:
            for data in _plain(file, CHUNK):
                yield from stream.pieces(data)
            if not stream.between_frames:
                raise Broken("the image's zstd stream ends too early")
    except ZstdError as error:
        raise Broken(str(error)) from error


_PIECES: Final = {"none": _plain, "gzip": _gzip, "xz": _xz, "zstd": _zstd}
