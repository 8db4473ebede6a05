"""BMCs that tell of events by themselves: heard where that is allowed, believed in nothing, and never a cost to others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from bcmetal.decisions import SECOND, Micros
from bcmetal.listening import Listening
from bcmetal.states import Verb
from bcmetal.store import nodes
from bcmetal.store.values import SetBmc
from bcmetal.sweeps import SWEEP_EVERY_S, sweep
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.emulated.upkeep import Upkeep
from bcmetal_drivers.resources import PowerAction
from emulated_site import OnASite, Site

WITHIN_S = 10.0
over_sqlite_alone = pytest.mark.parametrize("on_a_site", ["sqlite"], indirect=True)  # the database has no part in it


def upkeep_of(bmc: EmulatedBmc) -> Upkeep:
    assert isinstance(bmc.front, RedfishFront)
    return bmc.front.upkeep


def allow(site: Site, streams: int) -> None:
    """As a reload of the configuration would."""
    networks = {name: one.model_copy(update={"bmc_streams": streams}) for name, one in site.settings.networks.items()}
    site.settings = site.settings.model_copy(update={"networks": networks})


@asynccontextmanager
async def listening_to(site: Site, owner: str = "test-daemon") -> AsyncIterator[Listening]:
    listening = Listening(site.engine.doors, site.lines, owner)
    try:
        yield listening
    finally:
        await listening.close()


async def becomes(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not true():
            await asyncio.sleep(0.01)


async def hears(listening: Listening, streams: int = 1) -> None:
    await listening.tick()
    await becomes(lambda: listening.open == streams)


async def inspected(site: Site, *bmcs: EmulatedBmc) -> list[str]:
    site.rack.start()
    ids = [await site.enroll(bmc) for bmc in bmcs]
    for node_id in ids:
        await site.live(node_id, Verb.INSPECT)
    return ids


async def swept(site: Site) -> int:
    site.clock.skip_to(Micros(site.clock.now() + (SWEEP_EVERY_S + 1) * SECOND))
    return await sweep(site.engine.doors, site.lines, "test-daemon")


async def power_seen(site: Site, node_id: str) -> object:
    return ((await site.peek(node_id)).sighting or {}).get("power")


def test_a_machine_that_is_switched_off_by_hand_is_looked_at_long_before_the_sweep(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc, other = site.rack.add_redfish("m1"), site.rack.add_redfish("m2")
        for one in (bmc, other):
            one.machine.set_power(PowerAction.ON)
        other.set(events_stream=False)
        [node_id, quiet_id] = await inspected(site, bmc, other)
        allow(site, 4)
        async with listening_to(site) as listening, listening_to(site, "another-daemon") as second:
            assert await swept(site) == 2
            await hears(listening)
            await second.tick()
            for one in (bmc, other):
                one.machine.set_power(PowerAction.OFF)
                upkeep_of(one).tell("The system was switched off.")
            began = time.monotonic()
            async with asyncio.timeout(WITHIN_S):
                while await power_seen(site, node_id) != "off":
                    await asyncio.sleep(0.02)
            assert time.monotonic() - began < SWEEP_EVERY_S / 4
            assert (listening.open, second.open) == (1, 0)
            assert site.rack.sessions(bmc) == 1  # the one that the sweep has
            assert await site.lines.close_idle(0.0) == 1  # the other BMC's: this one's is not idle
            assert await power_seen(site, quiet_id) == "on"
            assert await swept(site) == 2  # the fallback
            assert await power_seen(site, quiet_id) == "off"

    on_a_site(scenario)


@over_sqlite_alone
def test_a_stream_that_floods_or_lies_costs_its_own_connection_and_few_looks(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        liar, other = site.rack.add_redfish("m1"), site.rack.add_redfish("m2")
        [node_id, _] = await inspected(site, liar, other)
        allow(site, 4)
        async with listening_to(site) as listening:
            await swept(site)
            await hears(listening, 2)
            over = threading.Event()

            def flood() -> None:
                while not over.wait(0.001):
                    for _ in range(20):
                        upkeep_of(liar).tell("Power state changed to Off. " * 20, "Critical")

            flooding = threading.Thread(target=flood)
            before = site.rack.requests(liar)["GET"]
            began = time.monotonic()
            flooding.start()
            try:
                await asyncio.sleep(2.0)
                assert await swept(site) == 2  # both answer
            finally:
                over.set()
                flooding.join()
            looks = site.rack.requests(liar)["GET"] - before
            assert 1 <= looks <= 4, (looks, time.monotonic() - began)
            assert listening.open == 2
            assert (await site.node(node_id)).last_error is None
            assert "hardware" not in await site.conditions(node_id)  # what it said is believed in nothing

    on_a_site(scenario)


@over_sqlite_alone
def test_streams_are_as_many_as_allowed_and_end_with_what_allows_them(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmcs = [site.rack.add_redfish(f"m{n}") for n in range(3)]
        ids = await inspected(site, *bmcs)
        async with listening_to(site) as listening:
            await listening.tick()
            assert listening.open == 0  # nobody allowed any
            allow(site, 2)
            await hears(listening, 2)
            await listening.tick()
            assert listening.open == 2
            allow(site, 1)
            await hears(listening, 1)
            allow(site, 3)
            await hears(listening, 3)

            await site.store.write(nodes.apply, ids[0], [SetBmc({"breaker_failures": 1})], site.clock.now())
            await hears(listening, 2)  # the slow lane has none
            row = await site.node(ids[1])
            assert row.bmc is not None
            await site.lines.forget_all(row.bmc.bmc_id)  # as before its password is changed
            await becomes(lambda: listening.open == 1)
            assert site.rack.sessions(bmcs[1]) == 0
            await listening.tick()
            assert listening.open == 1  # one that ended so soon is left alone for a while
            site.rack.stop()
            await becomes(lambda: listening.open == 0)

    on_a_site(scenario)
