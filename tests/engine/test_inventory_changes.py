"""What differs from the last look at a machine is told: in an event, and where a part is missing in a condition."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, select

from bcmetal.states import Disks, SideVerb, State, Verb
from bcmetal.store import inventories, tables
from bcmetal_drivers.emulated.faults import Rule
from emulated_site import OnASite, Site


async def told(site: Site) -> list[dict[str, Any]]:
    def read(c: Connection) -> list[dict[str, Any]]:
        rows = c.execute(select(tables.outbox).where(tables.outbox.c.type == "metal.inventory.changed"))
        return [json.loads(row.data) for row in rows]

    return await site.store.read(read)


async def refresh(site: Site, node_id: str) -> None:
    await site.queue(node_id, SideVerb.REFRESH)
    await site.settle()


def test_a_drive_that_is_gone_is_told_until_it_is_back_or_an_inspection_accepts_it(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await site.enroll(bmc)
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        assert await told(site) == []
        serial, drive = bmc.machine.drives.popitem()
        await refresh(site, node_id)
        [event] = await told(site)
        assert event["changes"] == [
            {"section": "drives", "what": "removed", "part": f"drive {serial}", "from": drive.model}
        ]
        assert event["more"] == 0
        assert (await site.conditions(node_id))["inventory"] == ("warning", "parts-missing")
        await refresh(site, node_id)
        assert len(await told(site)) == 1
        assert (await site.conditions(node_id))["inventory"] == ("warning", "parts-missing")
        bmc.machine.drives[serial] = drive
        await refresh(site, node_id)
        assert [one["changes"][0]["what"] for one in await told(site)] == ["removed", "added"]
        assert "inventory" not in await site.conditions(node_id)
        del bmc.machine.drives[serial]
        for left in (True, False):
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
            assert ("inventory" in await site.conditions(node_id)) is left

    on_each_database(scenario)


def test_a_section_that_cannot_be_read_is_no_change_and_makes_no_drive_a_new_one(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await site.enroll(bmc)
        for verb, state in ((Verb.INSPECT, State.INSPECTED), (Verb.COMMISSION, State.AVAILABLE)):
            assert await site.live(node_id, verb) is state
        before = await told(site)
        macs = {one.value_norm for one in (await site.node(node_id)).identifiers if one.kind == "mac"}
        fault = site.rack.rule(Rule(action="refuse", method="GET", path="/(Storage|EthernetInterfaces)", status=500))
        await refresh(site, node_id)
        assert (await site.conditions(node_id))["inventory"] == ("warning", "partial")
        kept = await site.store.read(inventories.latest, node_id)
        assert kept is not None
        assert {one["serial"] for one in kept.doc["drives"]} == set(bmc.machine.drives)
        assert set(kept.doc["stale"]) >= {"drives"}
        assert {one.value_norm for one in (await site.node(node_id)).identifiers if one.kind == "mac"} == macs != set()
        site.rack.clear(fault)
        await refresh(site, node_id)
        assert await told(site) == before
        assert "inventory" not in await site.conditions(node_id)
        assert (await site.node(node_id)).facts.disks is Disks.CLEAN

    on_each_database(scenario)
