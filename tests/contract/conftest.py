"""The drivers that the contract suite runs on. A new driver is one entry of BENCHES."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack
from bcmetal_drivers.ipmi import IpmiBmc
from driver_bench import Bench, Seat
from ipmi_bench import IpmiBench, an_ipmi_bench, driving

SYSTEM = "/redfish/v1/Systems/1$"
REDFISH = {
    "power": ("POST", r"/Actions/ComputerSystem\.Reset$"),
    "boot": ("PATCH", SYSTEM),
    "look": ("GET", SYSTEM),
}
IPMI = {
    "power": ("chassis-control", ".*"),
    "boot": ("set-boot-options", "^(?!parameter-)"),
    "look": ("get-chassis-status", ".*"),
}


def an_ipmi_bmc(rack: Rack) -> EmulatedBmc:
    """One that says no to a name that it does not know; many are silent, which takes seconds to tell."""
    bmc = rack.add_ipmi("bmc")
    bmc.set(unknown_names="refused")
    return bmc


BENCHES = (
    Bench("redfish", lambda rack: rack.add_redfish("bmc"), REDFISH),
    Bench("redfish-basic", lambda rack: rack.add_redfish("bmc", session_service=False), REDFISH),
    Bench("redfish-http", lambda rack: rack.add_redfish("bmc", tls=False), REDFISH),
    Bench("redfish-settings", lambda rack: rack.add_redfish("bmc", boot_settings=True), REDFISH | {"boot": ("PATCH", "/Settings$")}),
    Bench("redfish-etag", lambda rack: rack.add_redfish("bmc", etag=True, etag_form="weak"), REDFISH),
    Bench("redfish-supermicro", lambda rack: rack.add_redfish("bmc", maker="supermicro", cd_name="UsbCd"), REDFISH),
    # in RAKP message 2 the BMC proves itself first, so that the client knows of the wrong password before the BMC could
    Bench("ipmi", an_ipmi_bmc, IPMI, failed_logins=0),
)  # fmt: skip


@pytest.fixture(params=BENCHES, ids=lambda bench: bench.name)
def seat(request: pytest.FixtureRequest) -> Iterator[Seat]:
    """Every driver in turn, on a BMC of its own."""
    bench: Bench = request.param
    with seated(bench) as opened:
        yield opened


@pytest.fixture
def redfish() -> Iterator[Seat]:
    with seated(BENCHES[0]) as opened:
        yield opened


@pytest.fixture
def bench() -> Iterator[IpmiBench]:
    """An IPMI BMC without a rack, for tests of the IPMI driver alone."""
    with an_ipmi_bench() as opened:
        yield opened


@pytest.fixture
def bmc(bench: IpmiBench) -> Iterator[IpmiBmc]:
    """The IPMI driver on `bench`."""
    with driving(bench) as opened:
        yield opened


class seated:  # a context manager that reads like one
    def __init__(self, bench: Bench) -> None:
        self._rack = Rack()
        self._seat = Seat(bench, self._rack, bench.add(self._rack))

    def __enter__(self) -> Seat:
        self._rack.start()
        return self._seat

    def __exit__(self, *_: object) -> None:
        self._seat.closing.close()
        self._rack.stop()
