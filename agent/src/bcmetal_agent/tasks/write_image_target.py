"""The disk under an image: written past the page cache by threads that keep it busy, then read back.

What a firmware could boot from, the first and the last MiB of the disk, is emptied first and comes last, when all else is proven: a disk that
is half written, or with an image that nobody vouches for, boots nothing. Zeros are written like all else: that a disk reads as zeros there
after its erase is known of no drive (DLFEAT and LBPRZ are promises that drives have broken), and a hole in an image would show what was
there before.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from bcmetal_agent.tasks.doing import Doing
from bcmetal_agent.tasks.write_image_disk import Sectors

BUFFER: Final = 4 * 2**20
EDGE: Final = (
    2**20
)  # holds a GPT of any sector size, a boot loader behind an MBR, and the labels of RAIDs and pools at a disk's end
_BUFFERS: Final = 4
_STEP_S: Final = 0.5


class Target:
    """An open disk, for a `with`. `add` the image in pieces, then `end`, `prove` and `land`, in this order."""

    def __init__(self, disk: Sectors, doing: Doing) -> None:
        self.written = 0  # bytes of the image that are on their way to the disk, or there
        self._disk, self._doing = disk, doing
        self._tail = max(EDGE, (disk.size_bytes - EDGE) // 4096 * 4096)
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
        # Not closed by hand: the trace of a failed write still holds slices of them, and the memory goes with the last one.
        self._views.clear()
        self._buffers.clear()

    def clear(self) -> None:
        """Empty what a firmware or a kernel finds systems by, an earlier system's backup GPT too. Raises TaskFailed, as all here."""
        size = self._disk.size_bytes
        for start, end in ((0, min(EDGE, size)), (self._tail, size)):
            if end > start:
                self._disk.put(start, bytes(end - start))
        self._disk.flush()

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
        self._disk.flush()
        return self._digest.hexdigest()

    def prove(self) -> Iterator[int]:
        """Read all of it back, past the cache; how far it got. Raises disk-read-back-differs."""
        digest = hashlib.sha256()
        for index, start in enumerate(range(0, self.written, BUFFER)):
            self._settle(index % _BUFFERS)
            length = min(BUFFER, self.written - start)
            self._back(self._views[index % _BUFFERS], start, length)
            self._at_work[index % _BUFFERS] = (
                self._hashing.submit(digest.update, self._views[index % _BUFFERS][:length]),
            )
            yield start + length
        for index in range(_BUFFERS):
            self._settle(index)
        if digest.digest() != self._digest.digest():
            raise self._disk.differs("gives back something else than what was written to it")

    def land(self) -> str:
        """The edges, the first one last; then the whole image is on the disk. The SHA-256 of what the disk gives back."""
        for start in sorted(self._held, reverse=True):
            self._disk.put(start, self._held[start])
            self._disk.flush()
            if self._disk.get(start, len(self._held[start])) != self._held[start]:
                self._disk.put(0, bytes(min(EDGE, self._disk.size_bytes)))
                raise self._disk.differs(f"gives back something else at byte {start} than what was written to it")
        return self._digest.hexdigest()

    # ------------------------------------------------------------ a buffer's way

    def _send(self) -> None:
        index, length, start = self._filling, self._filled, self.written
        view = self._views[index]
        padded = -(-length // self._disk.block) * self._disk.block
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
            self._writing.submit(self._disk.write, body[0], view[max(0, body[0] - start) : max(0, body[1] - start)]),
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

    def _back(self, view: memoryview, start: int, length: int) -> None:
        """The image at `start` into `view`; what is held is still in memory alone, and taken from there."""
        padded = -(-length // self._disk.block) * self._disk.block
        with view[:padded] as whole:
            self._disk.read(start, whole)
        for first, data in self._held.items():
            begin, end = max(first, start), min(first + len(data), start + padded)
            if begin < end:
                view[begin - start : end - start] = data[begin - first : end - first]
