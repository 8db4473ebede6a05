"""How long to wait before the next call, and by which clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

FIRST_S: Final = 1.0
LONGEST_S: Final = 300.0
LONGEST_ASKED_S: Final = 3600.0  # a server may ask for more; nobody has to sleep for years


class Clock(Protocol):
    """Where all time comes from; the tests have one that does not wait."""

    def now(self) -> datetime:
        """UTC."""

    def monotonic(self) -> float:
        """Seconds that no clock step touches."""

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass
class Pace:
    """Exponential backoff with full jitter; what the server asks for is kept to, with jitter only on top.

    `random` gives numbers from 0 up to 1. A rack that boots at once must not call at once.
    """

    random: Callable[[], float]
    first_s: float = FIRST_S
    longest_s: float = LONGEST_S
    failures: int = 0

    def after(self, asked_s: float | None) -> float:
        """Seconds until the next call. `asked_s`: as the server asked; None: a failure, and longer with each."""
        if asked_s is not None:
            self.failures = 0
            asked = min(max(asked_s, self.first_s), LONGEST_ASKED_S)
            return asked + self.random() * min(asked / 4, 30.0)
        ceiling = min(self.longest_s, self.first_s * float(1 << min(self.failures, 30)))
        self.failures += 1
        return self.random() * ceiling

    def reset(self) -> None:
        self.failures = 0
