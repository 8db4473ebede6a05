"""Sections of an inventory or a baseline, each with how it came out: what one lacks never costs the others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar

import sushy.exceptions

from bcmetal_drivers.door import STUMBLES, translated
from bcmetal_drivers.errors import DriverError, Transient, Unreachable
from bcmetal_drivers.redfish_reading import IN_VAIN
from bcmetal_drivers.redfish_tree import Tree

T = TypeVar("T")
NO_SECTION_HELPS: Final = (*IN_VAIN, Unreachable)
SOURCES_SHOWN: Final = 6
STATUS_LIMIT: Final = 400


@dataclass(slots=True)
class Sections:
    """`status` of each section: `ok`, `absent`, `partial: …` where some of it is missing, or what was wrong.

    In a reading, `source` tells which collections and documents it came from, and `read_at` when it had been read.
    """

    tree: Tree
    status: dict[str, str] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    read_at: dict[str, str] = field(default_factory=dict)
    passing: DriverError | None = None  # the last failure that may be gone the next time

    def read(self, name: str, fn: Callable[[], T]) -> T | None:
        """None when it could not be read."""
        found: T | None = None
        reading = self.tree.now_reading
        if reading is not None:
            reading.begin()
        try:
            found = fn()
        except NO_SECTION_HELPS:
            raise
        except DriverError as error:
            self._fails(name, error)
        except sushy.exceptions.HTTPError as error:
            ours = translated(error)
            if isinstance(ours, NO_SECTION_HELPS):
                raise ours from error
            self._fails(name, ours)
        except STUMBLES as error:
            self.status[name] = f"the answer is not what the standard says ({type(error).__name__})"
        else:
            self.status[name] = "absent" if is_nothing(found) else "ok"
        self._note(name, is_nothing(found))
        return found

    def collect(self, name: str, found: Iterable[T]) -> tuple[T, ...]:
        """What came before an error stays, and the status says that it is not all."""
        kept: list[T] = []

        def take() -> tuple[T, ...]:
            kept.extend(found)
            return tuple(kept)

        if self.read(name, take) is None and kept:
            self.status[name] = f"partial: {self.status[name]}"[:STATUS_LIMIT]
        return tuple(kept)

    def _fails(self, name: str, error: DriverError) -> None:
        self.status[name] = str(error)
        if isinstance(error, Transient):
            self.passing = error

    def _note(self, name: str, empty: bool) -> None:
        reading = self.tree.now_reading
        if reading is None:
            return
        if reading.failed and self.status[name] in ("ok", "absent"):
            more = f" (and {len(reading.failed) - 1} more)" if len(reading.failed) > 1 else ""
            missing = f"{reading.failed[0][: STATUS_LIMIT - 40]}{more}"
            self.status[name] = missing if empty else f"partial: {missing}"
        if reading.places:
            places = _gathered(list(reading.places))
            more = f" and {len(places) - SOURCES_SHOWN} more" if len(places) > SOURCES_SHOWN else ""
            self.source[name] = ", ".join(places[:SOURCES_SHOWN]) + more
        self.read_at[name] = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")


def _gathered(places: list[str]) -> list[str]:
    """Members of one collection are told as `…/Drives/*`."""
    parents = Counter(path.rpartition("/")[0] for path in places)
    told = (path if parents[parent] == 1 else f"{parent}/*" for path in places if (parent := path.rpartition("/")[0]))
    return list(dict.fromkeys(told))


def is_nothing(found: object) -> bool:
    return found in (None, (), [], {}, ((), ()))
