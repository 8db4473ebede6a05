"""The media listener, over a real uvicorn and a real store, asked from several loopback addresses."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn

from bcmetal.boot.media import media_app, media_config, new_path
from bcmetal.boot.outbound import Resolver
from bcmetal.decisions import SECOND, Micros
from bcmetal.store import media
from bcmetal.store.engine import open_store
from bcmetal.store.values import Store

BODY = os.urandom(200_000)
BMC = "127.0.0.2"
OTHER = "127.0.0.3"
START = Micros(1_700_000_000 * SECOND)


@dataclass
class Answer:
    status: int
    fields: dict[str, str]
    body: bytes


@dataclass
class Site:
    """The listener with one medium on its shelf, and a clock that the test moves."""

    store: Store
    folder: Path
    port: int = 0
    now: Micros = START
    names: dict[str, Sequence[str]] = field(default_factory=dict)
    resolved: int = 0

    def later(self, seconds: int) -> None:
        self.now = Micros(self.now + seconds * SECOND)

    async def offer(self, host: str = BMC, file: str = "image.iso", expires_at: Micros | None = None) -> str:
        path = new_path(os.urandom(10))
        await self.store.write(media.add, path, "nd_1", "op_1", "0" * 64, file, host, expires_at, self.now)
        return path

    async def served(self, path: str) -> int:
        return await self.store.read(media.served_count, path)

    async def ask(self, path: str, by: str = BMC, method: str = "GET", **fields: str) -> Answer:
        return await asyncio.to_thread(self._ask, path, by, method, fields)

    def _ask(self, path: str, by: str, method: str, fields: dict[str, str]) -> Answer:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10, source_address=(by, 0))
        try:
            line.request(method, path, headers={name.replace("_", "-"): text for name, text in fields.items()})
            answer = line.getresponse()
            return Answer(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
        finally:
            line.close()

    def resolve(self, host: str, port: int) -> Sequence[str]:
        self.resolved += 1
        if host not in self.names:
            raise OSError("no such name")
        return self.names[host]


@asynccontextmanager
async def a_site(tmp_path: Path, dual_stack: bool = False) -> AsyncIterator[Site]:
    store = open_store(f"sqlite:///{tmp_path / 'db'}")
    site = Site(store, tmp_path / "images")
    site.folder.mkdir()
    (site.folder / "image.iso").write_bytes(BODY)
    (tmp_path / "outside.iso").write_bytes(b"not for BMCs")
    resolver: Resolver = site.resolve
    app = media_app(store, lambda: site.now, site.folder, resolver=resolver)
    server = uvicorn.Server(media_config(app))
    with socket.socket(socket.AF_INET6 if dual_stack else socket.AF_INET) as listener:
        if dual_stack:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::ffff:127.0.0.1" if dual_stack else "127.0.0.1", 0))
        site.port = listener.getsockname()[1]
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                assert not task.done()
                await asyncio.sleep(0.005)
            yield site
        finally:
            server.should_exit = True
            await task
            await store.close()


Scenario = Callable[[Site], Coroutine[None, None, None]]


def play(tmp_path: Path, scenario: Scenario, dual_stack: bool = False) -> None:
    async def run() -> None:
        async with a_site(tmp_path, dual_stack) as site:
            await scenario(site)

    asyncio.run(run())


def test_a_path_is_short_plain_and_fresh() -> None:
    assert new_path(bytes(10)) == "/m/0000000000000000.iso"
    assert new_path(b"\xff" * 16) == "/m/zzzzzzzzzzzzzzzz.iso"
    assert new_path(bytes(9) + b"\x01" + b"\xff") == "/m/0000000000000001.iso"
    paths = {new_path(os.urandom(10)) for _ in range(1000)}
    assert len(paths) == 1000
    assert all(re.fullmatch(r"/m/[0-9a-hjkmnp-tv-z]{16}\.iso", path) for path in paths)
    with pytest.raises(ValueError):
        new_path(bytes(9))


def test_the_bmc_fetches_its_medium_and_is_seen_to(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        path = await site.offer()
        assert await site.served(path) == 0
        for n in (1, 2):
            answer = await site.ask(path)
            assert (answer.status, answer.body) == (200, BODY)
            assert await site.served(path) == n
        assert answer.fields["content-length"] == str(len(BODY))
        assert answer.fields["accept-ranges"] == "bytes"
        assert "server" not in answer.fields
        assert "content-disposition" not in answer.fields

    play(tmp_path, scenario)


def test_nobody_else_gets_it_whatever_they_claim(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        path = await site.offer()
        for fields in ({}, {"X_Forwarded_For": BMC}, {"Forwarded": f"for={BMC}"}, {"X_Real_IP": BMC}):
            for by in (OTHER, "127.0.0.1"):
                answer = await site.ask(path, by, **fields)
                assert (answer.status, answer.body) == (404, b"not found\n")
        assert await site.served(path) == 0

    play(tmp_path, scenario)


def test_whatever_is_not_there_has_one_answer(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        path = await site.offer()
        gone = await site.offer(file="pruned.iso")
        outside = await site.offer(file="../outside.iso")
        asked = [
            await site.ask(where, method=method)
            for method, where in (
                ("GET", "/"),
                ("GET", "/m/"),
                ("GET", "/m"),
                ("GET", new_path(os.urandom(10))),
                ("GET", path.upper()),
                ("GET", path + "/"),
                ("GET", path + "?x=1"),
                ("GET", "/" + path),
                ("GET", "/m/../images/image.iso"),
                ("GET", "/m/%2e%2e/image.iso"),
                ("GET", "/image.iso"),
                ("GET", gone),
                ("GET", outside),
                ("POST", path),
                ("PUT", path),
                ("DELETE", path),
                ("OPTIONS", path),
                ("PROPFIND", path),
            )
        ]
        asked.append(await site.ask(path, OTHER))
        varying = {"date"}
        one = {
            (a.status, a.body, tuple(sorted((n, t) for n, t in a.fields.items() if n not in varying))) for a in asked
        }
        assert len(one) == 1
        assert asked[0].status == 404
        assert await site.served(path) == 0

    play(tmp_path, scenario)


def test_a_range_is_served_and_a_burst_of_them_counts_once_a_second(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        path = await site.offer()
        for start in (0, 1000, 199_990):
            answer = await site.ask(path, Range=f"bytes={start}-{start + 9}")
            assert (answer.status, answer.body) == (206, BODY[start : start + 10])
            assert answer.fields["content-range"] == f"bytes {start}-{start + 9}/{len(BODY)}"
        assert await site.served(path) == 1
        site.later(1)
        assert (await site.ask(path, Range="bytes=-5")).body == BODY[-5:]
        assert await site.served(path) == 2
        assert (await site.ask(path, Range="bytes=900000-")).status == 416

    play(tmp_path, scenario)


def test_a_head_tells_the_size_and_counts_nothing(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        path = await site.offer()
        answer = await site.ask(path, method="HEAD")
        assert (answer.status, answer.fields["content-length"], answer.body) == (200, str(len(BODY)), b"")
        assert (await site.ask(path, OTHER, "HEAD")).status == 404
        assert await site.served(path) == 0

    play(tmp_path, scenario)


def test_a_medium_ends_at_its_expiry(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        path = await site.offer(expires_at=Micros(START + 10 * SECOND))
        assert (await site.ask(path)).status == 200
        site.later(10)
        assert (await site.ask(path)).status == 404

    play(tmp_path, scenario)


def test_a_medium_ends_with_its_operation(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        path = await site.offer()
        assert (await site.ask(path)).status == 200
        await site.store.write(media.end, "op_1", site.now)
        assert (await site.ask(path)).status == 404

    play(tmp_path, scenario)


def test_on_a_dual_stack_listener_the_bmc_is_known_by_its_ipv4_address(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        path = await site.offer()
        assert (await site.ask(path)).status == 200
        assert (await site.ask(path, OTHER)).status == 404
        mapped = await site.offer("[::ffff:127.0.0.2]")
        assert (await site.ask(mapped)).status == 200

    play(tmp_path, scenario, dual_stack=True)


def test_a_bmc_that_is_known_by_name_is_served_at_what_the_name_leads_to(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        site.names["bmc.example"] = ("fd12::1", BMC)
        path = await site.offer("bmc.example")
        lost = await site.offer("gone.example")
        assert [(await site.ask(path, by)).status for by in (BMC, OTHER, BMC)] == [200, 404, 200]
        assert site.resolved == 1
        assert (await site.ask(lost)).status == 404
        site.names["bmc.example"] = (OTHER,)
        site.later(61)
        assert [(await site.ask(path, by)).status for by in (BMC, OTHER)] == [404, 200]

    play(tmp_path, scenario)
