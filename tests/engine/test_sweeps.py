"""What runs by the clock: the sweep's readings and conditions, the stagger of a rack, the order of the feed."""

from __future__ import annotations

from bcmetal.breaker import AWAY_AFTER
from bcmetal.decisions import SECOND, Micros
from bcmetal.events import Feed
from bcmetal.states import SideVerb, State, Verb
from bcmetal.store import outbox
from bcmetal.sweeps import SWEEP_EVERY_S, expire, sweep
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import PowerAction, PowerState
from crash.life import LIFE
from emulated_site import OnASite, Site

MINUTE_US = 60 * SECOND


async def later(site: Site, seconds: int = SWEEP_EVERY_S + 1) -> int:
    """One sweep, when it is due again; how many machines answered. Leases run by the database's own clock, so each asks as itself."""
    site.clock.skip_to(Micros(site.clock.now() + seconds * SECOND))
    return await sweep(site.engine.doors, site.lines, "test-daemon")


async def inspected(site: Site, *bmcs: EmulatedBmc, rack: str | None = None) -> list[str]:
    ids = [await site.enroll(bmc, rack=rack) for bmc in bmcs]
    for node_id in ids:
        await site.start(node_id, Verb.INSPECT)
    await site.settle()
    assert [await site.state(node_id) for node_id in ids] == [State.INSPECTED] * len(ids)
    return ids


async def event_types(site: Site) -> list[str]:
    await Feed(site.store, "test-daemon").deliver()
    return [row.type for row in await site.store.read(outbox.since, 0, 10_000)]


def test_a_machine_that_somebody_switched_off_is_noticed_and_told(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        redfish, ipmi = site.rack.add_redfish("m1"), site.rack.add_ipmi("m2")
        site.rack.start()
        ids = await inspected(site, redfish, ipmi)
        for node_id in ids:
            await site.queue(node_id, SideVerb.SET_POWER, action="on")
        await site.settle()
        assert await later(site) == 2
        for node_id in ids:
            assert "power" not in await site.conditions(node_id)
        for bmc in (redfish, ipmi):
            bmc.machine.set_power(PowerAction.OFF)
        assert await later(site) == 2
        for node_id in ids:
            assert (await site.conditions(node_id))["power"] == ("warning", "not-as-asked")
        assert (await event_types(site)).count("metal.power.changed") == 2

    on_each_database(scenario)


def test_a_bmc_that_goes_away_costs_no_state_and_comes_back_by_itself(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        [node_id] = await inspected(site, bmc)
        site.rack.stop()
        for _ in range(AWAY_AFTER):
            assert await later(site) == 0
        assert (await site.conditions(node_id))["reachable"] == ("error", "bmc-unreachable")
        assert await site.state(node_id) is State.INSPECTED
        site.rack.start()
        assert await later(site, 600) == 1
        assert "reachable" not in await site.conditions(node_id)

    on_each_database(scenario)


def test_an_error_that_lasts_asks_for_attention(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        [node_id] = await inspected(site, bmc)
        bmc.set(health="Critical")
        assert await later(site) == 1
        assert (await site.conditions(node_id))["hardware"] == ("error", "health-critical")
        assert not await site.needs_attention(node_id)
        site.clock.skip_to(Micros(site.clock.now() + 11 * MINUTE_US))
        await expire(site.engine.doors, "test-daemon")
        assert await site.needs_attention(node_id)

    on_each_database(scenario)


def test_a_sweep_only_reads(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        [node_id] = await inspected(site, bmc)
        generation = (await site.node(node_id)).generation
        number = site.rack.rule(Rule(action="refuse", method="PATCH", status=403))
        assert await later(site) == 1
        assert [write for write in site.rack.writes if write.kind == "effect"] == []
        assert site.rack.fired(number) == 0
        assert (await site.node(node_id)).generation == generation

    on_each_database(scenario)


def test_one_rack_powers_on_four_machines_in_ten_seconds(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmcs = [site.rack.add_redfish(f"m{n}") for n in range(6)]
        site.rack.start()
        ids = await inspected(site, *bmcs, rack="r1")
        for node_id in ids:
            await site.queue(node_id, SideVerb.SET_POWER, action="on")
        await site.settle()
        assert {bmc.machine.power for bmc in bmcs} == {PowerState.ON}
        at = sorted(bmc.machine.boots[-1].at for bmc in bmcs)
        assert at[4] - at[0] >= 9.5  # a place is taken a moment before the machine starts
        assert at[3] - at[0] < 10.0

    on_each_database(scenario)


def test_the_feed_tells_each_nodes_states_in_their_order(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmcs = [site.rack.add_redfish(f"m{n}") for n in range(2)]
        site.rack.start()
        ids = await inspected(site, *bmcs)
        for chapter in LIFE[1:]:
            for node_id in ids:
                await site.start(node_id, chapter.verb, chapter.params, **chapter.given)
            await site.settle()
        await Feed(site.store, "test-daemon").deliver()
        rows = await site.store.read(outbox.since, 0, 10_000)
        assert [row.position for row in rows] == sorted({row.position for row in rows})
        for node_id in ids:
            ends = [row.data["to"] for row in rows if row.node_id == node_id and row.type == "metal.state.changed"]
            assert ends == [chapter.state for chapter in LIFE]

    on_each_database(scenario)
