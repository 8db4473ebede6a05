"""What a tenant left at a BMC is put back, on every driver that claims it can; an acknowledgement alone is not believed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bcmetal_drivers.capabilities import Baseline, BaselineMends, TpmClear, need
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.outlets import Outlets
from bcmetal_drivers.emulated.rack import Rule
from bcmetal_drivers.errors import NotAsAsked, Unsupported
from bcmetal_drivers.resources import PowerAction
from driver_bench import Seat

SERVER = "ldap://192.0.2.66"
LISTENER = "https://192.0.2.66/events"


@contextmanager
def planted(seat: Seat) -> Iterator[Outlets]:
    assert isinstance(seat.bmc.front, RedfishFront)
    outlets = seat.bmc.front.outlets
    outlets.directories["LDAP"].enabled = True
    outlets.directories["LDAP"].addresses = [SERVER]
    outlets.subscribe(LISTENER)
    outlets.protocols["IPMI"] = True
    yield outlets


def test_a_planted_directory_subscription_and_protocol_show_in_the_baseline_and_are_put_back(redfish: Seat) -> None:
    bmc = redfish.open()
    before = need(bmc, Baseline).baseline()
    with planted(redfish):
        changed = need(bmc, Baseline).baseline()
        assert changed["directories"] == {"LDAP": {"enabled": True, "addresses": [SERVER]}}
        assert changed["subscriptions"] == [LISTENER]
        assert changed["services"] != before["services"]
        mends = need(bmc, BaselineMends)
        mends.set_directory("LDAP", False, ())
        mends.remove_subscription(LISTENER)
        mends.set_service("IPMI", False)
        after = need(bmc, Baseline).baseline()
        assert {name: after[name] for name in ("services", "subscriptions")} == {
            name: before[name] for name in ("services", "subscriptions")
        }
        assert "'enabled': False" in str(after["directories"])


def test_a_mend_that_is_acknowledged_and_not_done_is_no_success(redfish: Seat) -> None:
    bmc = redfish.open()
    with planted(redfish):
        redfish.rack.rule(Rule(action="ignore"))
        mends = need(bmc, BaselineMends)
        with pytest.raises(NotAsAsked):
            mends.set_directory("LDAP", False, ())
        with pytest.raises(NotAsAsked):
            mends.remove_subscription(LISTENER)
        with pytest.raises(NotAsAsked):
            mends.set_service("IPMI", False)


def test_what_a_bmc_does_not_have_cannot_be_put_back(redfish: Seat) -> None:
    mends = need(redfish.open(), BaselineMends)
    with pytest.raises(Unsupported):
        mends.set_directory("ActiveDirectory", False, ())
    with pytest.raises(Unsupported):
        mends.set_service("RDP", False)


def test_a_tpm_is_cleared_by_the_boot_after_it_was_asked_for(redfish: Seat) -> None:
    bmc, machine = need(redfish.open(), TpmClear), redfish.bmc.machine
    with pytest.raises(Unsupported):
        bmc.clear_tpm()
    machine.board.bios["Tpm2Hierarchy"] = "Enabled"
    bmc.clear_tpm()
    assert (bmc.tpm_clear_waits(), machine.board.tpm_clears) == (True, 0)
    machine.set_power(PowerAction.ON)
    assert (bmc.tpm_clear_waits(), machine.board.tpm_clears) == (False, 1)
