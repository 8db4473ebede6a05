"""One Redfish BMC with one machine, on a clock that stands still. A file that wants another rack has a `rack` of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bcmetal_drivers.emulated.rack import EmulatedBmc, Machine, Rack
from rack_client import Client, FakeClock, dialling


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def rack(clock: FakeClock) -> Iterator[Rack]:
    rack = Rack(clock=clock)
    rack.add_redfish("one")
    with rack:
        yield rack


@pytest.fixture
def bmc(rack: Rack) -> EmulatedBmc:
    return rack.bmc("one")


@pytest.fixture
def machine(bmc: EmulatedBmc) -> Machine:
    return bmc.machine


@pytest.fixture
def client(bmc: EmulatedBmc) -> Iterator[Client]:
    with dialling(bmc) as client:
        yield client
