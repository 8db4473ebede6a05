"""A mutating call waits for its turn at the BMC, and starts only if it still may: its whole deadline left on the lease, and nothing holding it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from bcmetal.line import Lines
from bcmetal.states import WORKFLOWS, SideVerb, State, Verb
from bcmetal.store import claims, freezes
from bcmetal.store.values import Claim
from bcmetal.workflows.machine import HeldBack, Machine
from bcmetal_drivers.capabilities import Power, need
from emulated_site import OnASite, Site
from emulated_site_config import POOL

LEASE_S = 60.0


@dataclass
class ALease:
    """A hold on the node whose time the test lets pass."""

    claim: Claim
    site: Site
    left: float = LEASE_S
    renewable: bool = True
    renewed: int = 0

    def left_s(self) -> float:
        return self.left

    async def renew(self) -> None:
        if self.renewable:
            self.renewed += 1
            self.left = LEASE_S


@dataclass
class Turn:
    """One machine under a claim, for a queued setPower; `started` is how much lease was left when each call started."""

    machine: Machine
    lease: ALease
    lock: asyncio.Lock
    started: list[float] = field(default_factory=list)

    def effect(self) -> str:
        self.started.append(self.lease.left)
        return "done"


async def a_turn(site: Site, lines: Lines | None = None) -> Turn:
    bmc = site.rack.add_redfish("m1")
    site.rack.start()
    node_id = await site.enroll(bmc)
    assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
    await site.queue(node_id, SideVerb.SET_POWER, action="on")
    caps = {verb: row.cap for verb, row in WORKFLOWS.items()}
    [claim] = await site.store.write(claims.claim_due, "test-daemon", site.clock.now(), 1, caps)
    work = await site.store.read(claims.load, claim, site.clock.now())
    assert work is not None
    assert work.node.bmc is not None
    pool, operation = site.settings.pools[POOL], work.side[0]
    used = lines or site.lines
    line = used.to(work, pool, operation.operation_id)
    lease = ALease(claim, site)
    machine = Machine(site.engine.doors, work, operation, pool, lease, line, line.secrets)
    return Turn(machine, lease, used.lock(work.node.bmc.bmc_id))


async def until(true: Callable[[], bool]) -> None:
    ends = asyncio.get_running_loop().time() + 5
    while not true():
        assert asyncio.get_running_loop().time() < ends
        await asyncio.sleep(0.005)


async def waits_for_the_bmc(turn: Turn) -> asyncio.Task[object]:
    """An act that asked, and waits for a call before it."""
    await turn.lock.acquire()
    acting: asyncio.Task[object] = asyncio.create_task(turn.machine.act(turn.effect))
    for _ in range(50):  # long enough for whatever it does before it waits
        await asyncio.sleep(0.005)
    assert turn.started == []
    return acting


def test_a_lease_that_ran_down_while_the_call_waited_is_renewed_before_it_starts(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        turn = await a_turn(site)
        acting = await waits_for_the_bmc(turn)
        turn.lease.left = turn.machine.line.deadline_s - 1
        turn.lock.release()
        await acting
        assert turn.started == [LEASE_S]
        assert turn.lease.renewed == 1

    on_each_database(scenario)


def test_a_lease_that_cannot_be_made_to_last_lets_nothing_start(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        turn = await a_turn(site)
        turn.lease.renewable = False
        acting = await waits_for_the_bmc(turn)
        turn.lease.left = turn.machine.line.deadline_s - 1
        turn.lock.release()
        with pytest.raises(HeldBack):
            await acting
        assert turn.started == []

    on_each_database(scenario)


def test_what_was_frozen_while_the_call_waited_does_not_start(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        turn = await a_turn(site)
        acting = await waits_for_the_bmc(turn)
        await site.store.write(freezes.set, "pool", POOL, "cooling works", "key:test", site.clock.now())
        turn.lock.release()
        with pytest.raises(HeldBack, match="cooling works"):
            await acting
        assert turn.started == []
        assert not turn.machine.touched

    on_each_database(scenario)


@pytest.mark.parametrize("observable", [True, False], ids=["act", "act-once"])
def test_a_call_that_waited_for_a_thread_starts_only_with_its_deadline_left(
    observable: bool, on_each_database: OnASite
) -> None:
    async def scenario(site: Site) -> None:
        lines = Lines(site.store, site.clock, site.vault, lambda: site.settings, threads=1)
        turn = await a_turn(site, lines)
        go_on, taken = threading.Event(), threading.Event()

        def keep_the_thread() -> None:
            taken.set()
            assert go_on.wait(10)

        bmc = turn.machine.node.bmc
        assert bmc is not None
        keeping = asyncio.create_task(lines.in_thread(bmc, keep_the_thread))
        await until(taken.is_set)
        m = turn.machine
        acting: asyncio.Task[object] = asyncio.create_task(
            m.act(turn.effect) if observable else m.act_once("an act", turn.effect)
        )
        await until(lambda: m.touched)
        await asyncio.sleep(0.1)  # what else it writes before it waits
        turn.lease.left = m.line.deadline_s - 1
        go_on.set()
        with pytest.raises(HeldBack):
            await acting
        await keeping
        assert turn.started == []
        again = await (m.act(turn.effect) if observable else m.act_once("an act", turn.effect))
        assert again == "done"  # what did not start is not taken for begun
        assert turn.started == [LEASE_S]
        await lines.close()

    on_each_database(scenario)


def test_closing_idle_lines_waits_for_no_call_and_cuts_none(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmcs = [site.rack.add_redfish(f"m{n}") for n in (1, 2)]
        site.rack.start()
        ids = [await site.enroll(bmc) for bmc in bmcs]
        for node_id in ids:
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        line = site.lines.to(await site.peek(ids[0]), site.settings.pools[POOL], "")
        begun, goes_on = threading.Event(), threading.Event()

        def long_call() -> str:
            begun.set()
            assert goes_on.wait(20)
            return need(line.bmc, Power).power_state().name

        calling = asyncio.create_task(line.call(long_call))
        await until(begun.is_set)
        closed = await asyncio.wait_for(site.lines.close_idle(older_s=-1.0), 5)
        assert closed == 1, "the other BMC's alone"
        goes_on.set()
        assert await calling == "OFF"

    on_a_site(scenario)
