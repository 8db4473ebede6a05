"""What is stuck, held or away keeps nobody else waiting, and a database that is away for a while ends nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from bcmetal.errors import Unavailable
from bcmetal.states import WORKFLOWS, SideVerb, State, Verb
from bcmetal.store import freezes
from bcmetal.store.sqlite import SqliteStore
from bcmetal_drivers.capabilities import Readings, need
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.resources import PowerAction, PowerState
from crash.life import LIFE
from emulated_site import OnASite, Site, a_site

WAITS_S = 0.2  # what a write of the test's daemon waits for the lock


def _is_deployed(c: Connection, node_id: str) -> None:
    c.execute(text("UPDATE nodes SET state = 'deployed' WHERE node_id = :node_id"), {"node_id": node_id})


def test_operations_that_are_held_take_no_place_under_their_verbs_cap(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        cap = WORKFLOWS[Verb.RESCUE].cap
        bmcs = [site.rack.add_redfish(f"m{n}", drives=1) for n in range(cap + 1)]
        site.rack.start()
        *held, healthy = [await site.enroll(bmc) for bmc in bmcs]
        for chapter in LIFE[:3]:
            assert await site.live(healthy, chapter.verb, chapter.params, **chapter.given) is chapter.state
        for node_id in held:
            await site.start(node_id, Verb.INSPECT)
        await site.settle()
        for node_id in held:  # none of them goes further than the first step of its rescue
            await site.store.write(_is_deployed, node_id)
            await site.start(node_id, Verb.RESCUE)
        site.steps.stops = lambda operation, step: True
        await site.advance()
        site.steps.stops = None
        assert all([(await site.node(node_id)).facts.state is State.RESCUING for node_id in held])
        for node_id in held:
            await site.set_node(node_id, maintenance=True)
        await site.start(healthy, Verb.RESCUE)
        await site.settle()
        assert await site.state(healthy) is State.RESCUED
        assert {await site.state(node_id) for node_id in held} == {State.RESCUING}

    on_each_database(scenario)


def test_a_freeze_of_one_rack_holds_no_other(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        frozen, free = site.rack.add_redfish("m1"), site.rack.add_redfish("m2")
        site.rack.start()
        frozen_id, free_id = await site.enroll(frozen, rack="r1"), await site.enroll(free, rack="r2")
        for node_id in (frozen_id, free_id):
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        scope = freezes.rack_scope("site-a", "r1")
        await site.store.write(freezes.set, "rack", scope, "water", "key:test", site.clock.now())
        for bmc in (frozen, free):
            bmc.machine.set_power(PowerAction.ON)
        await site.start(frozen_id, Verb.COMMISSION)
        await site.start(free_id, Verb.COMMISSION)
        for _ in range(60):
            await site.advance()
        assert await site.state(free_id) is State.AVAILABLE
        assert await site.state(frozen_id) is State.COMMISSIONING
        assert frozen.machine.power is PowerState.ON

    on_each_database(scenario)


def test_a_session_whose_address_is_nonsense_ends_nothing(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        hostile, good = site.rack.add_redfish("hostile"), site.rack.add_redfish("good")
        site.rack.start()
        headers = {"X-Auth-Token": "token", "Location": "/redfish/v1/\u00e9"}
        site.rack.rule(
            Rule(action="garbage", bmc="hostile", method="POST", path="Sessions", status=201, headers=headers)
        )
        hostile_id, good_id = await site.enroll(hostile), await site.enroll(good)
        await site.start(hostile_id, Verb.INSPECT)
        await site.start(good_id, Verb.INSPECT)
        await site.settle()
        assert await site.state(good_id) is State.INSPECTED
        await site.lines.close_idle(older_s=-1.0)
        assert site.rack.sessions(good) == 0

    on_a_site(scenario)


def test_a_call_that_waited_while_its_line_was_closed_leaves_no_session_behind(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await site.enroll(bmc)
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        await site.queue(node_id, SideVerb.REFRESH)
        work = await site.peek(node_id)
        line = site.lines.to(work, site.settings.pools["pool-a"], "")
        assert work.node.bmc is not None
        lock = site.lines.lock(work.node.bmc.bmc_id)
        await lock.acquire()
        closing = asyncio.create_task(site.lines.close_idle(older_s=-1.0))
        await asyncio.sleep(0)
        calling = asyncio.create_task(line.call(need(line.bmc, Readings).reading))
        await asyncio.sleep(0)
        lock.release()
        await asyncio.gather(closing, calling)
        await site.lines.close_idle(older_s=-1.0)
        assert site.rack.sessions(bmc) == 0

    on_a_site(scenario)


def _wait_shortly(c: Connection) -> None:
    c.exec_driver_sql(f"PRAGMA busy_timeout = {int(WAITS_S * 1000)}")


def test_a_database_that_another_process_locks_is_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_site(tmp_path) as site:
            bmc = site.rack.add_redfish("m1")
            site.rack.start()
            node_id = await site.enroll(bmc)
            await site.start(node_id, Verb.INSPECT)
            assert isinstance(site.store, SqliteStore)
            other = sqlite3.connect(site.store.path, isolation_level=None)
            await site.store.write(_wait_shortly)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable):
                await site.store.write(freezes.lift, "pool", "pool-a")
            stop = asyncio.Event()
            engine = asyncio.create_task(site.engine.run(stop))
            await asyncio.sleep(10 * WAITS_S)  # some writes of the engine's were refused by then
            assert not engine.done()
            other.execute("ROLLBACK")
            other.close()
            ends = asyncio.get_running_loop().time() + 20
            while await site.state(node_id) is not State.INSPECTED:
                assert asyncio.get_running_loop().time() < ends
                await asyncio.sleep(0.1)
            stop.set()
            site.engine.wake()
            await engine

    asyncio.run(run())
