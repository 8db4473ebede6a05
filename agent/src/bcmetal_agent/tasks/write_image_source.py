"""The image as it comes over the network: one stream of bytes, whatever happens to the connections that it comes by."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

from bcmetal_agent.tasks.doing import Doing, ImageDoor, TaskFailed

CHUNK: Final = 2**20
_AHEAD: Final = 16  # chunks that may wait for the disk: what a drive's pause for its own housekeeping takes
_STEP_S: Final = 0.5  # how often a stop is looked for


@dataclass(frozen=True, slots=True)
class Patience:
    """`stall_s`: the longest that a chunk may take, so that a trickle counts as none. `tries`: connections in a row that bring next to nothing.
    Between two tries it waits for `first_s`, then twice as long each time, at most `longest_s`."""

    stall_s: float = 60.0
    tries: int = 8
    first_s: float = 1.0
    longest_s: float = 30.0


class Source:
    """The first `size_bytes` of what the door gives. `resumed`: how often it was opened again."""

    def __init__(self, door: ImageDoor, size_bytes: int, doing: Doing, patience: Patience) -> None:
        self.resumed = 0
        self.received = 0
        self._door, self._size, self._doing, self._patience = door, size_bytes, doing, patience

    def chunks(self) -> Generator[bytes, None, None]:
        """Once. Raises TaskFailed: image-stalled, image-truncated; Stopped."""
        in_vain = 0
        while self.received < self._size:
            before = self.received
            try:
                yield from self._by_one_connection()
                code, why = "image-truncated", "it ended there"
            except OSError as e:
                code, why = "image-stalled", str(e) or type(e).__name__
            if self.received >= self._size:
                return
            in_vain = 0 if self.received - before >= CHUNK else in_vain + 1
            said = f"the image stopped at byte {self.received} of {self._size}: {why}"
            self._doing.log(f"{said}\n")
            if in_vain >= self._patience.tries:
                raise TaskFailed(code, f"{said}; {in_vain} tries to go on brought nothing")
            self._wait(min(self._patience.first_s * 2 ** max(0, in_vain - 1), self._patience.longest_s))
            self.resumed += 1

    def _by_one_connection(self) -> Iterator[bytes]:
        line = _Line(self._door, self.received)
        try:
            while self.received < self._size:
                chunk = self._next(line)
                if not chunk:
                    return
                chunk = chunk[: self._size - self.received]
                self.received += len(chunk)
                yield chunk
        finally:
            line.leave()

    def _next(self, line: _Line) -> bytes:
        until = time.monotonic() + self._patience.stall_s
        while True:
            self._doing.check()
            try:
                chunk = line.chunks.get(timeout=_STEP_S)
            except queue.Empty:
                if time.monotonic() > until:
                    raise OSError(f"next to nothing came for {self._patience.stall_s:.0f} s") from None
                continue
            if isinstance(chunk, OSError):
                raise chunk
            return chunk

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        never = threading.Event()
        while (left := until - time.monotonic()) > 0:
            self._doing.check()
            never.wait(min(left, _STEP_S))


class _Line:
    """One connection, read ahead by a thread of its own. One that hangs is left alone: its thread ends when its read does, or with the process."""

    def __init__(self, door: ImageDoor, offset: int) -> None:
        self.chunks: queue.Queue[bytes | OSError] = queue.Queue(_AHEAD)
        self._left = threading.Event()
        threading.Thread(target=self._read, args=(door, offset), name="image", daemon=True).start()

    def leave(self) -> None:
        self._left.set()

    def _read(self, door: ImageDoor, offset: int) -> None:
        try:
            with door(offset) as image:
                while not self._left.is_set():
                    chunk = image.read(CHUNK)
                    self._put(chunk)
                    if not chunk:
                        return
        except OSError as e:
            self._put(e)

    def _put(self, item: bytes | OSError) -> None:
        while not self._left.is_set():
            try:
                return self.chunks.put(item, timeout=_STEP_S)
            except queue.Full:
                continue
        return None
