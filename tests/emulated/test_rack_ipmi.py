"""An IPMI BMC on the rack shares its machines, rules, writes and restart with the Redfish ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack, Rule
from bcmetal_drivers.errors import DriverError
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.resources import BootDevice, PowerAction, PowerState

LIMITS = Limits(connect_s=2.0, read_s=2.0, total_s=10.0, ipmi_suites=(17,))


@contextmanager
def driving(bmc: EmulatedBmc, username: str = "") -> Iterator[IpmiBmc]:
    credential = Credential(username or bmc.username, bmc.password)
    driver = IpmiBmc(BmcAddress("ipmi", bmc.host, bmc.port), credential, Trust(), LIMITS)
    try:
        yield driver
    finally:
        driver.close()


def test_one_rack_judges_ipmi_as_it_judges_redfish() -> None:
    rack = Rack()
    bmc = rack.add_ipmi("i1")
    rack.add_redfish("r1")
    with rack, driving(bmc) as driver:
        driver.boot_once(BootDevice.PXE)
        driver.set_power(PowerAction.ON)
        assert driver.power_state() is PowerState.ON
        assert rack.sessions(bmc) == 1
        assert rack.requests(bmc)["chassis-control"] == 1
        effects = [(w.bmc, w.machine, w.method, w.path) for w in rack.writes if w.kind == "effect"]
        assert ("i1", "i1", "chassis-control", "on") in effects
    assert [boot.device for boot in bmc.machine.boots] == ["pxe"]


def test_a_rule_for_every_bmc_concerns_ipmi_too() -> None:
    rack = Rack()
    bmc = rack.add_ipmi("i1")
    with rack, driving(bmc) as driver:
        rule = rack.rule(Rule(action="ignore", method="chassis-control", path="^on$", times=1))
        driver.set_power(PowerAction.ON)
        assert driver.power_state() is PowerState.OFF
        assert rack.fired(rule) == 1


def test_a_lock_out_fires_at_the_failure_that_was_named() -> None:
    """With a name that nobody has: a wrong password is seen by the client first, in RAKP 2, and the BMC never hears of it."""
    rack = Rack()
    bmc = rack.add_ipmi("i1")
    rule = rack.rule(Rule(bmc="i1", action="lock_after", n=2, seconds=60))
    with rack:
        bmc.set(unknown_names="refused")
        for fired in (0, 1):
            with driving(bmc, username="nobody") as driver, pytest.raises(DriverError):
                driver.power_state()
            assert rack.fired(rule) == fired
        assert rack.failed_logins(bmc) == 2


def test_an_ipmi_bmc_outlives_the_rack(tmp_path: Path) -> None:
    rack = Rack(tmp_path)
    bmc = rack.add_ipmi("i1")
    with rack, driving(bmc) as driver:
        driver.set_power(PowerAction.ON)
    again = Rack(tmp_path)
    same = again.bmc("i1")
    assert (same.address, same.password) == (bmc.address, bmc.password)
    with again, driving(same) as driver:
        assert driver.power_state() is PowerState.ON
