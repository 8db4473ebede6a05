"""What drivers learn of a BMC is stored with it, given back to the next driver, and shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bcmetal.states import SideVerb, State, Verb
from bcmetal.store import nodes, views
from bcmetal.store.values import SetBmc
from bcmetal_drivers.capabilities import Bmc
from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust
from bcmetal_drivers.registry import open_bmc
from emulated_site import OnASite, Site


def noting(site: Site) -> list[dict[str, object]]:
    """What each driver is opened with from now on."""
    given: list[dict[str, object]] = []

    def opened(
        address: BmcAddress, credential: Credential, trust: Trust, limits: Limits, learned: Mapping[str, object]
    ) -> Bmc:
        given.append(dict(learned))
        return open_bmc(address, credential, trust, limits, learned)

    site.lines.open_bmc = opened
    return given


async def learned(site: Site, node_id: str) -> dict[str, Any]:
    bmc = (await site.node(node_id)).bmc
    assert bmc is not None
    return dict(bmc.learned)


async def an_inspected_node(site: Site, **settings: Any) -> str:
    bmc = site.rack.add_redfish("m1", **settings)
    site.rack.start()
    node_id = await site.enroll(bmc)
    await site.start(node_id, Verb.INSPECT)
    await site.settle()
    assert await site.state(node_id) is State.INSPECTED
    return node_id


def test_what_was_learned_is_kept_shown_and_given_to_the_next_driver(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await an_inspected_node(site, session_service=False)
        found = await learned(site, node_id)
        assert found["login"] == "basic"
        assert found["who"]
        (view,) = await site.store.read(views.read, [node_id])
        assert view.stored is not None
        assert json.loads(view.stored)["bmc"]["learned"] == found
        await site.lines.close_idle(older_s=-1)
        given = noting(site)
        await site.queue(node_id, SideVerb.REFRESH)
        await site.settle()
        assert given == [found]
        assert await learned(site, node_id) == found

    on_a_site(scenario)


def test_what_turns_out_wrong_is_mended_in_the_store(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await an_inspected_node(site)
        stale = {"login": "basic", "sessions": "/redfish/v1/Elsewhere", "etag": 5, "who": {"firmware": "0.0.1"}}
        node = await site.node(node_id)
        await site.store.write(nodes.apply, node_id, [SetBmc({"learned": stale})], site.clock.now())
        await site.lines.close_idle(older_s=-1)
        await site.queue(node_id, SideVerb.REFRESH)
        await site.settle()
        found = await learned(site, node_id)
        assert node.bmc is not None
        assert found["who"] == node.bmc.learned["who"]
        assert "etag" not in found

    on_a_site(scenario)
