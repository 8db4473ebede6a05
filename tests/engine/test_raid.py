"""A commission lays out a controller's volumes as its profile says, and is done only when the controller shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bcmetal.states import State, Verb
from bcmetal_drivers.capabilities import Volumes, need
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import Volume
from emulated_site import Site, a_site

RAID = 'raid = [{ raid = "RAID1", count = 2, name = "system" }]'
Scenario = Callable[[Site], Awaitable[None]]


def with_profile(folder: Path, profile: str, scenario: Scenario) -> None:
    async def whole() -> None:
        async with a_site(folder, places={"commission": profile}) as site:
            await scenario(site)

    asyncio.run(whole())


async def commissioned(site: Site, **quirks: Any) -> tuple[EmulatedBmc, str, State]:
    bmc = site.rack.add_redfish("m1", drives=4, **quirks)
    site.rack.start()
    node_id = await site.enroll(bmc)
    await site.live(node_id, Verb.INSPECT)
    return bmc, node_id, await site.live(node_id, Verb.COMMISSION)


async def volumes(site: Site, node_id: str) -> tuple[Volume, ...]:
    """As the BMC shows them."""
    line = site.lines.to(await site.peek(node_id), site.settings.pools["pool-a"], "op_test")
    return await line.call(need(line.bmc, Volumes).volumes)


async def has_the_mirror(site: Site, node_id: str) -> None:
    [made] = await volumes(site, node_id)
    assert (made.raid, len(made.drives)) == ("RAID1", 2)


@pytest.mark.parametrize(
    "quirks", [{}, {"volume_task": False}, {"volume_s": 60.0}], ids=lambda one: "-".join(one) or "plain"
)
def test_the_volumes_of_the_profile_are_made_and_others_deleted(tmp_path: Path, quirks: dict[str, Any]) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id, state = await commissioned(site, **quirks)
        assert state is State.AVAILABLE, (await site.node(node_id)).last_error
        await has_the_mirror(site, node_id)
        # what an erase by the BMC deletes is made again
        assert await site.live(node_id, Verb.COMMISSION) is State.AVAILABLE, (await site.node(node_id)).last_error
        await has_the_mirror(site, node_id)
        if not quirks:
            assert await site.live(node_id, Verb.DEPLOY, image={"name": "os"}, kind="iso") is State.DEPLOYED
            for serial in bmc.machine.drives:
                bmc.machine.plant(serial)
            assert await site.live(node_id, Verb.RELEASE) is State.AVAILABLE, (await site.node(node_id)).last_error
            assert not any(drive.holds_data for drive in bmc.machine.drives.values())
            await has_the_mirror(site, node_id)

    with_profile(tmp_path, RAID, scenario)


def test_a_layout_that_the_drives_do_not_make_fails_in_words(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        _, node_id, state = await commissioned(site)
        assert state is State.COMMISSION_FAILED
        error = (await site.node(node_id)).last_error
        assert error is not None
        assert (error["code"], error["step"]) == ("raid", "lay_out_the_raid")

    with_profile(tmp_path, 'raid = [{ raid = "RAID6", count = 8 }]', scenario)
