"""The ramdisk's own session against the daemon's own listener, over TLS: both sides read the wire alike."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection

from agent_door.site import AgentSite
from bcmetal.api.join_listeners import JoinListeners
from bcmetal.decisions import Micros
from bcmetal.join.ca import pem_of, sha256_of
from bcmetal.join.issuer_keys import row_of, seal_issuer
from bcmetal.settings import check
from bcmetal.store import agent_tasks, issuers, sealed
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.store.agents import AgentRow
from bcmetal.store.engine import system_micros
from bcmetal.store.issuers import CURRENT
from bcmetal.store.values import Json
from bcmetal.vault import Vault
from bcmetal_agent import wire_tasks
from bcmetal_agent.client import Refused
from bcmetal_agent.session import AnyTask, Session, Site
from bcmetal_agent.trust import Endpoint
from join import authority
from join.site import DOC

IMAGE = os.urandom(300_000)


def keep(c: Connection, ca: authority.Site, vault: Vault, now: Micros) -> None:
    issuers.add_root(c, sha256_of(ca.root.certificate), pem_of([ca.root.certificate]), now)
    for one in ca.issuers.values():
        issuers.add(c, row_of(one, CURRENT, "sealed", now, "tests"))
        sealed.put(c, [seal_issuer(vault, one)])


async def with_a_password(task: AgentTaskRow, agent: AgentRow) -> Json:
    return {**task.params, "passwordHash": f"for {agent.session_id}"}


@contextmanager
def serving(site: AgentSite) -> Iterator[Site]:
    """The listeners as the daemon opens them, in a thread; and what the image's site.json says of them."""
    site.now = Micros(system_micros())
    ca = authority.a_site(site.now)
    site.db.write(keep, ca, site.vault, site.now)
    places = {"agent_listen": "127.0.0.1:0", "node_listen": "127.0.0.1:0", "plain_boot_wait_s": 0}
    settings = check({**DOC, "daemon": places})
    joins = JoinListeners(
        site.db.store,
        site.vault,
        lambda: settings,
        lambda: site.now,
        os.urandom,
        site.woken.append,
        prepare={"rescue": with_a_password},
        images=site.folder,
    )
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        await joins.open()
        running = asyncio.create_task(joins.run(stop))
        while not joins.started and not running.done():
            await asyncio.sleep(0.01)
        ready.set()
        await running

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(20)
        assert joins.agent_address is not None
        roots = pem_of([ca.root.certificate])
        yield Site(Endpoint.parse(f"https://127.0.0.1:{joins.agent_address[1]}"), roots, "fra1")
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


def a_session(where: Site, folder: Path, token: str) -> Session:
    return Session(where, token, folder, root=folder / "no-such-root", clock=lambda moment: None)


def test_the_ramdisks_session_does_a_task_and_gets_its_image(one_site: AgentSite, tmp_path: Path) -> None:
    (one_site.folder / "image.raw").write_bytes(IMAGE)
    with serving(one_site) as where:
        token = one_site.a_token()
        session = a_session(where, tmp_path / "agent", token)
        assert isinstance(session.hello(), wire_tasks.Welcome)
        task_id = one_site.a_task("write", "writeImage", file="image.raw", compression="none")
        task = session.next()
        assert isinstance(task, AnyTask)
        assert (task.task_id, task.kind, task.params) == (task_id, "writeImage", {"compression": "none"})
        with session.image(100_000) as image:
            got = b"".join(iter(lambda: image.read(65_536), b""))
        assert got == IMAGE[100_000:]
        running = wire_tasks.Report(task_id, "running", 500, "half", log="one\n", log_offset=0)
        assert session.report(running) == wire_tasks.Heard(go_on=True)
        done = wire_tasks.Report(task_id, "done", 1000, result={"device": "sda"}, log="two\n", log_offset=4)
        assert session.report(done) == session.report(done) == wire_tasks.Heard(go_on=True)
        row = one_site.task("write")
        assert (row.state, row.result) == ("done", {"device": "sda"})
        assert one_site.db.read(agent_tasks.log_of, one_site.operation_id, "write") == "one\ntwo\n"

        again = a_session(where, tmp_path / "agent", token)  # killed, and started again
        assert isinstance(again.hello(), wire_tasks.Welcome)
        one_site.a_task("rescue", "rescue", user="rescue")
        rescue = again.next()
        assert isinstance(rescue, AnyTask)
        assert str(rescue.params["passwordHash"]).startswith("for as_")
        assert one_site.db.rows("SELECT count(*) FROM agents") == [(1,)]


def test_the_ramdisks_session_is_refused_in_words_when_its_place_was_taken(one_site: AgentSite, tmp_path: Path) -> None:
    with serving(one_site) as where:
        token = one_site.a_token()
        first = a_session(where, tmp_path / "first", token)
        second = a_session(where, tmp_path / "second", token)
        assert isinstance(first.hello(), wire_tasks.Welcome)
        answer = second.hello()
        assert isinstance(answer, Refused)
        assert (answer.status, "used with two keys" in answer.message) == (403, True)
        over = first.next()
        assert isinstance(over, Refused)
        assert (over.status, over.code) == (403, "PERMISSION_DENIED")
