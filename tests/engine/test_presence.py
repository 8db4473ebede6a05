"""Daemons of one database work side by side only by one configuration."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from bcmetal.daemon import Daemon
from bcmetal.engine import Engine
from bcmetal.errors import StartRefused
from bcmetal.install.certificate import self_signed
from bcmetal.install.files import write_new
from bcmetal.presence import Presence
from bcmetal.states import State, Verb
from bcmetal.vault import new_key
from emulated_site import OnASite, Site
from emulated_site_config import CONFIG, ISO_SHA256, POOL, RESCUE_SHA256, TENANT


class Configured:
    """A daemon's presence whose configuration the test changes."""

    def __init__(self, site: Site, daemon_id: str, digest: str) -> None:
        self.digest = digest
        self.presence = Presence(site.store, daemon_id, lambda: self.digest)

    async def reload(self, digest: str) -> None:
        self.digest = digest
        await self.presence.beat()


def test_a_daemon_with_another_configuration_does_not_start_beside_a_live_one(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        one, two = Configured(site, "one", "d1"), Configured(site, "two", "d2")
        await one.presence.begin()
        with pytest.raises(StartRefused, match=r"differs from that of one, .*reload"):
            await two.presence.begin()
        await one.presence.beat()
        assert one.presence.differs is None
        await one.presence.end()
        await two.presence.begin()

    on_each_database(scenario)


def test_daemons_are_given_a_new_configuration_one_after_the_other(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        trio = [Configured(site, name, "d1") for name in ("one", "two", "three")]
        for one in trio:
            await one.presence.begin()
        working = []
        for one in trio:
            await one.reload("d2")
            for other in trio:
                await other.presence.beat()
            working.append([other.presence.differs is None for other in trio])
        assert working == [[False, True, True], [False, False, True], [True, True, True]]

    on_each_database(scenario)


def test_a_daemon_that_disagrees_claims_nothing_and_gives_back_what_it_had(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        elder, mine = Configured(site, "elder", "d1"), Configured(site, "test-daemon", "d1")
        for one in (elder, mine):
            await one.presence.begin()
        bmc = site.rack.add_redfish("m1")
        site.rack.start()
        node_id = await site.enroll(bmc)
        operation_id = await site.start(node_id, Verb.INSPECT)
        asked: list[bool] = []

        def may_work() -> bool:
            asked.append(mine.presence.differs is None)
            return asked[-1] and len(asked) < 3  # claims, begins, and is then told of the difference

        site.engine = Engine(site.engine.doors, site.lines, "test-daemon", may_work=may_work)
        assert await site.engine.tick() == 1
        assert (await site.operation(operation_id)).step == "log_in"  # the step that it was in was finished
        site.engine = Engine(
            site.engine.doors, site.lines, "test-daemon", may_work=lambda: mine.presence.differs is None
        )
        await mine.reload("d2")
        assert await site.engine.tick() == 0
        await elder.presence.end()
        await mine.presence.beat()
        await site.settle()
        assert await site.state(node_id) is State.INSPECTED

    on_each_database(scenario)


def a_config(folder: Path, name: str, database: str, **changes: str) -> Path:
    home = folder / name
    home.mkdir()
    new_key(home / "vault.key")
    values = {
        "database": database,
        "folder": str(home),
        "tenant": TENANT,
        "pool": POOL,
        "media_url": "http://127.0.0.1:1",
        "image_url": "http://127.0.0.1:1",
        "rescue_url": "http://127.0.0.1:1",
        "iso": ISO_SHA256,
        "rescue": RESCUE_SHA256,
        "erase": '["bmc"]',
    } | changes
    path = home / "bcmetal.toml"
    pair = self_signed(["127.0.0.1"])
    write_new(home / "api.crt", pair.certificate_pem, private=False)
    write_new(home / "tls.key", pair.key_pem, private=True)
    tls = f'tls_cert = "{home}/api.crt"\ntls_key = "file:{home}/tls.key"\n'
    path.write_text(CONFIG.format(**values).replace("[sites.site-a]", f"{tls}\n[sites.site-a]"))
    return path


@pytest.mark.postgresql
def test_a_second_daemon_says_why_it_does_not_start_and_starts_with_the_same_configuration(
    postgres_url: str, tmp_path: Path
) -> None:
    async def run() -> None:
        first = Daemon(a_config(tmp_path, "first", postgres_url))
        stop, ready = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(first.run(stop, ready))
        await asyncio.wait_for(ready.wait(), 30)
        other = Daemon(a_config(tmp_path, "other", postgres_url, erase='"none"'))
        with pytest.raises(StartRefused, match="differs from that of"):
            await other.run(asyncio.Event())
        same, begun, end = Daemon(a_config(tmp_path, "same", postgres_url)), asyncio.Event(), asyncio.Event()
        beside = asyncio.create_task(same.run(end, begun))
        await asyncio.wait_for(begun.wait(), 30)
        for event in (end, stop):
            event.set()
        await asyncio.gather(beside, serving)

    asyncio.run(run())


def test_a_daemon_outside_the_main_thread_says_that_it_cannot_reload(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def life() -> None:
        stop, ready = asyncio.Event(), asyncio.Event()
        daemon = Daemon(a_config(tmp_path, "elsewhere", f"sqlite:///{tmp_path}/db"))
        serving = asyncio.create_task(daemon.run(stop, ready))
        await asyncio.wait_for(ready.wait(), 30)
        stop.set()
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(life()))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert "the configuration cannot be read again while this daemon runs" in caplog.text
