"""Weak ways into a BMC from its network, on every driver that tells of them."""

from __future__ import annotations

import pytest

from bcmetal_drivers.capabilities import NetworkWays, need, offers
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.ipmi import IpmiFront
from bcmetal_drivers.emulated.rack import Rule
from bcmetal_drivers.errors import NotAsAsked, Unsupported
from driver_bench import Seat

IPMI_SETTING = {"redfish": ("PATCH", "/NetworkProtocol$"), "ipmi": ("set-channel-access", ".*")}


def ways(seat: Seat) -> NetworkWays:
    """With IPMI over LAN switched on."""
    if isinstance(seat.bmc.front, RedfishFront):
        seat.bmc.front.outlets.protocols["IPMI"] = True
    opened = seat.open()
    if not offers(opened, NetworkWays):
        pytest.skip(f"{seat.bench.name} does not claim NetworkWays")
    return need(opened, NetworkWays)


def ipmi_is_on(seat: Seat) -> bool:
    front = seat.bmc.front
    return (
        front.is_on
        if isinstance(front, IpmiFront)
        else isinstance(front, RedfishFront) and front.outlets.protocols["IPMI"]
    )


def test_ipmi_over_lan_is_told_and_closed(seat: Seat) -> None:
    bmc = ways(seat)
    assert {way.name: way.open for way in bmc.network_ways()}["ipmi-over-lan"] is True
    bmc.close_network_way("ipmi-over-lan")
    assert not ipmi_is_on(seat)


def test_a_closing_that_is_acknowledged_and_not_done_is_not_as_asked(seat: Seat) -> None:
    bmc = ways(seat)
    command, path = IPMI_SETTING[seat.bmc.kind]
    seat.bmc.rule(Rule(action="ignore", method=command, path=path))
    with pytest.raises(NotAsAsked):
        bmc.close_network_way("ipmi-over-lan")
    assert ipmi_is_on(seat)


def test_a_way_that_is_not_known_is_unsupported(seat: Seat) -> None:
    with pytest.raises(Unsupported):
        ways(seat).close_network_way("telnet")
    assert seat.effects() == []
