"""A driver that does not claim a capability is passed over, and said to be."""

from __future__ import annotations

from typing import TypeVar

import pytest

from bcmetal_drivers.capabilities import need, offers
from driver_bench import Seat

C = TypeVar("C")


def claimed(seat: Seat, capability: type[C]) -> C:
    opened = seat.open()
    if not offers(opened, capability):
        pytest.skip(f"{seat.bench.name} does not claim {capability.__name__}")
    return need(opened, capability)
