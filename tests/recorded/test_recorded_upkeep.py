"""Sensors, and what the BMC tells of itself, of each recorded tree against its checked table."""

from __future__ import annotations

from collections import Counter

import pytest

from bcmetal_drivers.connection import Limits
from bcmetal_drivers.emulated.recorded_front import RecordedService
from bcmetal_drivers.emulated.recorded_line import driving
from recorded.recordings import recorded
from recorded.tables_of_upkeep import TREES

pytestmark = [pytest.mark.recordings, pytest.mark.parametrize("name", TREES)]
LIMITS = Limits(connect_s=2, read_s=5, total_s=20)
REQUESTS = 12  # for the sensors of one machine, where the BMC sends a collection with its members


def test_the_sensors_are_what_a_reader_of_the_json_finds_in_few_requests(name: str) -> None:
    table, service = TREES[name], RecordedService(recorded(name))
    with driving(service, LIMITS) as bmc:
        found = bmc.sensors()
        assert service.requests <= REQUESTS
        assert [path for path, times in service.reads.items() if times > 1] == []
        assert Counter(one.kind.value for one in found) == table.sensors
        of_the_air, value, thresholds = table.temperature
        told = next(one for one in found if one.name == of_the_air)
        assert (told.value, told.unit, told.health, told.thresholds) == (value, "Cel", "ok", thresholds)
        units = {one.kind.value: one.unit for one in found if one.kind.value in ("fan", "power", "voltage", "current")}
        assert set(units.items()) <= {
            ("fan", "{rev}/min"),
            ("fan", "%"),
            ("power", "W"),
            ("voltage", "V"),
            ("current", "A"),
        }
        assert bmc.power_draw_w() == table.watts


def test_the_bmc_tells_of_itself_what_a_reader_of_the_json_finds(name: str) -> None:
    table = TREES[name]
    with driving(RecordedService(recorded(name)), LIMITS) as bmc:
        assert bmc.bmc_clock() == table.clock
        assert {one.mac: (one.ipv4, one.gateway, one.dhcp) for one in bmc.bmc_network()} == table.network
        assert {one.kind: (one.port, one.how) for one in bmc.consoles()} == table.consoles
        assert {one.name: one.open for one in bmc.host_ways()} == table.host_ways
        assert [one.open for one in bmc.network_ways()] == [table.ipmi]
        assert {one.username: one.enabled for one in bmc.accounts()} == table.accounts
        policy = bmc.account_policy()
        assert (policy.password_shortest, policy.password_longest) == table.password
        assert [slot.inserted for slot in bmc.inserted()] == [False] * table.slots
        state = bmc.bios()
        assert (len(state.attributes), state.pending) == (table.bios, {})
        mode = bmc.secure_boot_mode()
        assert (bmc.secure_boot(), mode and mode.value) == (False, table.secure_boot_mode)
        assert bmc.identified() is table.lit
