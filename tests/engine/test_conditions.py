"""Conditions that a look or an act leaves: a wrong clock, a medium that stays, a boot over plain HTTP, a serial that two machines have."""

from __future__ import annotations

import pytest

from bcmetal.decisions import SECOND, Micros
from bcmetal.states import SideVerb, State, Verb
from bcmetal.workflows.observing import SKEW_MS, skew_ms
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.replies import NULL
from crash.life import LIFE
from emulated_site import OnASite, Site
from emulated_site_config import ISO_SHA256


async def up_to(site: Site, state: State) -> str:
    """A node taken through its life up to a rest state."""
    bmc = site.rack.add_redfish("m1")
    site.rack.start()
    node_id = await site.enroll(bmc)
    for chapter in LIFE:
        assert await site.live(node_id, chapter.verb, chapter.params, **chapter.given) is chapter.state
        if chapter.state is state:
            return node_id
    raise AssertionError(f"no life leads to {state}")


async def refresh(site: Site, node_id: str) -> dict[str, tuple[str, str]]:
    await site.queue(node_id, SideVerb.REFRESH)
    await site.settle()
    return await site.conditions(node_id)


# ---------------------------------------------------------------- clock

NOON = Micros(1_900_000_000 * SECOND)  # 2030-03-17T17:46:40Z


@pytest.mark.parametrize(
    ("told", "skew"),
    [
        ("2030-03-17T17:46:40Z", 0),
        ("2030-03-17T18:46:41+01:00", 1000),
        ("2030-03-17T17:46:39.5Z", -500),
        ("2030-03-17T17:46:40", None),
        ("noon", None),
        ("", None),
        (None, None),
    ],
)
def test_a_clock_is_compared_where_it_tells_its_offset(told: str | None, skew: int | None) -> None:
    assert skew_ms(told, NOON) == skew


@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_that_is_wrong_is_told_until_it_is_right(sign: int, on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        bmc.set(clock_skew_s=sign * 3600.0)
        node_id = await site.enroll(bmc)
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        assert (await site.conditions(node_id))["clock"] == ("warning", "clock-skew")
        sighting = (await site.peek(node_id)).sighting
        assert sighting is not None
        assert sign * sighting["clock_skew_ms"] > SKEW_MS
        bmc.set(clock_skew_s=0.0)
        assert "clock" not in await refresh(site, node_id)

    on_a_site(scenario)


# ---------------------------------------------------------------- media, boot path


def test_a_medium_that_does_not_come_out_is_told_until_it_does(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await up_to(site, State.DEPLOYED)
        number = site.rack.rule(Rule(action="refuse", path="EjectMedia", method="POST", status=503))
        operation_id = await site.start(node_id, Verb.RELEASE)
        await site.up_to(operation_id, lambda operation, step: step == "eject_media")
        await site.advance()
        assert (await site.conditions(node_id))["media"] == ("warning", "not-ejected")
        site.rack.clear(number)
        await site.settle()
        assert await site.state(node_id) is State.AVAILABLE
        assert "media" not in await site.conditions(node_id)

    on_a_site(scenario)


def test_a_medium_of_which_the_bmc_shows_nothing_goes_out_by_one_eject(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await up_to(site, State.DEPLOYED)
        bmc = site.rack.bmc("m1")
        bmc.machine.insert("http://127.0.0.1:1/elsewhere.iso", ISO_SHA256)
        unseen = {"Inserted": True, "Image": NULL, "ImageName": NULL, "ConnectedVia": NULL}
        bmc.overlay({r"/redfish/v1/Systems/[^/]+/VirtualMedia/Cd$": unseen})
        before = len(site.rack.writes)
        assert await site.live(node_id, Verb.RELEASE) is State.AVAILABLE
        assert bmc.machine.medium() is None
        assert len([write for write in site.rack.writes[before:] if write.path.endswith("EjectMedia")]) == 1

    on_a_site(scenario)


@pytest.mark.parametrize("state", [State.AVAILABLE, State.DEPLOYED])
def test_a_medium_that_we_did_not_offer_is_told_where_none_belongs(state: State, on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await up_to(site, state)
        assert "media" not in await refresh(site, node_id)  # a deployed machine's own medium belongs there
        machine = site.rack.bmc("m1").machine
        machine.insert("http://127.0.0.1:1/elsewhere.iso", ISO_SHA256)
        assert (await refresh(site, node_id))["media"] == ("warning", "unexpected-medium")
        machine.eject()
        assert "media" not in await refresh(site, node_id)

    on_a_site(scenario)


def test_a_boot_over_plain_http_is_told_until_its_medium_is_withdrawn(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await up_to(site, State.DEPLOYED)
        assert (await site.conditions(node_id))["boot-path"] == ("warning", "plain-http")
        assert await site.live(node_id, Verb.RELEASE) is State.AVAILABLE
        assert "boot-path" not in await site.conditions(node_id)

    on_a_site(scenario)
