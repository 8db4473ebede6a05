"""An operation that was aborted under a hold has ended; what it did is undone once the hold lifts, and not before."""

from __future__ import annotations

import asyncio

import pytest

from bcmetal.decisions import Ended, EndStatus, LastError
from bcmetal.states import WORKFLOWS, SideVerb, State, Verb
from bcmetal.store import claims, freezes, operations
from bcmetal.store.values import NewOperation
from bcmetal_drivers.resources import PowerState
from crash.life import LIFE
from emulated_site import OnASite, Site
from emulated_site_config import POOL


async def deployed_up_to(site: Site, step: str) -> tuple[str, str]:
    """A node in the middle of a deploy, and that operation."""
    bmc = site.rack.add_redfish("m1")
    site.rack.start()
    node_id = await site.enroll(bmc)
    for chapter in LIFE[:2]:
        assert await site.live(node_id, chapter.verb, chapter.params, **chapter.given) is chapter.state
    operation_id = await site.start(node_id, Verb.DEPLOY, **LIFE[2].given)
    await site.up_to(operation_id, lambda operation, at: at == step)
    return node_id, operation_id


async def abort_at_once(site: Site, node_id: str, operation_id: str) -> str:
    """As the API does it under a hold; the cleanup's id."""
    left = await site.operation(operation_id)
    cleanup = NewOperation(site.new_id("op"), "side", SideVerb.CLEANUP, "key:test", {"memo": dict(left.memo)})
    now = site.clock.now()
    error = LastError("aborted", "somebody aborted it", left.step or "", now)
    ended = Ended(operation_id, node_id, Verb.DEPLOY, EndStatus.ABORTED, State.DEPLOY_FAILED, True, error)
    await site.store.write(operations.end_now, node_id, ended, site.audit("abort", node_id), [], now, cleanup)
    return cleanup.operation_id


async def hold(site: Site, node_id: str, kind: str, on: bool) -> None:
    if kind == "maintenance":
        await site.set_node(node_id, maintenance=on)
    elif on:
        await site.store.write(freezes.set, "pool", POOL, "cooling works", "key:test", site.clock.now())
    else:
        await site.store.write(freezes.lift, "pool", POOL)


@pytest.mark.parametrize("kind", ["maintenance", "freeze"])
def test_the_cleanup_of_an_abort_waits_until_the_hold_lifts(kind: str, on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, operation_id = await deployed_up_to(site, "start_from_the_medium")
        bmc = site.rack.bmc("m1")
        assert bmc.machine.media is not None
        await hold(site, node_id, kind, True)
        cleanup_id = await abort_at_once(site, node_id, operation_id)
        assert await site.state(node_id) is State.DEPLOY_FAILED
        for _ in range(20):
            await site.advance()
        assert (await site.operation(cleanup_id)).status == "queued"
        assert bmc.machine.media is not None
        await hold(site, node_id, kind, False)
        await site.settle()
        assert (await site.operation(cleanup_id)).status == "done"
        assert bmc.machine.media is None
        assert bmc.machine.power is PowerState.OFF

    on_each_database(scenario)


def test_an_abort_while_a_call_is_under_way_leaves_the_node_alone_until_that_call_is_over(
    on_each_database: OnASite,
) -> None:
    async def scenario(site: Site) -> None:
        node_id, operation_id = await deployed_up_to(site, "start_from_the_medium")
        bmc = (await site.node(node_id)).bmc
        assert bmc is not None
        caps = {verb: row.cap for verb, row in WORKFLOWS.items()}
        async with site.lines.lock(bmc.bmc_id):
            working = asyncio.create_task(site.engine.tick())
            for _ in range(100):
                await asyncio.sleep(0.005)
            cleanup_id = await abort_at_once(site, node_id, operation_id)
            assert await site.store.write(claims.claim_due, "other-daemon", site.clock.now(), 9, caps) == []
        await working
        await site.settle()
        assert (await site.operation(cleanup_id)).status == "done"
        assert site.rack.bmc("m1").machine.media is None

    on_each_database(scenario)
