"""What a line leaves behind that broke: polls and images that nobody reads any more; and a rescued machine's agent, which calls on."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from agent_door.conftest import copied, opened
from agent_door.site import ADDRESS, Agent, AgentSite
from bcmetal.api.agent_images import AT_ONCE, Images
from bcmetal.errors import RateLimited
from bcmetal.states import State, Verb
from bcmetal.store.agent_tasks import AgentTaskRow, end, put
from bcmetal.store.agents import AgentRow
from bcmetal.store.values import Json
from bcmetal_agent import wire_tasks
from in_process import Answered
from store.samples import an_end, save, under_way


async def polling(site: AgentSite, app: Any, agent: Agent, number: int) -> Answered:
    headers = agent.headers("POST", wire_tasks.NEXT_PATH, b"{}", number) | {"Content-Type": "application/json"}
    return await site.patient(app, "POST", wire_tasks.NEXT_PATH, b"{}", headers)


def test_a_poll_that_was_overtaken_hands_out_nothing(site: AgentSite) -> None:
    """Its line broke; the agent asked again, of this daemon or of another. One secret is made, for whoever reads the answer."""
    made: list[int] = []

    async def prepare(task: AgentTaskRow, agent: AgentRow) -> Json:
        made.append(agent.sequence)
        return {}

    site.prepare["rescue"] = prepare
    agent = site.an_agent().welcomed()
    apps = (site.an_app(poll_s=30), site.an_app(poll_s=30))

    async def scenario() -> tuple[Answered, Answered]:
        loop = asyncio.get_running_loop()
        stale = loop.create_task(polling(site, apps[0], agent, 1))
        await asyncio.sleep(0.2)
        fresh = loop.create_task(polling(site, apps[1], agent, 2))
        await asyncio.sleep(0.2)
        await site.db.store.write(put, site.operation_id, site.node_id, "rescue", "rescue", {}, site.now)
        return await asyncio.wait_for(asyncio.gather(stale, fresh), 20)

    stale, fresh = site.db.run(scenario())
    assert (stale.status, fresh.status, fresh.doc["kind"]) == (409, 200, "rescue")
    assert made == [2]


def test_a_poll_that_is_overtaken_while_its_secret_is_made_hands_out_nothing(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    later: list[Answered] = []

    async def prepare(task: AgentTaskRow, of: AgentRow) -> Json:
        if of.sequence == 1:
            later.append(await polling(site, site.app, agent, 2))
        return {"n": of.sequence}

    site.prepare["rescue"] = prepare
    site.app = site.an_app()
    site.a_task("rescue", "rescue")
    assert agent.next().status == 409
    assert [one.doc["params"] for one in later] == [{"n": 2}]


def test_a_task_that_is_given_up_while_its_secret_is_made_is_not_handed_out(site: AgentSite) -> None:
    async def prepare(task: AgentTaskRow, of: AgentRow) -> Json:
        await site.db.store.write(end, site.operation_id, site.now)
        return {"secret": "for nobody"}

    site.prepare["rescue"] = prepare
    site.app = site.an_app()
    agent = site.an_agent().welcomed()
    site.a_task("rescue", "rescue")
    assert agent.next().doc["status"] == "idle"
    assert site.task("rescue").state == "waiting"


# ---------------------------------------------------------------- images


def test_several_ranges_at_once_are_the_whole_image(one_site: AgentSite) -> None:
    (one_site.folder / "image.raw").write_bytes(bytes(1000))
    agent = one_site.an_agent().welcomed()
    one_site.a_task("write", "writeImage", file="image.raw")
    agent.next()
    answer = agent.image(Range="bytes=" + ",".join(f"{n}-{n}" for n in range(500)))
    assert (answer.status, answer.raw) == (200, bytes(1000))


def test_who_takes_no_bytes_is_cut_and_one_agent_reads_a_few_at_once(tmp_path: Path) -> None:
    file = tmp_path / "image.raw"
    file.write_bytes(bytes(1_000_000))
    images = Images(stall_s=0.3)
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": [], "extensions": {}}

    async def scenario() -> None:
        never = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await never.wait()
            return {}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                await never.wait()

        async def served() -> None:
            await images.answer(file, "as_1")(scope, receive, send)

        running = [asyncio.create_task(served()) for _ in range(AT_ONCE)]
        await asyncio.sleep(0.05)
        with pytest.raises(RateLimited):
            images.answer(file, "as_1")
        images.answer(file, "as_2")
        await asyncio.wait_for(asyncio.gather(*running), 10)
        images.answer(file, "as_1")

    asyncio.run(scenario())


# ---------------------------------------------------------------- after a rescue


@pytest.mark.parametrize(
    ("state", "reason", "condition"),
    [
        (State.RESCUED, "rescued", None),
        (State.UNRESCUING, "rescued", None),
        (State.DEPLOYED, "not-ours-to-run", ("warning", "not-ours-to-run")),
    ],
)
def test_a_rescued_machines_agent_calls_on_without_an_alarm(
    site: AgentSite, state: State, reason: str, condition: tuple[str, str] | None
) -> None:
    site.node_id, site.operation_id, held = under_way(site.db, Verb.RESCUE, State.DEPLOYED)
    agent = site.an_agent()
    agent.says = {"productUuid": "22222222-2222-4333-8444-555555555555", "serial": "SN00002X"}
    agent.welcomed()
    save(site.db, held, site.operation_id, an_end(site.node_id, site.operation_id, State.RESCUED, verb=Verb.RESCUE))
    site.db.sql("UPDATE nodes SET state = :state WHERE node_id = :id", state=state.value, id=site.node_id)
    assert agent.next().status == 403
    for one in (
        agent,
        Agent(site, agent.token, says=agent.says),
    ):  # also a machine that was started again by the medium
        answer = one.hello(address=ADDRESS)
        assert (answer.status, answer.error["details"]["reason"]) == (403, reason)
    assert site.condition() == condition


def test_no_log_at_any_level_holds_a_token_or_what_is_handed_out(
    tmp_path: Path, sqlite_template: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = os.urandom(12).hex()

    async def prepare(task: AgentTaskRow, of: AgentRow) -> Json:
        return {"passwordHash": secret}

    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "sqlalchemy.engine")  # before it is opened: it then tells every statement and row
    for site in opened(copied(sqlite_template, tmp_path), tmp_path):
        site.prepare["rescue"] = prepare
        site.app = site.an_app()
        agent = site.an_agent().welcomed()
        site.a_task("rescue", "rescue")
        assert agent.next().doc["params"] == {"passwordHash": secret}
        assert Agent(site, agent.token, says={"macs": ["nonsense"]}).hello().status == 400
        assert Agent(site, agent.token).hello().status == 403
        assert "INSERT INTO boot_tokens" in caplog.text
        for one in (secret, agent.token, agent.token.partition(".")[2]):
            assert one not in caplog.text
