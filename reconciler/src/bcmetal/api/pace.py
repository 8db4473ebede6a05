"""How many calls one address (or one node) may make, and how often one event is told: bounded memory, nothing stored."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import RateLimited

KEPT: Final = 4096


class Buckets:
    """At most `burst` calls at once and `each_s` of them a second, for each caller."""

    def __init__(self, burst: int, each_s: float) -> None:
        self._burst = burst
        self._each_s = each_s
        self._left: OrderedDict[str, tuple[Micros, float]] = OrderedDict()

    def take(self, caller: str, now: Micros) -> None:
        """Raises RateLimited, with the time after which there is room again."""
        at, left = self._left.pop(caller, (now, float(self._burst)))
        left = min(self._burst, left + max(0, now - at) / SECOND * self._each_s)
        allowed = left >= 1
        self._left[caller] = (now, left - 1 if allowed else left)
        while len(self._left) > KEPT:
            self._left.popitem(last=False)
        if not allowed:
            wait = max(1, round((1 - left) / self._each_s))
            raise RateLimited("too many calls", retryAfterS=wait)


class Seldom:
    """Lets one of a kind through in `every_s`."""

    def __init__(self, every_s: int) -> None:
        self._every_us = every_s * SECOND
        self._last: OrderedDict[Hashable, Micros] = OrderedDict()

    def now(self, kind: Hashable, now: Micros) -> bool:
        """Whether it may be told now; then not again before its time."""
        last = self._last.get(kind)
        if last is not None and 0 <= now - last < self._every_us:
            return False
        self._last[kind] = now
        self._last.move_to_end(kind)
        while len(self._last) > KEPT:
            self._last.popitem(last=False)
        return True
