"""zstd by the system's libzstd: Python's library has it from 3.14 on only, and dpkg itself brings libzstd.so.1 to every Debian.

Its streaming interface (zstd.h, stable since 1.0), which takes no window larger than 128 MiB unless it is told to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Self

OUT: Final = 256 * 1024


class ZstdError(Exception):
    """Damaged data, or there is no libzstd here."""


class _Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("pos", ctypes.c_size_t)]


@cache
def _library() -> Any:
    """Raises ZstdError."""
    try:
        lib = ctypes.CDLL("libzstd.so.1")
    except OSError as error:
        raise ZstdError("zstd is not to be had here: install libzstd1") from error
    lib.ZSTD_createDStream.restype = ctypes.c_void_p
    lib.ZSTD_createDStream.argtypes = ()
    lib.ZSTD_freeDStream.argtypes = (ctypes.c_void_p,)
    lib.ZSTD_freeDStream.restype = ctypes.c_size_t
    lib.ZSTD_decompressStream.argtypes = (ctypes.c_void_p, ctypes.POINTER(_Buffer), ctypes.POINTER(_Buffer))
    lib.ZSTD_decompressStream.restype = ctypes.c_size_t
    lib.ZSTD_isError.argtypes = (ctypes.c_size_t,)
    lib.ZSTD_isError.restype = ctypes.c_uint
    return lib


class Zstd:
    """One stream of frames. To be closed."""

    def __init__(self) -> None:
        self._lib = _library()
        self._stream = self._lib.ZSTD_createDStream()
        if not self._stream:
            raise ZstdError("zstd has no memory")
        self._out = ctypes.create_string_buffer(OUT)
        self.between_frames = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._lib.ZSTD_freeDStream(self._stream)
        self._stream = None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What `data` unpacks to, in pieces of at most 256 KiB."""
        given = _Buffer(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data), 0)
        while True:
            out = _Buffer(ctypes.cast(self._out, ctypes.c_void_p), OUT, 0)
            left = self._lib.ZSTD_decompressStream(self._stream, ctypes.byref(out), ctypes.byref(given))
            if self._lib.ZSTD_isError(left):
                raise ZstdError("the zstd stream is damaged, or needs too much memory")
            self.between_frames = left == 0
            if out.pos:
                yield self._out.raw[: out.pos]
            if given.pos >= given.size and (left == 0 or out.pos < OUT):
                return


def one_block(data: bytes, size: int) -> bytes:
    """The first `size` bytes that `data` unpacks to; what follows in `data` is not looked at. Fewer: it holds no more."""
    found = bytearray()
    with Zstd() as stream:
        for piece in stream.pieces(data):
            found += piece
            if len(found) >= size:
                break
    return bytes(found[:size])
