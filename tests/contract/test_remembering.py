"""What a driver learned of a BMC is given to the next one that opens it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from bcmetal_drivers.capabilities import Bmc, BootOnce, Identifies, Power, Remembers, need
from bcmetal_drivers.errors import InsecureTransport
from bcmetal_drivers.ipmi_door import IpmiDoor
from bcmetal_drivers.registry import open_bmc
from bcmetal_drivers.resources import BootDevice
from contract.conftest import IPMI, an_ipmi_bmc, seated
from driver_bench import LIMITS, Bench, Seat


def opened(seat: Seat, learned: Mapping[str, object]) -> Bmc:
    bmc = open_bmc(seat.address, seat.credential, seat.trust, LIMITS, learned)
    seat.closing.callback(bmc.close)
    return bmc


def test_what_was_learned_is_plain_json_without_the_password_and_is_taken_up_again(seat: Seat) -> None:
    first = opened(seat, {})
    need(first, Power).power_state()
    need(first, Identifies).bmc_info()
    need(first, BootOnce).boot_once(BootDevice.CD)
    learned = need(first, Remembers).learned()
    assert learned
    assert json.loads(json.dumps(learned)) == learned
    assert seat.bmc.password.get_secret_value() not in json.dumps(learned)
    first.close()
    second = opened(seat, learned)
    need(second, BootOnce).boot_once(BootDevice.PXE)
    assert need(second, Remembers).learned() == learned


def test_what_makes_no_sense_is_as_if_nothing_was_learned(seat: Seat) -> None:
    nonsense = {"login": 7, "sessions": "http://elsewhere/", "etag": {}, "media": [1], "systems": "x", "ipmiSuite": 0}
    bmc = opened(seat, nonsense)
    need(bmc, Power).power_state()
    need(bmc, BootOnce).boot_once(BootDevice.CD)


def test_what_was_learned_of_a_bmc_that_was_swapped_does_no_harm(seat: Seat) -> None:
    """Another maker's, which logs in by Basic at most and opens sessions elsewhere."""
    other = {
        "who": {"maker": "Fabrikam", "firmware": "0.1"},
        "login": "session",
        "sessions": "/redfish/v1/Elsewhere/Sessions",
        "etag": "any",
        "media": {"TransferMethod": "Upload"},
        "systems": {"/redfish/v1/Systems/9": "aa"},
        "keepAlive": False,
        "ipmiSuite": 3,
    }
    bmc = opened(seat, other)
    need(bmc, Identifies).bmc_info()
    need(bmc, BootOnce).boot_once(BootDevice.CD)
    assert need(bmc, Remembers).learned()["who"] != other["who"]


def test_the_cipher_suite_that_worked_is_proposed_first_where_it_is_allowed_at_all() -> None:
    with seated(Bench("ipmi", an_ipmi_bmc, IPMI)) as seat:
        seat.bmc.set(suites=(3,))
        first = opened(seat, {})
        need(first, Power).power_state()
        learned = need(first, Remembers).learned()
        assert learned["ipmiSuite"] == 3
        second = IpmiDoor(seat.address, seat.credential, LIMITS, dict(learned))
        assert second.limits_of_a_login().ipmi_suites == (3, 17)
        strict = replace(LIMITS, ipmi_suites=(17,))
        with pytest.raises(InsecureTransport):
            need(open_bmc(seat.address, seat.credential, seat.trust, strict, learned), Power).power_state()
