"""What a driver learned of a BMC is given to the next one that opens it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bcmetal_drivers.capabilities import Bmc, BootDevice, BootOnce, Identifies, Power, Remembers, need
from bcmetal_drivers.registry import open_bmc
from driver_bench import LIMITS, Seat


def opened(seat: Seat, learned: Mapping[str, object]) -> Bmc:
    bmc = open_bmc(seat.address, seat.credential, seat.trust, LIMITS, learned)
    seat.closing.callback(bmc.close)
    return bmc


def test_what_was_learned_is_plain_json_without_the_password_and_is_taken_up_again(seat: Seat) -> None:
    first = opened(seat, {})
    if not isinstance(first, Remembers):
        return
    need(first, Power).power_state()
    need(first, Identifies).bmc_info()
    need(first, BootOnce).boot_once(BootDevice.CD)
    learned = first.learned()
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
    if isinstance(bmc, Remembers):
        assert bmc.learned().get("who") != other["who"]
