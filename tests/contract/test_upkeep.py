"""The BMC itself: its light, restart, clock, network, ways to the console, and the ways that its host has into it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bcmetal_drivers.capabilities import BmcClock, BmcNetwork, BmcReset, Console, HostWays, Indicator, Power, need
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.rack import Rule
from bcmetal_drivers.errors import DriverError, NotAsAsked, Refused, Transient, Unsupported
from bcmetal_drivers.resources import PowerState
from claims import claimed
from driver_bench import Seat

INTERFACE = "HostInterfaces/1$"


def front(seat: Seat) -> RedfishFront:
    assert isinstance(seat.bmc.front, RedfishFront)
    return seat.bmc.front


# ---------------------------------------------------------------- the light


def test_the_light_goes_on_and_off(seat: Seat) -> None:
    bmc = claimed(seat, Indicator)
    for on in (True, True, False):
        bmc.identify(on)
        assert seat.bmc.machine.identify is on
        assert bmc.identified() in (on, None)


@pytest.mark.parametrize("light", ["active", "led", "lit"])
def test_each_form_of_light_is_switched_and_read_back(redfish: Seat, light: str) -> None:
    redfish.bmc.set(light=light)
    bmc = need(redfish.open(), Indicator)
    for on in (True, False, True):
        bmc.identify(on)
        assert (redfish.bmc.machine.identify, bmc.identified()) == (on, on)


def test_a_light_that_stays_as_it_was_is_not_as_asked(redfish: Seat) -> None:
    redfish.rack.rule(Rule(action="ignore", method="PATCH"))
    with pytest.raises(NotAsAsked):
        need(redfish.open(), Indicator).identify(True)


def test_a_system_without_a_light_has_none(redfish: Seat) -> None:
    redfish.bmc.set(light="none")
    bmc = need(redfish.open(), Indicator)
    assert bmc.identified() is None
    with pytest.raises(Unsupported):
        bmc.identify(True)


# ---------------------------------------------------------------- its restart


def test_a_bmc_that_restarted_answers_again_and_the_machine_goes_on(seat: Seat) -> None:
    bmc = claimed(seat, BmcReset)
    before = len(seat.effects())
    bmc.reset_bmc()
    assert len(seat.effects()) == before + 1
    assert need(seat.open(), Power).power_state() is PowerState.OFF
    assert seat.bmc.machine.boots == []


@pytest.mark.parametrize(("without", "hard"), [("GracefulRestart", False), ("ForceRestart", True)])
def test_a_bmc_with_one_kind_of_restart_does_that_one(redfish: Seat, without: str, hard: bool) -> None:
    redfish.bmc.set(without_bmc_resets=(without,))
    need(redfish.open(), BmcReset).reset_bmc(hard)
    assert front(redfish).upkeep.resets == 1


def test_a_bmc_that_is_away_after_its_restart_is_transient(redfish: Seat) -> None:
    redfish.bmc.set(bmc_reset_s=600.0)
    bmc = redfish.open()
    need(bmc, BmcReset).reset_bmc()
    with pytest.raises(Transient):
        need(bmc, Power).power_state()


def test_a_bmc_that_offers_no_restart_is_unsupported(redfish: Seat) -> None:
    redfish.bmc.set(without_bmc_resets=("GracefulRestart", "ForceRestart"))
    with pytest.raises(Unsupported):
        need(redfish.open(), BmcReset).reset_bmc()


# ---------------------------------------------------------------- its clock


def test_the_clock_is_set_and_read_back(seat: Seat) -> None:
    bmc = claimed(seat, BmcClock)
    wanted = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    bmc.set_bmc_clock(wanted)
    shown = bmc.bmc_clock()
    assert shown is not None
    assert abs(datetime.fromisoformat(shown) - wanted) < timedelta(seconds=60)


@pytest.mark.parametrize(
    ("written", "offset", "meant"),
    [
        ("2031-05-06T07:08:09Z", "+00:00", "2031-05-06T07:08:09+00:00"),
        ("2031-05-06T02:08:09-05:00", "-05:00", "2031-05-06T07:08:09+00:00"),
        ("2031-05-06T02:08:09", "-05:00", "2031-05-06T07:08:09+00:00"),
        ("2031-05-06T07:08:09", None, "2031-05-06T07:08:09+00:00"),
    ],
)
def test_each_way_to_write_the_time_is_understood(redfish: Seat, written: str, offset: str | None, meant: str) -> None:
    shown = {"DateTime": written, "DateTimeLocalOffset": offset or "<null>"}
    front(redfish).overlay.add({"/redfish/v1/Managers/bmc": shown})
    found = need(redfish.open(), BmcClock).bmc_clock()
    assert found is not None
    assert datetime.fromisoformat(found) == datetime.fromisoformat(meant)


@pytest.mark.parametrize("written", ["yesterday", "", 5, None, {}, "2031-13-45T99:00:00Z"])
def test_a_clock_that_tells_nothing_is_none(redfish: Seat, written: object) -> None:
    front(redfish).overlay.add({"/redfish/v1/Managers/bmc": {"DateTime": written}})
    assert need(redfish.open(), BmcClock).bmc_clock() is None


def test_a_clock_that_nobody_may_set_is_refused(redfish: Seat) -> None:
    redfish.bmc.set(clock_set=False)
    with pytest.raises(Refused):
        need(redfish.open(), BmcClock).set_bmc_clock(datetime(2031, 1, 1, tzinfo=UTC))


# ---------------------------------------------------------------- its network, its console


def test_the_network_settings_name_the_address_that_it_answers_on(seat: Seat) -> None:
    found = claimed(seat, BmcNetwork).bmc_network()
    assert seat.bmc.host in {address.partition("/")[0] for one in found for address in one.ipv4}


def test_the_ways_to_the_console_are_named_best_first(seat: Seat) -> None:
    ways = claimed(seat, Console).consoles()
    assert ways
    assert {way.host for way in ways} == {seat.bmc.host}
    kinds = [way.kind for way in ways]
    assert kinds == sorted(kinds, key=("ssh", "ipmi-sol", "telnet", "web").index)


def test_what_to_type_is_the_systems_own_word(redfish: Seat) -> None:
    console = {"SSH": {"ServiceEnabled": True, "Port": 2200, "ConsoleEntryCommand": "start sol"}}
    front(redfish).overlay.add({"/redfish/v1/Systems/1": {"SerialConsole": console}})
    ssh = need(redfish.open(), Console).consoles()[0]
    assert (ssh.kind, ssh.port, ssh.how) == ("ssh", 2200, "type: start sol")


# ---------------------------------------------------------------- the host's ways in


def test_each_way_that_can_be_closed_is_closed_and_read_back(seat: Seat) -> None:
    bmc = claimed(seat, HostWays)
    for way in bmc.host_ways():
        if way.closable:
            bmc.close_host_way(way.name)
            bmc.close_host_way(way.name)
    assert not [way.name for way in bmc.host_ways() if way.closable and way.open is not False]


def test_the_redfish_host_interface_and_what_it_hands_out_are_really_closed(redfish: Seat) -> None:
    redfish.bmc.set(oem_kcs=True)
    bmc = need(redfish.open(), HostWays)
    assert {way.name: way.open for way in bmc.host_ways()} == {
        "redfish-host-interface": True,
        "credential-bootstrapping": True,
        "kcs": True,
    }
    for name in ("redfish-host-interface", "credential-bootstrapping", "kcs"):
        bmc.close_host_way(name)
    upkeep = front(redfish).upkeep
    assert (upkeep.interface, upkeep.bootstrap, upkeep.kcs) == (False, False, False)


def test_a_way_that_is_acknowledged_and_still_open_is_not_as_asked(redfish: Seat) -> None:
    redfish.rack.rule(Rule(action="ignore", method="PATCH", path=INTERFACE))
    with pytest.raises(NotAsAsked):
        need(redfish.open(), HostWays).close_host_way("redfish-host-interface")


def test_a_way_that_it_does_not_have_is_unsupported(seat: Seat) -> None:
    with pytest.raises(DriverError):
        claimed(seat, HostWays).close_host_way("nothing")


def test_what_the_bmc_keeps_outlives_its_process(redfish: Seat) -> None:
    kept = front(redfish).upkeep
    kept.tell("once")
    need(redfish.open(), HostWays).close_host_way("redfish-host-interface")
    doc = front(redfish).snapshot()
    kept.clear()
    kept.interface = True
    front(redfish).restore(doc)
    assert [entry.message for entry in kept.entries] == ["once"]
    assert kept.interface is False
