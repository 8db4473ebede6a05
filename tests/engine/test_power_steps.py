"""What a machine shows on its way is no ask: patience begins with the first one, however long that waits for its turn."""

from __future__ import annotations

import pytest

from bcmetal.decisions import SECOND, Again, Done, Failed, Micros
from bcmetal.store import rack_slots
from bcmetal.workflows.machine import Machine
from bcmetal.workflows.steps import POWER_PATIENCE_S, STUCK_S, power_off, power_on
from bcmetal_drivers.resources import PowerAction
from emulated_site import OnASite, Site
from engine.test_turns_at_a_bmc import a_turn

RACK, SLOTS = "r1", 4


async def a_machine(site: Site) -> Machine:
    turn = await a_turn(site)
    await site.set_node(turn.machine.node.node_id, location_rack=RACK)
    turn.machine.work = await site.peek(turn.machine.node.node_id)
    return turn.machine


def in_s(site: Site, seconds: float) -> Micros:
    return Micros(site.clock.now() + int(seconds * SECOND))


def resets(site: Site) -> int:
    return sum(write.path.endswith("ComputerSystem.Reset") for write in site.rack.writes)


def test_a_machine_that_waits_for_its_racks_turn_was_not_asked_and_does_not_fail(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        m = await a_machine(site)
        bmc = site.rack.bmcs["m1"]
        bmc.machine.set_power(PowerAction.ON)
        bmc.set(power_lag_s=5.0)
        bmc.machine.set_power(PowerAction.OFF)
        for _ in range(SLOTS):
            await site.store.write(rack_slots.take, m.node.site_id, RACK, in_s(site, POWER_PATIENCE_S + 60))
        passes = await power_on(m)
        assert isinstance(passes, Again)
        assert "powering-off" in passes.why
        site.clock.skip_to(in_s(site, 10))
        for _ in range(2):
            waits = await power_on(m)
            assert isinstance(waits, Again)
            assert waits.why.startswith("its rack")
            site.clock.skip_to(in_s(site, POWER_PATIENCE_S + 10))
        assert resets(site) == 0
        site.clock.skip_to(in_s(site, 60))
        assert isinstance(await power_on(m), Again)
        assert resets(site) == 1
        site.clock.skip_to(in_s(site, 10))
        assert isinstance(await power_on(m), Done)

    on_a_site(scenario)


@pytest.mark.parametrize("away_s", [STUCK_S / 2, POWER_PATIENCE_S * 2])
def test_a_machine_that_nobody_looked_at_for_long_is_asked_before_it_fails(on_a_site: OnASite, away_s: float) -> None:
    async def scenario(site: Site) -> None:
        m = await a_machine(site)
        bmc = site.rack.bmcs["m1"]
        bmc.set(power_lag_s=100_000.0)
        bmc.machine.set_power(PowerAction.ON)
        assert isinstance(await power_off(m), Again)
        site.clock.skip_to(in_s(site, away_s))
        assert isinstance(await power_off(m), Again)
        assert resets(site) == (1 if away_s > STUCK_S else 0)
        site.clock.skip_to(in_s(site, STUCK_S))
        assert isinstance(await power_off(m), Again)
        site.clock.skip_to(in_s(site, POWER_PATIENCE_S + 1))
        failed = await power_off(m)
        assert isinstance(failed, Failed)
        assert failed.code == "power-not-reached"

    on_a_site(scenario)
