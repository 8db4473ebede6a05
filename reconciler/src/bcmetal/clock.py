"""The system's time and randomness, behind the two doors that a simulation replaces."""

from __future__ import annotations

import os
import time

from bcmetal.decisions import Micros


class SystemClock:
    """The wall clock in microseconds, and the monotonic clock in seconds."""

    def now(self) -> Micros:
        return Micros(time.time_ns() // 1000)

    def monotonic_s(self) -> float:
        return time.monotonic()


def system_entropy(n: int) -> bytes:
    return os.urandom(n)
