"""A side operation that is held, tried again or failed is told where an admin looks: in the node's view."""

from __future__ import annotations

from typing import Any

import pytest

from bcmetal.states import SideVerb, Verb
from bcmetal.store import freezes, operations, views
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.resources import PowerState
from emulated_site import OnASite, Site
from emulated_site_config import POOL


async def shown(site: Site, node_id: str) -> list[dict[str, Any]]:
    [view] = await site.store.read(views.read, [node_id])
    found = view.doc["sideOperations"]
    assert isinstance(found, list)
    return found


async def inspected(site: Site) -> str:
    bmc = site.rack.add_redfish("m1")
    site.rack.start()
    node_id = await site.enroll(bmc)
    await site.live(node_id, Verb.INSPECT)
    return node_id


def test_a_frozen_side_operation_says_that_it_is_frozen(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await inspected(site)
        await site.store.write(freezes.set, "pool", POOL, "power work", "key:test", site.clock.now())
        await site.queue(node_id, SideVerb.SET_POWER, action="on")
        assert await site.engine.tick()
        [one] = await shown(site, node_id)
        assert (one["verb"], one["status"], one["waitingFor"]) == ("setPower", "queued", "frozen: power work")
        await site.store.write(freezes.lift, "pool", POOL)
        await site.settle()
        assert await shown(site, node_id) == []

    on_each_database(scenario)


def test_a_side_operation_that_is_tried_again_says_why(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await inspected(site)
        site.rack.rule(Rule(action="refuse", status=503, times=6))
        await site.queue(node_id, SideVerb.REFRESH)
        assert await site.engine.tick()
        [one] = await shown(site, node_id)
        assert one["status"] == "queued"
        assert "503" in one["waitingFor"]
        assert one["error"]["code"] in ("bmc-busy", "bmc-fault")
        await site.settle()
        assert await shown(site, node_id) == []

    on_each_database(scenario)


@pytest.mark.parametrize("offered", [True, False])
def test_a_restart_of_any_kind_ends_with_the_machine_as_it_says(on_each_database: OnASite, offered: bool) -> None:
    async def scenario(site: Site) -> None:
        node_id = await inspected(site)
        machine = site.rack.bmc("m1").machine
        if not offered:
            site.rack.bmc("m1").set(without_resets=("GracefulRestart", "PowerCycle"))
        for asked, boots in (("on", 1), ("softRestart", 2), ("powerCycle", 3), ("pushButton", 3)):
            operation_id = await site.queue(node_id, SideVerb.SET_POWER, action=asked)
            await site.settle()
            row = await site.store.read(operations.get, operation_id)
            assert row is not None
            assert row.status == "done", row.error
            assert machine.power is (PowerState.OFF if asked == "pushButton" else PowerState.ON)
            assert len(machine.boots) == boots

    on_each_database(scenario)
