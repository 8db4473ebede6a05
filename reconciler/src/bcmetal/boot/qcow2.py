"""Read a qcow2 image into a raw file, by our own reader: no tool that would follow what the image names.

QEMU's docs/interop/qcow2.txt. The image is hostile: it may name other files as its backing or its data (refused), point anywhere, and
claim any size. Whatever it points at lies within its own file, and the work is bounded by the size that the site allows.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from bcmetal.boot.formats import WrongFormat
from bcmetal.boot.hops import FetchCancelled
from bcmetal.boot.unpack import Broken, Compression, unpacked
from bcmetal.boot.zstd import ZstdError, one_block

SECTOR: Final = 512
L1_BYTES: Final = 32 * 2**20  # as QEMU bounds it
CLUSTERS: Final = 2**24  # 1 TiB in clusters of the usual 64 KiB; each is a turn of a loop here
_HEADER: Final = struct.Struct(">4sIQIIQIIQQIIQ")
_MORE: Final = struct.Struct(">QQQII")  # version 3
_OFFSET: Final = ((1 << 56) - 1) & ~511
_COPIED: Final = 1 << 63
_PACKED: Final = 1 << 62
_ZERO: Final = 1
_DIRTY, _CORRUPT, _EXTERNAL, _COMPRESSION = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class Header:
    version: int
    cluster_bits: int
    size: int  # of the disk, in bytes
    l1_size: int
    l1_offset: int
    zstd: bool

    @property
    def cluster(self) -> int:
        return 1 << self.cluster_bits

    @property
    def l2_entries(self) -> int:
        return self.cluster // 8


@dataclass(frozen=True, slots=True)
class Converted:
    size: int
    sha256: str


class TooLarge(Exception):
    """The disk is larger than the site allows."""


def read_header(head: bytes, file_size: int, limit_bytes: int) -> Header:
    """From the first 112 bytes or more of the file. Raises WrongFormat, TooLarge."""
    if len(head) < _HEADER.size or head[:4] != b"QFI\xfb":
        raise WrongFormat("the image is no qcow2")
    _, version, backing, _, bits, size, crypt, l1_size, l1_offset, *_ = _HEADER.unpack_from(head)
    if version not in (2, 3):
        raise WrongFormat(f"qcow2 of version {version} is not known")
    if backing:
        raise WrongFormat("the image has a backing file: only an image that stands by itself is taken")
    if crypt:
        raise WrongFormat("the image is encrypted")
    if not 9 <= bits <= 21:
        raise WrongFormat("the image's cluster size is none that qcow2 has")
    zstd = _features(head) if version == 3 else False
    if size > limit_bytes:
        raise TooLarge
    if size == 0 or size % SECTOR:
        raise WrongFormat("the image's disk size is not a number of sectors")
    header = Header(version, bits, size, l1_size, l1_offset, zstd)
    if -(-size // header.cluster) > CLUSTERS:
        raise WrongFormat("the image has too many clusters: convert it to clusters of 64 KiB")
    needed = -(-size // (header.cluster * header.l2_entries))
    if l1_size < needed or l1_size * 8 > L1_BYTES:
        raise WrongFormat("the image's first table does not fit its size")
    if l1_offset % header.cluster or l1_offset < header.cluster or l1_offset + l1_size * 8 > file_size:
        raise WrongFormat("the image's first table is not within the image")
    return header


def _features(head: bytes) -> bool:
    """Whether clusters are packed by zstd."""
    if len(head) < 104:
        raise WrongFormat("the image ends within its header")
    incompatible, _, _, _, length = _MORE.unpack_from(head, 72)
    if length < 104 or length % 8:
        raise WrongFormat("the image's header has no valid length")
    if incompatible & _DIRTY:
        raise WrongFormat("the image was not closed properly: `qemu-img check -r all` mends it")
    if incompatible & _CORRUPT:
        raise WrongFormat("the image is marked as damaged")
    if incompatible & _EXTERNAL:
        raise WrongFormat("the image's data lie in another file: only an image that stands by itself is taken")
    if incompatible & ~(_DIRTY | _CORRUPT | _EXTERNAL | _COMPRESSION):
        raise WrongFormat("the image has features that are not known here: convert it without them")
    kind = head[104] if length > 104 and len(head) > 104 else 0
    if kind > 1 or (kind == 1) is not bool(incompatible & _COMPRESSION):
        raise WrongFormat("the image's clusters are packed in a way that is not known")
    return kind == 1


class Qcow2:
    """An image in an open file, read from its begin to its end; its snapshots are not looked at. Raises WrongFormat, TooLarge."""

    def __init__(self, file: BinaryIO, limit_bytes: int) -> None:
        self._fd = file.fileno()
        self._end = os.fstat(self._fd).st_size
        self.header = read_header(os.pread(self._fd, 4096, 0), self._end, limit_bytes)

    def clusters(self) -> Iterator[tuple[int, bytes | None]]:
        """How many bytes, and which; None: that many zeros."""
        h = self.header
        span = h.cluster * h.l2_entries
        left = h.size
        for entry in self._table(h.l1_offset, -(-h.size // span)):
            if entry & ~(_OFFSET | _COPIED):
                raise WrongFormat("the image's first table has bits that mean nothing")
            offset = entry & _OFFSET
            here = min(span, left)
            left -= here
            if offset == 0:
                yield here, None
                continue
            for word in self._table(self._aligned(offset), -(-here // h.cluster)):
                count = min(h.cluster, here)
                here -= count
                data = self._cluster(word)
                yield count, None if data is None else data[:count]

    def _cluster(self, word: int) -> bytes | None:
        h = self.header
        if word & _PACKED:
            return self._packed(word)
        if word & _ZERO and h.version == 3:
            word &= ~_ZERO
            if word & ~(_OFFSET | _COPIED):
                raise WrongFormat("the image's second table has bits that mean nothing")
            return None
        if word & ~(_OFFSET | _COPIED):
            raise WrongFormat("the image's second table has bits that mean nothing")
        offset = word & _OFFSET
        return None if offset == 0 else self._read(self._aligned(offset), h.cluster)

    def _packed(self, word: int) -> bytes:
        h = self.header
        shift = 62 - (h.cluster_bits - 8)
        offset = word & ((1 << shift) - 1)
        sectors = ((word & (_PACKED - 1)) >> shift) + 1
        data = self._read(offset, sectors * SECTOR - (offset % SECTOR), padded=False)
        try:
            # QEMU's own packer has windows of 4 KiB. What follows the stream up to the sector's end belongs to others.
            plain = one_block(data, h.cluster) if h.zstd else zlib.decompressobj(-12).decompress(data, h.cluster)
        except (zlib.error, ZstdError) as error:
            raise WrongFormat("a packed cluster of the image is damaged") from error
        if len(plain) != h.cluster:
            raise WrongFormat("a packed cluster of the image is too short")
        return plain

    def _aligned(self, offset: int) -> int:
        if offset % self.header.cluster:
            raise WrongFormat("the image points to between its clusters")
        return offset

    def _table(self, offset: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{count}Q", self._read(offset, count * 8))

    def _read(self, offset: int, count: int, padded: bool = True) -> bytes:
        """The last cluster of a file may be cut short: its rest is zeros."""
        if not self.header.cluster <= offset < self._end:
            raise WrongFormat("the image points to outside of itself")
        data = os.pread(self._fd, count, offset)
        return data.ljust(count, b"\0") if padded else data


def raw_of(
    path: Path,
    compression: Compression,
    dest: Path,
    limit_bytes: int,
    progress: Callable[[int, int | None], None],
    cancelled: Callable[[], bool],
) -> Converted:
    """As `convert`, of an image that may be compressed as a whole."""
    if compression == "none":
        return convert(path, dest, limit_bytes, progress, cancelled)
    plain = path.with_name(path.name + ".unpacked")
    try:
        _unpack(path, compression, plain, limit_bytes, cancelled)
        return convert(plain, dest, limit_bytes, progress, cancelled)
    finally:
        with suppress(OSError):
            plain.unlink(missing_ok=True)


def _unpack(path: Path, compression: Compression, plain: Path, limit_bytes: int, cancelled: Callable[[], bool]) -> None:
    done = 0
    with path.open("rb") as file, plain.open("wb") as out:
        try:
            for piece in unpacked(file, compression):
                if cancelled():
                    raise FetchCancelled
                done += len(piece)
                if done > limit_bytes:
                    raise TooLarge
                out.write(piece)
        except Broken as error:
            raise WrongFormat(str(error)) from error


def convert(
    source: Path,
    dest: Path,
    limit_bytes: int,
    progress: Callable[[int, int | None], None],
    cancelled: Callable[[], bool],
) -> Converted:
    """Write the image's disk to `dest`, sparse, under its name only when it is whole. Raises WrongFormat, TooLarge, FetchCancelled, OSError."""
    new = dest.with_name(dest.name + ".new")
    try:
        with source.open("rb") as file:
            converted = _write(Qcow2(file, limit_bytes), new, progress, cancelled)
        os.replace(new, dest)
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)
    return converted


def _write(
    image: Qcow2, new: Path, progress: Callable[[int, int | None], None], cancelled: Callable[[], bool]
) -> Converted:
    new.unlink(missing_ok=True)
    size = image.header.size
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb", 2**20) as out:
        out.truncate(size)
        digest = hashlib.sha256()
        zeros = bytes(max(2**20, image.header.cluster))
        done = 0
        for count, data in image.clusters():
            if data is None or data == zeros[:count]:
                _hash_zeros(digest, count, zeros, cancelled)
            else:
                out.seek(done)
                out.write(data)
                digest.update(data)
            done += count
            progress(done, size)
            if cancelled():
                raise FetchCancelled
        out.flush()
        os.fsync(fd)
    return Converted(size, digest.hexdigest())


def _hash_zeros(digest: Any, count: int, zeros: bytes, cancelled: Callable[[], bool]) -> None:
    """A stretch of zeros may be long: up to the whole disk."""
    view = memoryview(zeros)
    while count > 0:
        if cancelled():
            raise FetchCancelled
        digest.update(view[:count])
        count -= len(zeros)
