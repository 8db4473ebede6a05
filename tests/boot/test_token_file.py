"""The boot token on a medium: laid over its place while it is served, whatever range is asked for, and nowhere else."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from bcmetal.boot import token_file
from bcmetal.boot.media import Ramdisks, media_app, media_config, new_path
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import VaultError
from bcmetal.store import media, nodes, operations, sealed
from bcmetal.store.engine import open_store
from bcmetal.store.values import Store
from bcmetal.vault import Vault, VaultKey
from bcmetal_agent import boot_token
from store.samples import NOW, a_move, a_new_node, an_audit, an_operation

OFFSET = 70_000
BEFORE = os.urandom(OFFSET)
AFTER = os.urandom(90_000)
ISO = BEFORE + boot_token.placeholder() + AFTER
BMC = "127.0.0.2"


@dataclass
class Answer:
    status: int
    fields: dict[str, str]
    body: bytes


@dataclass
class Site:
    """The media listener with a ramdisk, and a machine whose operation offers it."""

    store: Store
    folder: Path
    vault: Vault
    operation_id: str
    node_id: str
    port: int = 0
    now: Micros = NOW

    async def mint(self, ttl_s: int = 600) -> None:
        minted = token_file.fresh(self.vault, self.operation_id, self.now, os.urandom)
        until = Micros(self.now + ttl_s * SECOND)
        await self.store.write(token_file.mint, self.operation_id, self.node_id, minted, until, self.now)

    async def token(self) -> str | None:
        found = await token_file.token_of(self.store, self.vault, self.operation_id, self.now)
        return None if found is None else found.get_secret_value()

    async def offer(self, offset: int | None = OFFSET, file: str = "ramdisk.iso") -> str:
        path = new_path(os.urandom(10))
        where = (path, self.node_id, self.operation_id, "0" * 64, file, BMC, None, self.now)
        await self.store.write(media.add, *where, token_offset=offset)
        return path

    async def ask(self, path: str, method: str = "GET", **fields: str) -> Answer:
        return await asyncio.to_thread(self._ask, path, method, fields)

    def _ask(self, path: str, method: str, fields: dict[str, str]) -> Answer:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10, source_address=(BMC, 0))
        try:
            line.request(method, path, headers={name.replace("_", "-"): text for name, text in fields.items()})
            answer = line.getresponse()
            return Answer(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
        finally:
            line.close()


@asynccontextmanager
async def a_site(tmp_path: Path) -> AsyncIterator[Site]:
    store = open_store(f"sqlite:///{tmp_path / 'db'}")
    ramdisks = tmp_path / "ramdisk"
    for folder in (ramdisks, tmp_path / "images"):
        folder.mkdir()
    (ramdisks / "ramdisk.iso").write_bytes(ISO)
    (tmp_path / "images" / "image.iso").write_bytes(ISO)
    node, operation = a_new_node(), an_operation()
    await store.write(nodes.insert, node, NOW)
    await store.write(operations.start, node.node_id, None, a_move(), operation, an_audit(node.node_id), [], NOW)
    vault = Vault([VaultKey(os.urandom(32))])
    site = Site(store, ramdisks, vault, operation.operation_id, node.node_id)
    app = media_app(store, lambda: site.now, tmp_path / "images", ramdisks=Ramdisks(lambda: ramdisks, vault))
    server = uvicorn.Server(media_config(app))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
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


def play(tmp_path: Path, scenario: Callable[[Site], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        async with a_site(tmp_path) as site:
            await scenario(site)

    asyncio.run(run())


def test_the_token_is_in_its_place_and_every_other_byte_is_the_files(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        await site.mint()
        path = await site.offer()
        answer = await site.ask(path)
        assert (answer.status, answer.fields["content-length"]) == (200, str(len(ISO)))
        assert answer.body[:OFFSET] == BEFORE
        assert answer.body[OFFSET + boot_token.SIZE :] == AFTER
        assert boot_token.parse(answer.body[OFFSET : OFFSET + boot_token.SIZE]) == await site.token()
        assert (site.folder / "ramdisk.iso").read_bytes() == ISO
        assert await site.store.read(media.served_count, path) == 1

    play(tmp_path, scenario)


def test_ranges_that_cut_through_the_token_are_right(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        await site.mint()
        path = await site.offer()
        whole = (await site.ask(path)).body
        end = OFFSET + boot_token.SIZE
        spans = [
            (0, 9),
            (OFFSET - 1, OFFSET),
            (OFFSET, end - 1),
            (OFFSET + 100, OFFSET + 199),
            (end - 1, end),
            (OFFSET - 66_000, end + 70_000),
            (end, len(ISO) - 1),
        ]
        for first, last in spans:
            answer = await site.ask(path, Range=f"bytes={first}-{last}")
            assert (answer.status, answer.body) == (206, whole[first : last + 1])
            assert answer.fields["content-range"] == f"bytes {first}-{last}/{len(ISO)}"
        suffix = await site.ask(path, Range=f"bytes=-{len(AFTER) + 10}")
        assert suffix.body == whole[-len(AFTER) - 10 :]
        assert (await site.ask(path, Range="bytes=900000-")).status == 416
        several = await site.ask(path, Range="bytes=0-9,70000-70099")
        assert (several.status, several.body) == (200, whole)
        head = await site.ask(path, "HEAD")
        assert (head.status, head.body, head.fields["content-length"]) == (200, b"", str(len(ISO)))

    play(tmp_path, scenario)


def test_the_newest_token_is_served_and_after_its_end_none(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        path = await site.offer()
        assert (await site.ask(path)).body == ISO
        await site.mint()
        first = await site.token()
        before = await site.ask(path)
        await site.mint(ttl_s=60)
        answer = await site.ask(path)
        assert boot_token.parse(answer.body[OFFSET : OFFSET + boot_token.SIZE]) == await site.token() != first
        assert answer.fields["etag"] != before.fields["etag"]
        resumed = await site.ask(path, Range="bytes=70000-", If_Range=before.fields["etag"])
        assert resumed.status == 200  # a resumed download holds no half of each
        site.now = Micros(site.now + 60 * SECOND)
        assert await site.token() is None
        assert (await site.ask(path)).body == ISO

    play(tmp_path, scenario)


def test_nothing_is_laid_over_a_file_that_has_no_place_there(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        await site.mint()
        for offset in (OFFSET + 1, 0, 10**9):
            assert (await site.ask(await site.offer(offset))).status == 404
        assert (await site.ask(await site.offer(file="gone.iso"))).status == 404
        plain = await site.ask(await site.offer(None, "image.iso"))
        assert (plain.status, plain.body) == (200, ISO)
        (site.folder / "ramdisk.iso").write_bytes(AFTER + ISO)  # built anew since it was offered
        assert (await site.ask(await site.offer())).status == 404

    play(tmp_path, scenario)


def test_a_token_that_was_sealed_for_something_else_is_not_served(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        await site.mint()
        path = await site.offer()
        other = token_file.fresh(site.vault, site.operation_id, site.now, os.urandom)
        await site.store.write(sealed.put, [other.sealed])
        with pytest.raises(VaultError):
            await site.token()
        assert (await site.ask(path)).status == 404

    play(tmp_path, scenario)


@given(st.integers(0, 60), st.binary(max_size=40), st.integers(0, 60), st.binary(min_size=1, max_size=20))
def test_a_chunk_takes_from_the_piece_exactly_what_they_share(at: int, chunk: bytes, offset: int, piece: bytes) -> None:
    got = token_file.patched(chunk, at, piece, offset)
    assert len(got) == len(chunk)
    for n, byte in enumerate(got):
        where = at + n - offset
        assert byte == (piece[where] if 0 <= where < len(piece) else chunk[n])
