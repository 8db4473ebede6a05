"""Times at the edge: with their zone outside, microseconds since the epoch inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from bcmetal.decisions import Micros

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> Micros:
    return Micros((moment - EPOCH) // timedelta(microseconds=1))
