"""The daemon's shelf of images: fetched once, checked, kept by checksum, looked at without blocking.

A file's name is its checksum and its format, behind the tenant whose image it is; a public one has none. What an earlier run of the daemon
left is read through before it is believed. Beside a qcow2 image lies the raw one that was made of it: agents write that.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Final, Literal

from bcmetal.boot.fetch import FetchCancelled, FetchPolicy, ImageFault, ImageSource, fetch, hash_file, not_kept
from bcmetal.boot.formats import Format, WrongFormat, check_format
from bcmetal.boot.qcow2 import TooLarge, raw_of
from bcmetal.boot.unpack import Compression

AT_ONCE: Final = 4
FAULT_S: Final = 120.0  # who looks again only after that has another try
_KINDS: Final[tuple[Format, ...]] = ("qcow2", "raw", "firmware")
RAW_TIMES: Final = 4  # a compressed or sparse image may become so many times larger than what may be fetched
_NAME: Final = re.compile(
    r"((?:tenant-[0-9a-f]{24}\.)?(?:\.?sha(?:256|512)-[0-9a-f]+)+\.(?:iso|raw|qcow2|firmware))"
    r"(?:\.part|\.part\.json|\.unpacked|\.raw|\.raw\.new)?\Z"
)
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Ready:
    """On the shelf, its checksum compared. `path` is in the shelf's folder; `size` and `sha256` are that file's.

    `raw_bytes`: what it unpacks to; None: it is compressed, and nobody knows before it is unpacked.
    """

    path: Path
    size: int
    sha256: str
    compression: Compression = "none"
    raw_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Fetching:
    """Under way, or waiting for its turn. A total of None is not known."""

    done_bytes: int
    total_bytes: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One image of the shelf. `owner`: see `owner_of`. `state`: ready, or kept from an earlier run or fetch and not looked at since."""

    name: str
    checksums: Mapping[str, str]
    format: Format
    owner: str | None
    state: Literal["ready", "fetching", "kept"]
    on_disk_bytes: int
    done_bytes: int | None
    total_bytes: int | None
    ready: Ready | None


@dataclass(frozen=True, slots=True)
class Pruned:
    name: str
    on_disk_bytes: int


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
        key, me, now = key_of(source), (by, source.url), time.monotonic()
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

    def knows(self, source: ImageSource) -> bool:
        """Whether a look begins nothing: it is there, checked, or under way. Raises ImageFault for a checksum that is none."""
        key = key_of(source)
        with self._lock:
            self._land(key)
            return key in self._flights or self._believed(key) is not None

    def entries(self) -> list[Entry]:
        """What is there and what is under way, by name."""
        with self._lock:
            for key in list(self._flights):
                self._land(key)
            found: dict[str, list[Path]] = {key: [] for key in self._flights}
            for path, key in self._files():
                found.setdefault(key, []).append(path)
            return [self._entry(key, paths) for key, paths in sorted(found.items())]

    def prune(self, keep: set[str], only: Callable[[str], bool] = lambda key: True) -> list[Pruned]:
        """Delete what nobody needs: it is not under way or just looked at, and neither a checksum nor a file's name is in `keep`.

        `only`: whether an entry, by its name, may be deleted at all.
        """
        now = time.monotonic()
        pruned: list[Pruned] = []
        gone: set[str] = set()
        with self._lock:
            for key in list(self._flights):
                self._land(key)
            for path, key in self._files():
                looked_at = self._looked_at.get(key)
                if key in self._flights or self._names(key) & keep or not only(key):
                    continue
                if looked_at is not None and now - looked_at < self._spare_s:
                    continue
                pruned.append(Pruned(path.name, _on_disk(path)))
                path.unlink(missing_ok=True)
                gone.add(key)
            for key in gone:
                self._ready.pop(key, None)
                self._looked_at.pop(key, None)
                self._failures.pop(key, None)
        return pruned

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

    def _names(self, key: str) -> set[str]:
        """Whatever an entry may be known by: its files' names and their checksums."""
        known = {key, _raw_name(key), *_checksums(key).values()}
        if key in self._ready:
            known.add(self._ready[key][0].sha256)
        return known

    def _entry(self, key: str, paths: Sequence[Path]) -> Entry:
        ready = self._ready[key][0] if key in self._ready else None
        flight = self._flights.get(key)
        return Entry(
            name=key,
            checksums=_checksums(key),
            format=_format(key),
            owner=owner_of(key),
            state="ready" if ready is not None else "fetching" if flight is not None else "kept",
            on_disk_bytes=sum(_on_disk(path) for path in paths),
            done_bytes=flight.done if flight is not None else None,
            total_bytes=flight.total if flight is not None else None,
            ready=ready,
        )

    def _files(self) -> Iterator[tuple[Path, str]]:
        for path in sorted(self.folder.iterdir()):
            found = _NAME.match(path.name)
            if found is not None and path.is_file():
                yield path, found[1]

    # -------------------------------------------------------- in a thread

    def _fly(self, key: str, source: ImageSource, policy: FetchPolicy, flight: _Flight) -> Ready:
        def cancelled() -> bool:
            return self._closing.is_set() or time.monotonic() - flight.looked_at > self._idle_s

        path = self.folder / key
        found = hash_file(path, source.checksums, flight.progress, cancelled)
        if found is None:
            path.unlink(missing_ok=True)
            found = fetch(source, path, policy, flight.progress, cancelled)
        limit = policy.limit_bytes * RAW_TIMES
        try:
            compression = check_format(path, source.format)
            if source.format != "qcow2":
                return Ready(path, found.size, found.sha256, compression, found.size if compression == "none" else None)
            raw = raw_of(path, compression, self.folder / _raw_name(key), limit, flight.progress, cancelled)
        except WrongFormat as error:
            raise ImageFault("image-format", str(error)) from error
        except TooLarge as error:
            raise ImageFault("image-too-large", f"the image's disk is larger than {limit} bytes") from error
        except OSError as error:
            raise not_kept(error) from error
        return Ready(self.folder / _raw_name(key), raw.size, raw.sha256, "none", raw.size)


def key_of(source: ImageSource) -> str:
    """Both checksums, where both are named: a file that was checked by one of them alone is not believed for both.

    And the format: what is right as the one is refused as the other.
    """
    names = [f"{name}-{text}" for name, text in source.checksums.items()]
    return ".".join((*([owner_tag(source.tenant)] if source.tenant is not None else ()), *names, source.format))


def owner_tag(tenant: str) -> str:
    """A tenant's id may hold what no file's name does."""
    return f"tenant-{hashlib.sha256(tenant.encode()).hexdigest()[:24]}"


def owner_of(key: str) -> str | None:
    """The tag of the tenant whose image it is; None: it is public."""
    first = key.partition(".")[0]
    return first if first.startswith("tenant-") else None


def _checksums(key: str) -> dict[str, str]:
    words = (part.partition("-") for part in key.split("."))
    return {name: text for name, _, text in words if name in ("sha256", "sha512")}


def _format(key: str) -> Format:
    last = key.rpartition(".")[2]
    return next((kind for kind in _KINDS if kind == last), "iso")


def _raw_name(key: str) -> str:
    return f"{key}.raw"


def _on_disk(path: Path) -> int:
    """Sparse files take less than their size."""
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0


def _stamp(path: Path) -> _Stamp:
    seen = path.stat()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
