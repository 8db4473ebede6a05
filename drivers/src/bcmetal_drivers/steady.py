"""Good reads in a row: a BMC that restarts answers, falls silent and answers something else again before it can be believed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from bcmetal_drivers.errors import Busy

T = TypeVar("T")


def steadily(
    look: Callable[[], T], times: int = 3, apart_s: float = 1.0, sleep: Callable[[float], None] = time.sleep
) -> T:
    """What `look` gives so many times in a row, each the same as the one before.

    Raises what a look raises, and Busy when it changed meanwhile: the caller comes again later. `look` is one method of one BMC, such
    as `bmc.firmware`, each time with its own deadline; all of it lasts `times - 1` pauses longer.
    """
    first = look()
    for _ in range(times - 1):
        sleep(apart_s)
        if look() != first:
            raise Busy("the BMC does not say the same twice in a row yet")
    return first
