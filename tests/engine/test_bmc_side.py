"""What is asked of a BMC beside a machine's way: read and kept, switched and seen, restarted and waited for."""

from __future__ import annotations

from typing import Any

import pytest

from bcmetal.states import SideVerb, Verb
from bcmetal.store import operations, side_operations
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.front import RedfishFront
from emulated_site import OnASite, Site


async def inspected(site: Site) -> str:
    bmc = site.rack.add_redfish("m1")
    site.rack.start()
    node_id = await site.enroll(bmc)
    await site.live(node_id, Verb.INSPECT)
    return node_id


def front(site: Site) -> RedfishFront:
    found = site.rack.bmc("m1").front
    assert isinstance(found, RedfishFront)
    return found


async def asked(site: Site, node_id: str, verb: SideVerb, **given: Any) -> tuple[str, dict[str, Any]]:
    """How it ended, and its error or its result."""
    operation_id = await site.queue(node_id, verb, **given)
    await site.settle()
    row = await site.store.read(operations.get, operation_id)
    assert row is not None
    found = await site.store.read(side_operations.last_result, node_id, verb)
    return row.status, dict(row.error or (found.result if found else {}))


def test_what_was_read_is_kept_and_a_later_reading_takes_its_place(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await inspected(site)
        status, cold = await asked(site, node_id, SideVerb.READ_SENSORS)
        assert (status, cold["powerDrawW"]) == ("done", 14.0)
        await site.queue(node_id, SideVerb.SET_POWER, action="on")
        await site.settle()
        _, warm = await asked(site, node_id, SideVerb.READ_SENSORS)
        assert warm["powerDrawW"] == 312.0
        assert {one["name"]: one["value"] for one in warm["sensors"]}["CPU1 Temp"] == 47.0
        for message in ("one", "two", "three"):
            front(site).upkeep.tell(message, "Warning")
        _, log = await asked(site, node_id, SideVerb.READ_EVENT_LOG, limit=2)
        assert [one["message"] for one in log["entries"]] == ["two", "three"]
        assert (await asked(site, node_id, SideVerb.CLEAR_EVENT_LOG))[0] == "done"
        assert "two" not in str(front(site).upkeep.entries)
        _, ways = await asked(site, node_id, SideVerb.CONSOLE)
        assert [way["kind"] for way in ways["ways"]] == ["ssh", "web"]
        for on in (True, False):
            assert (await asked(site, node_id, SideVerb.IDENTIFY, on=on))[0] == "done"
            assert site.rack.bmc("m1").machine.identify is on

    on_each_database(scenario)


def test_a_bmc_that_has_no_sensors_says_so_and_what_was_read_before_stays(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await inspected(site)
        await asked(site, node_id, SideVerb.READ_SENSORS)
        site.rack.bmc("m1").set(sensors="none")
        status, error = await asked(site, node_id, SideVerb.READ_SENSORS)
        assert (status, error["code"]) == ("failed", "bmc-unsupported")
        kept = await site.store.read(side_operations.last_result, node_id, SideVerb.READ_SENSORS)
        assert kept is not None
        assert kept.result["powerDrawW"] == 14.0

    on_a_site(scenario)


@pytest.mark.parametrize("lost", [False, True])
def test_a_bmc_is_restarted_once_and_waited_for(on_a_site: OnASite, lost: bool) -> None:
    async def scenario(site: Site) -> None:
        node_id = await inspected(site)
        site.rack.bmc("m1").set(bmc_reset_s=120.0)
        if lost:
            site.rack.rule(Rule(action="drop_after", method="POST", path="Manager.Reset", times=1))
        status, error = await asked(site, node_id, SideVerb.RESET_BMC)
        assert status == "done", error
        assert front(site).upkeep.resets == 1
        assert site.rack.bmc("m1").machine.boots == []

    on_a_site(scenario)


def test_a_bmc_that_stays_away_after_its_restart_is_said_to_be(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await inspected(site)
        site.rack.bmc("m1").set(bmc_reset_s=1e9)
        status, error = await asked(site, node_id, SideVerb.RESET_BMC, hard=True)
        assert (status, error["code"]) == ("failed", "bmc-unreachable")
        assert front(site).upkeep.resets == 1

    on_a_site(scenario)
