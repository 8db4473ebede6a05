"""BMCs that do not answer hold the slow lane's threads and claims, and no others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from bcmetal.breaker import AWAY_AFTER, FIRST_S, LAST_S, wait_s
from bcmetal.decisions import SECOND, Micros
from bcmetal.line import BoundLine, Lines
from bcmetal.states import State, Verb
from bcmetal.store import nodes
from bcmetal.store.values import SetBmc
from bcmetal.sweeps import SLOW_AT_ONCE, SWEEP_EVERY_S, sweep
from bcmetal_drivers.capabilities import Bmc, Power, need
from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust
from bcmetal_drivers.errors import TimedOut
from bcmetal_drivers.registry import open_bmc
from bcmetal_drivers.resources import PowerAction, PowerState, Reading
from emulated_site import OnASite, Site

PATIENCE_S = 20.0


@dataclass
class BlackHole:
    """A driver whose BMC takes the connection and never answers: each call waits for the test, and then its deadline is over."""

    address: BmcAddress
    over: threading.Event
    threads: list[str] = field(default_factory=list)

    def power_state(self) -> PowerState:
        self.threads.append(threading.current_thread().name)
        assert self.over.wait(PATIENCE_S)
        raise TimedOut("no answer within its deadline")

    def set_power(self, action: PowerAction) -> None:
        self.power_state()

    def reading(self) -> Reading:
        return Reading(self.power_state())

    def close(self) -> None:
        """There is nothing to close."""


class Yard:
    """A site of which some BMCs are black holes, named by their hosts."""

    def __init__(self, site: Site, lines: Lines) -> None:
        self.site, self.lines = site, lines
        self.over = threading.Event()
        self.holes: dict[str, BlackHole] = {}
        lines.open_bmc = self._open

    def _open(
        self, address: BmcAddress, credential: Credential, trust: Trust, limits: Limits, learned: Mapping[str, object]
    ) -> Bmc:
        hole = self.holes.get(address.host)
        return hole if hole is not None else open_bmc(address, credential, trust, limits, learned)

    async def line_to(self, node_id: str) -> BoundLine:
        work = await self.site.peek(node_id)
        return self.lines.to(work, self.site.settings.pools[work.node.pool_id], "")

    async def dies(self, node_id: str, failures: int) -> None:
        bmc = (await self.site.node(node_id)).bmc
        assert bmc is not None
        self.holes[bmc.host] = BlackHole(BmcAddress(bmc.scheme, bmc.host, bmc.port), self.over)
        if failures:
            now = self.site.clock.now()
            row = {"breaker_failures": failures, "breaker_since_at": now, "breaker_until_at": now}
            await self.site.store.write(nodes.apply, node_id, [SetBmc(row)], now)

    @property
    def held(self) -> list[str]:
        return [name for hole in self.holes.values() for name in hole.threads]


async def inspected(site: Site, many: int) -> list[str]:
    bmcs = [site.rack.add_redfish(f"m{n}") for n in range(many)]
    site.rack.start()
    ids = [await site.enroll(bmc) for bmc in bmcs]
    for node_id in ids:
        await site.start(node_id, Verb.INSPECT)
    await site.settle()
    assert {await site.state(node_id) for node_id in ids} == {State.INSPECTED}
    return ids


async def until_held(yard: Yard, many: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(yard.held) < many:
            await asyncio.sleep(0.01)


def test_bmcs_that_never_answer_hold_none_of_the_threads_of_those_that_do(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        dead = await inspected(site, 4)
        alive = dead.pop()
        lines = Lines(site.store, site.clock, site.vault, lambda: site.settings, threads=1, slow_threads=2)
        yard = Yard(site, lines)
        for node_id in dead:
            await yard.dies(node_id, failures=1)
        waiting = []
        for node_id in dead:
            line = await yard.line_to(node_id)
            waiting.append(asyncio.create_task(line.call(need(line.bmc, Power).power_state)))
        await until_held(yard, 2)
        line = await yard.line_to(alive)
        async with asyncio.timeout(PATIENCE_S):
            assert await line.call(need(line.bmc, Power).power_state) is PowerState.OFF
        assert not any(task.done() for task in waiting)
        assert len(yard.held) == 2, "no more than the slow lane has"
        yard.over.set()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in ended] == [TimedOut] * 3
        assert {name.partition("_")[0] for name in yard.held} == {"slow-bmc"}
        await lines.close()

    on_a_site(scenario)


def test_one_that_stops_to_answer_holds_one_thread_once_and_one_that_answers_again_is_as_before(
    on_a_site: OnASite,
) -> None:
    async def scenario(site: Site) -> None:
        (node_id,) = await inspected(site, 1)
        lines = Lines(site.store, site.clock, site.vault, lambda: site.settings)
        yard = Yard(site, lines)
        await yard.dies(node_id, failures=0)
        yard.over.set()
        line = await yard.line_to(node_id)
        for _ in range(3):
            with pytest.raises(TimedOut):
                await line.call(need(line.bmc, Power).power_state)
        assert [name.partition("_")[0] for name in yard.held] == ["bmc", "slow-bmc", "slow-bmc"]
        await lines.close_idle(older_s=-1)
        yard.holes.clear()
        threads = []

        def look(bmc: Bmc) -> PowerState:
            threads.append(threading.current_thread().name.partition("_")[0])
            return need(bmc, Power).power_state()

        for _ in range(2):
            assert await line.call(look, line.bmc) is PowerState.OFF
        assert threads == ["slow-bmc", "bmc"]
        await lines.close()

    on_a_site(scenario)


def test_a_sweep_reads_those_that_answer_while_those_that_do_not_wait_in_their_lane(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        ids = await inspected(site, 6)
        dead, alive = ids[:5], ids[5:]
        yard = Yard(site, site.lines)
        await site.lines.close_idle(older_s=-1)
        for node_id in dead:
            await yard.dies(node_id, failures=1)
        before = {name: site.rack.requests(name)["GET"] for name in ("m5",)}
        site.clock.skip_to(Micros(site.clock.now() + (SWEEP_EVERY_S + 1) * SECOND))
        sweeping = asyncio.create_task(sweep(site.engine.doors, site.lines, "test-daemon"))
        await until_held(yard, SLOW_AT_ONCE)
        async with asyncio.timeout(PATIENCE_S):
            while any(site.rack.requests(name)["GET"] == many for name, many in before.items()):
                await asyncio.sleep(0.01)
        assert len(yard.held) == SLOW_AT_ONCE
        yard.over.set()
        assert await sweeping == len(alive)

    on_a_site(scenario)


def test_bmcs_that_went_away_together_are_not_tried_again_together() -> None:
    waits = [wait_s(f"bm_{n}", AWAY_AFTER) for n in range(50)]
    assert len(set(waits)) == 50
    assert 0.8 * FIRST_S <= min(waits) < max(waits) <= 1.2 * FIRST_S
    assert all(wait_s("bm_1", n) < FIRST_S / 2 for n in range(1, AWAY_AFTER))
    assert 0.8 * LAST_S <= wait_s("bm_1", 1000) <= 1.2 * LAST_S
