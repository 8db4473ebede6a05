"""The breaker of each BMC: whether it answered the last time, and how long it is left alone when it did not.

One that failed is in the slow lane from its first failure on, and until it answers; only the time between tries grows.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import LAST_ERRORS
from bcmetal.line import BoundLine
from bcmetal.store.values import Fact, SetBmc, SetCondition, Work

AWAY_AFTER: Final = 3  # failures in a row, until it is said to be away
FIRST_S: Final = 15
LAST_S: Final = 300
SPREAD: Final = 0.2
DOUBT: Final = 0.2  # of the first wait, while it is not sure that the BMC is away


def reach_facts(work: Work, line: object, now: Micros) -> list[Fact]:
    """What the calls say of the BMC: whether it can be reached (the breaker, and its condition), and what was learned of it."""
    bmc = work.node.bmc
    if bmc is None or not isinstance(line, BoundLine) or line.reached is None:
        return []
    found: list[Fact] = [SetBmc({"learned": dict(line.learned)})] if line.learned is not None else []
    if line.reached:
        # Always, for another node behind the same BMC may have closed its breaker already; clearing what is not there changes nothing.
        answers = SetCondition("reachable", "ok", "info", "", "")
        if bmc.breaker_failures == 0:
            return [*found, answers]
        closed = SetBmc({"breaker_failures": 0, "breaker_since_at": None, "breaker_until_at": None})
        return [*found, closed, answers]
    failures = bmc.breaker_failures + 1
    columns: dict[str, object] = {
        "breaker_failures": failures,
        "breaker_since_at": bmc.breaker_since_at or now,
        "breaker_until_at": Micros(now + int(wait_s(bmc.bmc_id, failures) * SECOND)),
    }
    if failures >= AWAY_AFTER:
        message = LAST_ERRORS["bmc-unreachable"].meaning
        found.append(SetCondition("reachable", "error", "error", "bmc-unreachable", message))
        unknown = "the BMC cannot be reached: whether it still takes the password is not known"
        found.append(SetCondition("credentials", "warning", "warning", "unreachable", unknown, weak=True))
    return [SetBmc(columns), *found]


def wait_s(bmc_id: str, failures: int) -> float:
    """How long a BMC is left alone after so many failures in a row: twice as long each time, and not the same for those that went together."""
    whole_s = min(LAST_S, FIRST_S * 2.0 ** min(max(0, failures - AWAY_AFTER), 10))
    spread = crc32(f"{bmc_id} {failures}".encode()) / 2**32  # 0 to 1, of its own for each BMC and turn
    return whole_s * (1 + SPREAD * (2 * spread - 1)) * (DOUBT if failures < AWAY_AFTER else 1)
