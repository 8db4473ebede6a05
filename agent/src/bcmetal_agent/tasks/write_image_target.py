"""The disk under an image: written past the page cache by threads that keep it busy, then read back.

What a firmware could boot from, the first and the last MiB of the disk, is emptied first and comes last, when all else is proven: a disk that
is half written, or with an image that nobody vouches for, boots nothing. Zeros are written like all else: that a disk reads as zeros there
after its erase is known of no drive (DLFEAT and LBPRZ are promises that drives have broken), and a hole in an image would show what was
there before.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from bcmetal_agent.tasks.disks import BlockDevice
from bcmetal_agent.tasks.doing import Doing, TaskFailed

BUFFER: Final = 4 * 2**20
EDGE: Final = (
    2**20
)  # holds a GPT of any sector size, a boot loader behind an MBR, and the labels of RAIDs and pools at a disk's end
_BUFFERS: Final = 4
_STEP_S: Final = 0.5


class Target:
    """An open disk, for a `with`. `add` the image in pieces, then `end`, `prove` and `land`, in this order."""

    def __init__(self, fd: int, device: BlockDevice, doing: Doing) -> None:
        self.written = 0  # bytes of the image that are on their way to the disk, or there
        self._fd, self._device, self._doing = fd, device, doing
        self._tail = max(EDGE, (device.size_bytes - EDGE) // 4096 * 4096)
        self._held: dict[int, bytes] = {}
        self._digest = hashlib.sha256()
        self._buffers = [mmap.mmap(-1, BUFFER) for _ in range(_BUFFERS)]
        self._views = [memoryview(buffer) for buffer in self._buffers]
        self._at_work: list[Sequence[Future[None]]] = [()] * _BUFFERS
        self._filling, self._filled = 0, 0
        self._writing = ThreadPoolExecutor(1, "write")
        self._hashing = ThreadPoolExecutor(1, "hash")

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self._writing, self._hashing):
            pool.shutdown(wait=True, cancel_futures=True)
        for view in self._views:
            view.release()
        for buffer in self._buffers:
            buffer.close()

    def clear(self) -> None:
        """Empty what a firmware or a kernel finds systems by, an earlier system's backup GPT too. Raises TaskFailed, as all here."""
        size = self._device.size_bytes
        for start, end in ((0, min(EDGE, size)), (self._tail, size)):
            if end > start:
                self._put(start, bytes(end - start))
        self._flush()

    @property
    def added(self) -> int:
        """Bytes of the image so far."""
        return self.written + self._filled

    def add(self, piece: bytes) -> None:
        with memoryview(piece) as left:
            at = 0
            while at < len(left):
                take = min(len(left) - at, BUFFER - self._filled)
                self._views[self._filling][self._filled : self._filled + take] = left[at : at + take]
                self._filled += take
                at += take
                if self._filled == BUFFER:
                    self._send()

    def end(self) -> str:
        """All of the image was added: it is on the disk but for its edges. Its SHA-256."""
        if self._filled:
            self._send()
        for index in range(_BUFFERS):
            self._settle(index)
        self._flush()
        return self._digest.hexdigest()

    def prove(self) -> Iterator[int]:
        """Read all of it back, past the cache; how far it got. Raises disk-read-back-differs."""
        digest = hashlib.sha256()
        for index, start in enumerate(range(0, self.written, BUFFER)):
            self._settle(index % _BUFFERS)
            length = min(BUFFER, self.written - start)
            self._read(self._views[index % _BUFFERS], start, length)
            self._at_work[index % _BUFFERS] = (
                self._hashing.submit(digest.update, self._views[index % _BUFFERS][:length]),
            )
            yield start + length
        for index in range(_BUFFERS):
            self._settle(index)
        if digest.digest() != self._digest.digest():
            raise self._differs("gives back something else than what was written to it")

    def land(self) -> str:
        """The edges, the first one last; then the whole image is on the disk. The SHA-256 of what the disk gives back."""
        for start in sorted(self._held, reverse=True):
            self._put(start, self._held[start])
            self._flush()
            if bytes(self._back(start, len(self._held[start]))) != self._held[start]:
                self._put(0, bytes(min(EDGE, self._device.size_bytes)))
                raise self._differs(f"gives back something else at byte {start} than what was written to it")
        return self._digest.hexdigest()

    # ------------------------------------------------------------ a buffer's way

    def _send(self) -> None:
        index, length, start = self._filling, self._filled, self.written
        view = self._views[index]
        padded = -(-length // self._device.block_bytes) * self._device.block_bytes
        view[length:padded] = bytes(padded - length)
        end = start + padded
        if start < EDGE:
            self._held[0] = bytes(view[: min(EDGE, padded)])
        if end > self._tail:
            first = max(self._tail, start)
            self._held[first] = bytes(view[first - start : padded])
        body = (max(start, EDGE), min(end, self._tail))
        self._at_work[index] = (
            self._hashing.submit(self._digest.update, view[:length]),
            self._writing.submit(self._write, body[0], view[max(0, body[0] - start) : max(0, body[1] - start)]),
        )
        self.written += length
        self._filling, self._filled = (index + 1) % _BUFFERS, 0
        self._settle(self._filling)

    def _settle(self, index: int) -> None:
        """Wait until that buffer is free."""
        todo, self._at_work[index] = self._at_work[index], ()
        for future in todo:
            while not wait((future,), _STEP_S).done:
                self._doing.check()
            future.result()

    # ------------------------------------------------------------ the disk

    def _write(self, start: int, view: memoryview) -> None:
        at = 0
        try:
            while at < len(view):
                with view[at:] as rest:
                    wrote = os.pwrite(self._fd, rest, start + at)
                if wrote <= 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                at += wrote
        except OSError as e:
            raise self._failed(f"failed when byte {start + at} was written: {e.strerror}") from e

    def _put(self, start: int, data: bytes) -> None:
        with mmap.mmap(-1, len(data)) as aligned, memoryview(aligned) as view:
            view[:] = data
            self._write(start, view)

    def _flush(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as e:
            raise self._failed(f"did not flush its cache: {e.strerror}") from e

    def _read(self, view: memoryview, start: int, length: int) -> None:
        """`length` bytes at `start` into `view`; what was held is still in memory alone, and taken from there."""
        block = self._device.block_bytes
        padded = -(-length // block) * block
        at = 0
        while at < padded:
            try:
                with view[at:padded] as rest:
                    got = os.preadv(self._fd, [rest], start + at)
            except OSError as e:
                raise self._differs(f"cannot be read at byte {start + at}: {e.strerror}") from e
            if got <= 0:
                raise self._differs(f"ends at byte {start + at}")
            at += got
        for first, data in self._held.items():
            begin, end = max(first, start), min(first + len(data), start + padded)
            if begin < end:
                view[begin - start : end - start] = data[begin - first : end - first]

    def _back(self, start: int, length: int) -> bytes:
        with mmap.mmap(-1, length) as aligned:
            try:
                got = os.preadv(self._fd, [aligned], start)
            except OSError as e:
                raise self._differs(f"cannot be read at byte {start}: {e.strerror}") from e
            return aligned[:got]

    def _failed(self, text: str) -> TaskFailed:
        return TaskFailed("disk-write-failed", f"{self._device.name} ({self._device.serial}) {text}")

    def _differs(self, text: str) -> TaskFailed:
        return TaskFailed("disk-read-back-differs", f"{self._device.name} ({self._device.serial}) {text}")
