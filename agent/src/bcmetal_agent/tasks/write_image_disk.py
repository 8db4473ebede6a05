"""A disk's sectors past the page cache: written, flushed and read with O_DIRECT, all failures with the disk's name and the byte."""

from __future__ import annotations

import errno
import mmap
import os

from bcmetal_agent.tasks.disks import BlockDevice
from bcmetal_agent.tasks.doing import TaskFailed


class Sectors:
    """`fd`: of the device, open with O_DIRECT. Offsets and lengths are whole blocks. Raises TaskFailed: disk-write-failed, disk-read-back-differs."""

    def __init__(self, fd: int, device: BlockDevice) -> None:
        self.device = device
        self.block = device.block_bytes
        self.size_bytes = device.size_bytes
        self._fd = fd

    def write(self, start: int, view: memoryview) -> None:
        """From memory that is aligned, as a mmap's is."""
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

    def read(self, start: int, view: memoryview) -> None:
        """Into memory that is aligned, all of it."""
        at = 0
        while at < len(view):
            try:
                with view[at:] as rest:
                    got = os.preadv(self._fd, [rest], start + at)
            except OSError as e:
                raise self.differs(f"cannot be read at byte {start + at}: {e.strerror}") from e
            if got <= 0:
                raise self.differs(f"ends at byte {start + at}")
            at += got

    def put(self, start: int, data: bytes) -> None:
        if data:
            with mmap.mmap(-1, len(data)) as aligned, memoryview(aligned) as view:
                view[:] = data
                self.write(start, view)

    def get(self, start: int, length: int) -> bytes:
        with mmap.mmap(-1, length) as aligned, memoryview(aligned) as view:
            self.read(start, view)
            return bytes(view)

    def flush(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as e:
            raise self._failed(f"did not flush its cache: {e.strerror}") from e

    def differs(self, text: str) -> TaskFailed:
        return TaskFailed("disk-read-back-differs", f"{self.device.name} ({self.device.serial}) {text}")

    def _failed(self, text: str) -> TaskFailed:
        return TaskFailed("disk-write-failed", f"{self.device.name} ({self.device.serial}) {text}")
