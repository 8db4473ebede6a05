"""The daemon's shelf of images: fetched once, checked, kept by checksum, looked at without blocking.

A file's name is its checksum, and what an earlier run of the daemon left is read through before it is believed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Final

from bcmetal.boot.fetch import FetchCancelled, FetchPolicy, ImageSource, fetch, hash_file

AT_ONCE: Final = 4
FAULT_S: Final = 120.0  # who looks again only after that has another try
_NAME: Final = re.compile(r"((?:\.?sha(?:256|512)-[0-9a-f]+)+)\.iso(?:\.part(?:\.json)?)?\Z")
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Ready:
    """On the shelf, its checksum compared. `path` is in the shelf's folder."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Fetching:
    """Under way, or waiting for its turn. A total of None is not known."""

    done_bytes: int
    total_bytes: int | None


@dataclass(slots=True)
class _Flight:
    url: str
    looked_at: float
    waiting: set[tuple[str, str]] = field(default_factory=set)  # who looked, for which address
    done: int = 0
    total: int | None = None
    future: Future[Ready] = field(default_factory=Future)

    def progress(self, done: int, total: int | None) -> None:
        self.done, self.total = done, total


@dataclass(slots=True)
class _Failure:
    error: Exception
    at: float
    waited: set[tuple[str, str]]


class Shelf:
    """`policy` is asked at each start of a fetch, so that a reload counts.

    `idle_s`: a fetch that nobody has looked at for so long is stopped; the next look goes on from its part.
    `spare_s`: `prune` spares what was looked at within that time, whose medium may not be in the store yet.
    """

    def __init__(
        self, folder: Path, policy: Callable[[], FetchPolicy], *, idle_s: float = 900.0, spare_s: float = 900.0
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self._policy = policy
        self._idle_s = idle_s
        self._spare_s = spare_s
        self._lock = Lock()
        self._closing = Event()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="image")
        self._flights: dict[str, _Flight] = {}
        self._ready: dict[str, tuple[Ready, _Stamp]] = {}
        self._looked_at: dict[str, float] = {}
        self._failures: dict[str, _Failure] = {}

    def look(self, source: ImageSource, by: str = "") -> Ready | Fetching:
        """Where the image is; the first look starts its fetch. Never blocks.

        Raises ImageFault once for a failed fetch; the next look starts anew. With `by` (an operation's id) the fault is raised once to
        each of those that waited for that fetch at that address, so that one wrong checksum is not fetched again for every machine.
        """
        key, me, now = _key(source), (by, source.url), time.monotonic()
        with self._lock:
            self._looked_at[key] = now
            self._land(key)
            ready = self._believed(key)
            if ready is not None:
                self._failures.pop(key, None)
                return ready
            failure = self._failures.get(key)
            if failure is not None and me in failure.waited and now - failure.at < FAULT_S:
                failure.waited.discard(me)
                raise failure.error
            flight = self._flights.get(key)
            if flight is None:
                flight = _Flight(source.url, now)
                flight.future = self._threads.submit(self._fly, key, source, self._policy(), flight)
                self._flights[key] = flight
            flight.looked_at = now
            flight.waiting.add(me)
            return Fetching(flight.done, flight.total)

    def prune(self, keep: set[str]) -> None:
        """Delete what nobody needs: it is not under way or just looked at, and neither a checksum nor the file's name is in `keep`."""
        now = time.monotonic()
        with self._lock:
            for key in list(self._flights):
                self._land(key)
            for path, key in self._files():
                known = {f"{key}.iso", *(part.partition("-")[2] for part in key.split("."))}
                if key in self._ready:
                    known.add(self._ready[key][0].sha256)
                looked_at = self._looked_at.get(key)
                if key in self._flights or known & keep or (looked_at is not None and now - looked_at < self._spare_s):
                    continue
                path.unlink(missing_ok=True)
                self._ready.pop(key, None)
                self._looked_at.pop(key, None)
                self._failures.pop(key, None)

    def close(self) -> None:
        """Stop what is under way and wait for it; parts stay for the next start."""
        self._closing.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    # -------------------------------------------------------- under the lock

    def _land(self, key: str) -> None:
        """Take the result of a flight that has ended."""
        flight = self._flights.get(key)
        if flight is None or not flight.future.done():
            return
        del self._flights[key]
        if flight.future.cancelled():
            return
        error = flight.future.exception()
        if error is None:
            ready = flight.future.result()
            with suppress(OSError):
                self._ready[key] = (ready, _stamp(ready.path))
        elif isinstance(error, Exception) and not isinstance(error, FetchCancelled):
            waited = {me for me in flight.waiting if me[1] == flight.url}
            self._failures[key] = _Failure(error, time.monotonic(), waited)

    def _believed(self, key: str) -> Ready | None:
        """What was checked by this process and has not changed since."""
        ready, stamp = self._ready.get(key, (None, None))
        if ready is None:
            return None
        with suppress(OSError):
            if _stamp(ready.path) == stamp:
                return ready
        del self._ready[key]
        return None

    def _files(self) -> Iterator[tuple[Path, str]]:
        for path in sorted(self.folder.iterdir()):
            found = _NAME.match(path.name)
            if found is not None and path.is_file():
                yield path, found[1]

    # -------------------------------------------------------- in a thread

    def _fly(self, key: str, source: ImageSource, policy: FetchPolicy, flight: _Flight) -> Ready:
        def cancelled() -> bool:
            return self._closing.is_set() or time.monotonic() - flight.looked_at > self._idle_s

        path = self.folder / f"{key}.iso"
        found = hash_file(path, source.checksums, flight.progress, cancelled)
        if found is None:
            path.unlink(missing_ok=True)
            found = fetch(source, path, policy, flight.progress, cancelled)
        return Ready(path, found.size, found.sha256)


def _key(source: ImageSource) -> str:
    """Both checksums, where both are named: a file that was checked by one of them alone is not believed for both."""
    return ".".join(f"{name}-{text}" for name, text in source.checksums.items())


def _stamp(path: Path) -> _Stamp:
    seen = path.stat()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
