"""Firmware, settings and mends killed right after each of their writes at the BMC: the end is the same, and nothing is sent twice."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from bcmetal.decisions import Params
from bcmetal.states import State, Verb
from bcmetal_drivers.emulated.board import DEFAULTS
from bcmetal_drivers.emulated.firmware import image
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import PowerState
from crash.effects import Crashed, Effects, MortalStore
from emulated_site import Site, a_site, iso_server

pytestmark = pytest.mark.slow
UPDATE = image("BMC", "9.9.1")
Begin = Callable[[], Awaitable[None]]


def front(bmc: EmulatedBmc) -> RedfishFront:
    assert isinstance(bmc.front, RedfishFront)
    return bmc.front


async def killed_after_each_write(site: Site, begin: Begin, end: Callable[[str], Awaitable[None]]) -> list[str]:
    """Record a run, then kill one after each write that reached the BMC in it; what they were."""
    effects = Effects(site.rack, site.store)
    site.engines_store = MortalStore(site.store, effects)
    await site.restart()
    await begin()
    effects.begin()
    await site.settle()
    await end("nothing")
    writes = [n for n, what in enumerate(effects.seen, 1) if not what.startswith("commit")]
    killed = []
    for nth in range(1, len(writes) + 1):
        await begin()
        effects.begin(at_write=nth)
        with suppress(Crashed):
            await site.settle()
        assert effects.dead
        killed.append(effects.seen[-1])
        effects.begin()
        await site.restart()
        await site.settle()
        await end(killed[-1])
    return killed


def test_a_service_killed_after_any_write_brings_firmware_and_settings_once(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        digest = hashlib.sha256(UPDATE).hexdigest()
        firmware = f'[firmware.base]\n"BMC" = {{ version = "9.9.1", url = "{url}/bmc.raw", sha256 = "{digest}" }}'
        profile = 'firmware = "base"\nsecure_boot_keys = "factory"\nbios = { BootRetryCount = 9 }'
        async with a_site(tmp_path, None, '"none"', places={"commission": profile, "more": firmware}) as site:
            bmc = site.rack.add_redfish("m1", drives=1)
            old = bmc.machine.board
            site.rack.start()
            node_id = await site.enroll(bmc)
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
            await site.store.write(_now, node_id, State.AVAILABLE)
            posted = 0

            async def begin() -> None:
                nonlocal posted
                front(bmc).firmware["BMC"] = "1.0"
                old.bios, old.keys = dict(DEFAULTS), dict.fromkeys(old.keys, "custom")
                posted = _updates(site)
                await site.start(
                    node_id, Verb.SERVICE, steps=["secureBootKeys", "firmware", "bios"], profile="standard"
                )

            async def end(last: str) -> None:
                node = await site.node(node_id)
                assert node.facts.state is State.AVAILABLE, (last, node.last_error)
                assert front(bmc).firmware["BMC"] == "9.9.1", last
                assert old.bios["BootRetryCount"] == 9, last
                assert set(old.keys.values()) == {"factory"}, last
                assert bmc.machine.power is PowerState.OFF, last
                assert _updates(site) - posted == 1, last

            killed = await killed_after_each_write(site, begin, end)
            assert any("SimpleUpdate" in one for one in killed)
            assert any("Bios" in one for one in killed)

    with iso_server(UPDATE) as url:
        asyncio.run(run(url))


def _updates(site: Site) -> int:
    return sum("SimpleUpdate" in write.path for write in site.rack.writes)


def test_a_release_killed_after_any_write_leaves_nothing_that_was_planted(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_site(tmp_path, None, '"none"') as site:
            bmc = site.rack.add_redfish("m1", drives=1)
            site.rack.start()
            node_id = await site.enroll(bmc)
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
            assert await site.live(node_id, Verb.COMMISSION) is State.AVAILABLE

            async def begin() -> None:
                bmc.host_side.add_account("mallory")
                bmc.host_side.use_directory("ldap://192.0.2.66")
                bmc.host_side.subscribe("https://192.0.2.66/events")
                bmc.host_side.change_bios("BootRetryCount", 9)
                await site.store.write(_now, node_id, State.DEPLOYED)
                await site.start(node_id, Verb.RELEASE, Params())

            async def end(last: str) -> None:
                node = await site.node(node_id)
                assert node.facts.state is State.AVAILABLE, (last, node.last_error)
                there = front(bmc)
                assert len(there.accounts.slots) == 1, last
                assert not there.outlets.directories["LDAP"].enabled, last
                assert there.outlets.subscriptions == {}, last
                assert bmc.machine.board.bios == DEFAULTS, last
                assert bmc.machine.power is PowerState.OFF, last

            killed = await killed_after_each_write(site, begin, end)
            assert any("Accounts" in one for one in killed)
            assert any("Bios" in one for one in killed)

    asyncio.run(run())


def _now(c: Connection, node_id: str, state: State) -> None:
    disks = "tenant" if state is State.DEPLOYED else "clean"
    asked = {"state": state.value, "disks": disks, "node_id": node_id}
    c.execute(text("UPDATE nodes SET state = :state, disks = :disks WHERE node_id = :node_id"), asked)
