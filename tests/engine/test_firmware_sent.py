"""Firmware that is sent to a BMC: it is shown how far it is, and what may not go on is ended soon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from bcmetal.errors import Stale
from bcmetal.states import State, Verb
from bcmetal.store import operations
from bcmetal.store.values import OperationRow
from bcmetal.workflows.watched import watched
from bcmetal_drivers.emulated.firmware import image
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.wire import CutShort
from emulated_site import OnASite, Site
from engine.test_firmware import failure, front, on_a_site_with
from engine.test_turns_at_a_bmc import a_turn
from rack_client import dialling

LARGE = image("BMC", "9.9.1", 24 << 20)
SLOW, FAST = 1 << 20, 1 << 30  # bytes a second
SOON_S = 12.0  # on a busy host; what is not ended takes twice as long


async def until(true: Callable[[], Awaitable[bool]], within_s: float = 30.0) -> None:
    ends = time.monotonic() + within_s
    while not await true():
        assert time.monotonic() < ends
        await asyncio.sleep(0.1)


async def sending(site: Site) -> tuple[EmulatedBmc, str, str, asyncio.Task[None]]:
    """A commission that is sending an image, and has been for a while; node, operation, and the engine's run."""
    bmc = site.rack.add_redfish("m1", drives=1, update_forms=("push",), push_bytes_s=SLOW)
    site.rack.start()
    node_id = await site.enroll(bmc)
    await site.live(node_id, Verb.INSPECT)
    operation_id = await site.start(node_id, Verb.COMMISSION)
    running = asyncio.create_task(site.settle())

    async def shown() -> bool:
        return bool((await site.operation(operation_id)).progress) and _sends(await site.operation(operation_id))

    await until(shown)
    return bmc, node_id, operation_id, running


def _sends(operation: OperationRow) -> bool:
    return (operation.waiting_for or "").startswith("sends 9.9.1 to BMC: ")


def reserve(bmc: EmulatedBmc, busy: bool) -> None:
    """As another client would."""
    with dialling(bmc) as other:
        other.ask("PATCH", "/redfish/v1/UpdateService", {"HttpPushUriTargetsBusy": busy})


def on_a_site_that_sends(folder: Path, scenario: Callable[[Site], Awaitable[None]]) -> None:
    on_a_site_with(folder, scenario, {"BMC": "9.9.1"}, {"BMC": LARGE})


def test_how_far_it_is_is_shown_while_it_is_sent(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id, operation_id, running = await sending(site)
        before = await site.operation(operation_id)
        assert (before.waiting_for or "").endswith("of 25.2 MB")
        assert 0 < (before.progress or 0) < 1

        async def more() -> bool:
            return ((await site.operation(operation_id)).progress or 0) > (before.progress or 0)

        await until(more)
        bmc.set(push_bytes_s=FAST)
        await running
        assert await site.state(node_id) is State.AVAILABLE, (await site.node(node_id)).last_error
        assert front(bmc).firmware["BMC"] == "9.9.1"

    on_a_site_that_sends(tmp_path, scenario)


def test_an_abort_ends_it_soon_and_nothing_is_begun(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id, _, running = await sending(site)
        began = time.monotonic()
        await site.store.write(
            operations.request_abort, node_id, "key:test", site.audit("abort", node_id), [], site.clock.now()
        )
        await running
        assert time.monotonic() - began < SOON_S
        assert (await failure(site, node_id))[0] == "aborted"
        assert front(bmc).firmware["BMC"] != "9.9.1"

    on_a_site_that_sends(tmp_path, scenario)


def test_a_lost_claim_ends_it_soon(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id, _, running = await sending(site)
        row = (await site.node(node_id)).bmc
        assert row is not None
        turn = site.lines.lock(row.bmc_id)
        assert turn.locked()
        began = time.monotonic()
        taken = text(
            "UPDATE nodes SET claim_owner = 'another-daemon', claim_epoch = claim_epoch + 1 WHERE node_id = :id"
        )
        await site.store.write(lambda c: c.execute(taken, {"id": node_id}) and None)

        async def ended() -> bool:
            return not turn.locked()

        await until(ended)
        assert time.monotonic() - began < SOON_S
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert front(bmc).firmware["BMC"] != "9.9.1"

    on_a_site_that_sends(tmp_path, scenario)


def test_the_thread_that_sends_ends_by_itself_once_the_lease_is_over(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        turn = await a_turn(site)
        watching = watched(turn.machine, "sends", 100)
        told = await watching.__aenter__()
        told(0.1)
        turn.lease.left = 0.0
        with pytest.raises(CutShort) as cut:
            told(0.2)
        assert cut.value.hands_off
        with pytest.raises(Stale):
            await watching.__aexit__(CutShort, cut.value, None)

    on_a_site(scenario)


def test_a_bmc_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1", drives=1, update_forms=("push",))
        site.rack.start()
        node_id = await site.enroll(bmc)
        await site.live(node_id, Verb.INSPECT)
        reserve(bmc, True)
        operation_id = await site.start(node_id, Verb.COMMISSION)
        await site.up_to(operation_id, lambda _, step: step == "bring_the_firmware")
        for _ in range(20):
            await site.advance()
            if "another push" in ((await site.operation(operation_id)).waiting_for or ""):
                break
        else:
            raise AssertionError("it never waited for the other push")
        reserve(bmc, False)
        await site.settle()
        assert await site.state(node_id) is State.AVAILABLE, (await site.node(node_id)).last_error
        assert front(bmc).firmware["BMC"] == "9.9.1"

    on_a_site_with(tmp_path, scenario, {"BMC": "9.9.1"}, {"BMC": image("BMC", "9.9.1")})
