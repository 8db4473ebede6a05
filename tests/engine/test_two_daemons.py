"""Two daemons on one PostgreSQL share the work, and nothing is done twice; one that dies is taken over from."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bcmetal.engine import Engine
from bcmetal.line import Lines
from bcmetal.states import State
from bcmetal.store import claims
from bcmetal.store.engine import open_store
from bcmetal.workflows.machine import Doors
from crash.life import LIFE, plant_everywhere
from emulated_site import Site, a_site

pytestmark = pytest.mark.postgresql
MACHINES = 6


async def both(site: Site, other: Engine) -> None:
    """Run two engines side by side until nothing is due."""
    for _ in range(4000):
        before = site.clock.now()
        worked = await asyncio.gather(site.engine.tick(), other.tick())
        if any(worked):
            continue
        due = await site.store.read(claims.next_due, before)
        if due is None:
            return
        site.clock.skip_to(due)
    raise AssertionError("the engines did not come to rest")


def test_two_daemons_share_the_work_and_no_machine_is_started_twice(postgres_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with a_site(tmp_path, postgres_url) as site:
            store = open_store(postgres_url)
            doors = Doors(
                store, site.clock, site.engine.doors.entropy, lambda: site.settings, site.shelf, site.engine.doors.vault
            )
            lines = Lines(store, site.clock, site.vault, lambda: site.settings)
            other = Engine(doors, lines, "other-daemon")
            bmcs = [site.rack.add_redfish(f"m{n}", drives=1) for n in range(MACHINES)]
            site.rack.start()
            try:
                ids = [await site.enroll(bmc) for bmc in bmcs]
                for chapter in LIFE:
                    boots = [len(bmc.machine.boots) for bmc in bmcs]
                    for bmc, node_id in zip(bmcs, ids, strict=True):
                        if chapter.plant:
                            plant_everywhere(bmc)
                        await site.start(node_id, chapter.verb, chapter.params, **chapter.given)
                    await both(site, other)
                    for bmc, node_id, before in zip(bmcs, ids, boots, strict=True):
                        assert await site.state(node_id) is chapter.state, (await site.node(node_id)).last_error
                        assert chapter.judge(bmc, before) == []
                assert all([await site.state(node_id) is State.RETIRED for node_id in ids])
            finally:
                await lines.close()
                await store.close()

    asyncio.run(run())
