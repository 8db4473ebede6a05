"""What the host does to a drive's sectors itself: plant, read back, discard, overwrite. All of it past the page cache (O_DIRECT)."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import secrets
import struct
from typing import Final

from bcmetal_agent.tasks.disks import BlockDevice, Where, opened
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.erase_ways import CLEAR, NONE, Way, Work
from bcmetal_agent.tasks.look_files import number

SECTOR: Final = 4096
_CHUNK: Final = 8 * 2**20
_DISCARD_STEP: Final = 4 * 2**30
_SAMPLES: Final = 64
_BLKDISCARD: Final = 0x1277  # linux/fs.h
_DIRECT_WRITE: Final = os.O_RDWR | os.O_DIRECT
_REALLOCATED: Final = "reallocated sectors"
_SPARE: Final = "over-provisioned flash"


def ways(device: BlockDevice, where: Where, hidden: tuple[str, ...]) -> tuple[Way, ...]:
    """What the host can do to all but what is hidden from it: nothing to zoned disks, whose zones take no writes out of order."""
    if device.zoned:
        return ()
    left = (_REALLOCATED, *(() if device.rotational else (_SPARE,)), *hidden)
    found = [Way("overwrite", CLEAR, "overwritten with zeros by the host", overwrite, left)]
    if _discards(device, where):
        found.append(Way("discard", NONE, "discarded by the host", discard, left))
    return tuple(found)


def plant(work: Work) -> None:
    """Write the pattern, flush it, and read it back. Raises TaskFailed."""
    with opened(work.again(), _DIRECT_WRITE) as fd, mmap.mmap(-1, SECTOR) as buffer:
        buffer[:] = work.pattern
        for offset in work.sectors:
            work.doing.check()
            _write(fd, memoryview(buffer), offset)
        _flush(fd)
        for offset in work.sectors:
            if _read(fd, offset, SECTOR) != work.pattern:
                raise TaskFailed("erase-failed", f"what was planted at byte {offset} does not come back")


def samples(work: Work) -> tuple[str, ...]:
    """SHA-256 of each sector, or `zero`. Raises TaskFailed with the offset that cannot be read."""
    found = []
    with opened(work.device, os.O_RDONLY | os.O_DIRECT) as fd:
        for offset in work.sectors:
            work.doing.check()
            data = _read(fd, offset, SECTOR)
            found.append("zero" if not any(data) else hashlib.sha256(data).hexdigest())
    return tuple(found)


def discard(work: Work) -> None:
    """Tell the drive that nothing of it is needed, and look whether what was planted is gone from sight."""
    device = work.again()
    with opened(device, _DIRECT_WRITE) as fd:
        work.begun = True
        for start in range(0, device.size_bytes, _DISCARD_STEP):
            work.doing.check()
            length = min(_DISCARD_STEP, device.size_bytes - start)
            try:
                fcntl.ioctl(fd, _BLKDISCARD, struct.pack("=QQ", start, length))
            except OSError as e:
                raise TaskFailed("erase-failed", f"discard failed at byte {start}: {e.strerror}") from e
            work.progress((start + length) / device.size_bytes)
        _flush(fd)
        kept = [offset for offset in work.sectors if work.pattern and _read(fd, offset, SECTOR) == work.pattern]
        if kept:
            raise TaskFailed("erase-failed", f"the drive took the discard and kept the data, at byte {kept[0]} for one")
        zeros = sum(not any(_read(fd, offset, SECTOR)) for offset in _somewhere(device.size_bytes))
        work.record(f"discarded {device.size_bytes} bytes; {zeros} of {_SAMPLES} samples read as zeros")


def overwrite(work: Work) -> None:
    """Zeros over every sector, then samples of it read back."""
    device = work.again()
    size = device.size_bytes
    with opened(device, _DIRECT_WRITE) as fd, mmap.mmap(-1, min(_CHUNK, size)) as zeros:
        work.begun = True
        with memoryview(zeros) as view:
            for start in range(0, size, len(zeros)):
                work.doing.check()
                with view[: min(len(zeros), size - start)] as piece:
                    _write(fd, piece, start)
                work.progress(0.98 * start / size)
        _flush(fd)
        for offset in (*work.sectors, *_somewhere(size)):
            if any(_read(fd, offset, SECTOR)):
                raise TaskFailed("erase-failed", f"zeros were written to byte {offset}, and something else comes back")
    work.record(f"wrote {size} bytes of zeros; {_SAMPLES + len(work.sectors)} samples read as zeros")


# ---------------------------------------------------------------- sectors


def _write(fd: int, data: memoryview, offset: int) -> None:
    """All of it; a failure is narrowed down to its sector."""
    at = 0
    try:
        while at < len(data):
            with data[at:] as rest:
                written = os.pwrite(fd, rest, offset + at)
            if written <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            at += written
    except OSError as e:
        raise TaskFailed(
            "erase-failed", f"writing failed at byte {_first_bad(fd, data, offset, at)}: {e.strerror}"
        ) from e


def _first_bad(fd: int, data: memoryview, offset: int, at: int) -> int:
    for step in range(at, len(data), SECTOR):
        with data[step : step + SECTOR] as piece:
            try:
                os.pwrite(fd, piece, offset + step)
            except OSError:
                return offset + step
    return offset + at


def _read(fd: int, offset: int, size: int) -> bytes:
    with mmap.mmap(-1, size) as buffer:
        try:
            got = os.preadv(fd, [buffer], offset)
        except OSError as e:
            raise TaskFailed("erase-failed", f"reading failed at byte {offset}: {e.strerror}") from e
        if got != size:
            raise TaskFailed("erase-failed", f"the disk ends before byte {offset + size}")
        return bytes(buffer)


def _flush(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as e:
        raise TaskFailed("erase-failed", f"the disk did not flush its cache: {e.strerror}") from e


def _somewhere(size: int) -> list[int]:
    """The first sector, the last whole one, and random ones."""
    count = size // SECTOR
    return [0, (count - 1) * SECTOR, *(secrets.randbelow(count) * SECTOR for _ in range(_SAMPLES - 2))]


def _discards(device: BlockDevice, where: Where) -> bool:
    return bool(number(where.sys / "block" / device.name / "queue/discard_max_bytes"))
