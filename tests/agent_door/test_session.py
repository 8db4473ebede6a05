"""What an agent asks after its hello: each call is signed for itself, and each has its turn once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection

from agent_door.site import MAC, PLAIN_WAIT_S, SERIAL, UUID, Agent, AgentSite, a_machine
from bcmetal.api.agent_waits import Waits
from bcmetal.api.agents import CALL_BURST
from bcmetal.decisions import Micros
from bcmetal.store import agent_tasks, agents, operations
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.store.agents import AgentRow
from bcmetal.store.values import Json, Store
from bcmetal_agent import wire, wire_tasks
from in_process import Answered
from store.samples import an_audit

P = ParamSpec("P")
T = TypeVar("T")
IMAGE = bytes(range(256)) * 40


def test_a_task_goes_from_the_workflow_to_the_agent_and_its_result_back(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    assert agent.next().doc == {"status": "idle", "afterS": 0}
    task_id = site.a_task("cpu", "test", name="cpu", durationS=60)
    answer = agent.next()
    task = wire.decode(wire_tasks.Task, answer.raw)
    assert (task.task_id, task.kind, task.params) == (task_id, "test", {"name": "cpu", "durationS": 60})
    assert wire.read_doc(wire_tasks.TestParams, task.params).duration_s == 60
    assert site.task("cpu").state == "handed"
    assert agent.next().doc == answer.doc  # its answer may have been lost

    assert agent.report(task_id, progress=250, message="a quarter").doc == {"status": "heard", "goOn": True}
    row = site.task("cpu")
    assert (row.state, row.progress, row.message, row.ended_at) == ("running", 250, "a quarter", None)
    result = {"summary": "no errors", "passed": True, "figures": {"loops": 9}}
    assert agent.report(task_id, "done", progress=1000, result=result).doc["goOn"] is True
    row = site.task("cpu")
    assert (row.state, row.result) == ("done", result)
    assert wire.read_doc(wire_tasks.TestResult, dict(row.result or {})).passed is True
    assert site.is_due()
    assert agent.next().doc["status"] == "idle"


def test_tasks_are_handed_out_one_at_a_time_the_oldest_first(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    first = site.a_task("first")
    site.skip(1)
    second = site.a_task("second")
    assert agent.next().doc["taskId"] == first
    agent.report(first, "failed", errorCode="no-disk", errorMessage="there is none\x1b[2J")
    row = site.task("first")
    assert (row.state, row.error_code, row.error_message) == ("failed", "no-disk", "there is none[2J")
    assert agent.next().doc["taskId"] == second


def test_a_report_that_was_made_before_changes_nothing(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    task_id = site.a_task()
    agent.next()
    agent.report(task_id, log="one\n", logOffset=0)
    assert agent.report(task_id, "done", result={"n": 1}, log="two\n", logOffset=4).doc["goOn"] is True
    before = (site.task(), site.db.rows("SELECT * FROM op_logs"))
    assert agent.report(task_id, "done", result={"n": 1}, log="two\n", logOffset=4).doc["goOn"] is True
    assert agent.report(task_id, log="one\n", logOffset=0).doc["goOn"] is False
    assert agent.report(task_id, "failed", errorCode="late", errorMessage="late").doc["goOn"] is False
    assert (site.task(), site.db.rows("SELECT * FROM op_logs")) == before


def test_a_report_of_what_is_not_this_agents_task_is_told_to_stop(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    other = site.db.write(agent_tasks.put, "op_other", "nd_other", "x", "inventory", {}, site.now).task_id
    for task_id in (other, "at_00000000000000000000000000"):
        assert agent.report(task_id, "done", result={}).doc["goOn"] is False
    assert agent.report("nonsense\0", "done", result={}).fields == {"taskId"}
    row = site.db.read(agent_tasks.of, "op_other", "x")
    assert row is not None
    assert row.state == "waiting"


def test_a_task_that_was_given_up_is_told_to_stop_and_not_handed_out(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    task_id = site.a_task()
    assert agent.next().doc["taskId"] == task_id
    site.db.write(agent_tasks.end, site.operation_id, site.now)
    assert agent.report(task_id).doc["goOn"] is False
    assert agent.next().doc["status"] == "idle"


def test_an_abort_stops_the_task_under_way(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    task_id = site.a_task()
    agent.next()
    assert agent.report(task_id).doc["goOn"] is True
    audit = an_audit(site.node_id)
    site.db.write(operations.request_abort, site.node_id, "key:anna", audit, [], site.now)
    assert agent.report(task_id).doc["goOn"] is False
    assert agent.next().doc["status"] == "idle"


# ---------------------------------------------------------------- proof


def test_a_call_that_was_made_before_is_refused(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    task_id = site.a_task()
    body = json.dumps({"taskId": task_id, "state": "running", "progress": 1}).encode()
    headers = agent.headers("POST", wire_tasks.REPORT_PATH, body, 7) | {"Content-Type": "application/json"}

    def send() -> tuple[int, str]:
        answer = site.db.run(site.sending("POST", wire_tasks.REPORT_PATH, body, headers))
        return answer.status, answer.code

    assert send() == (200, "OK")
    assert send() == (409, "CONFLICT")
    agent.sequence = 6
    assert agent.report(task_id).status == 409  # the same number for something else
    agent.sequence = 4
    assert agent.next().status == 409  # overtaken
    agent.sequence = 100
    assert agent.report(task_id).status == 200
    assert site.task().progress == 0


def test_another_daemon_knows_the_session_and_what_was_called_before(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    site.a_task()
    agent.sequence = 6
    assert agent.next().status == 200
    site.app = site.an_app()  # started again, or a second one over the same database
    agent.sequence = 6
    assert agent.next().status == 409
    assert agent.next().status == 200


def test_a_call_that_another_key_signed_or_that_was_changed_proves_nothing(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    task_id = site.a_task()
    body = json.dumps({"taskId": task_id, "state": "done", "result": {}}).encode()
    swapped = body.replace(b"done", b"fail")
    good = agent.headers("POST", wire_tasks.REPORT_PATH, body, 1) | {"Content-Type": "application/json"}
    thief = Agent(site, agent.token, Ed25519PrivateKey.generate(), agent.session_id)
    wrong = [
        (wire_tasks.REPORT_PATH, swapped, good),
        (wire_tasks.NEXT_PATH, body, good),
        (wire_tasks.REPORT_PATH, body, good | {wire_tasks.SEQUENCE_HEADER: "2"}),
        (wire_tasks.REPORT_PATH, body, good | {wire_tasks.SEQUENCE_HEADER: "-1"}),
        (wire_tasks.REPORT_PATH, body, good | {wire_tasks.SESSION_HEADER: "as_" + "0" * 26}),
        (wire_tasks.REPORT_PATH, body, good | {wire_tasks.SESSION_HEADER: "nonsense"}),
        (wire_tasks.REPORT_PATH, body, good | {wire_tasks.SIGNATURE_HEADER: "AAAA"}),
        (wire_tasks.REPORT_PATH, body, {k: v for k, v in good.items() if k != wire_tasks.SIGNATURE_HEADER}),
        (wire_tasks.REPORT_PATH, body, {"Content-Type": "application/json", "Authorization": f"Bearer {agent.token}"}),
        (wire_tasks.REPORT_PATH, body, thief.headers("POST", wire_tasks.REPORT_PATH, body, 1) | good_type()),
    ]
    for path, raw, headers in wrong:
        answer = site.db.run(site.sending("POST", path, raw, headers))
        assert (answer.status, answer.code) == (401, "UNAUTHENTICATED"), (path, headers)
    assert site.task().state == "waiting"
    assert site.db.run(site.sending("POST", wire_tasks.REPORT_PATH, body, good)).status == 200
    assert site.task().state == "done"


def good_type() -> dict[str, str]:
    return {"Content-Type": "application/json"}


def test_a_message_of_another_shape_is_told_what_is_wrong_and_changes_nothing(one_site: AgentSite) -> None:
    agent = one_site.an_agent().welcomed()
    task_id = one_site.a_task()
    assert agent.report(task_id, "finished").fields == {"state"}
    assert agent.report(task_id, log="x" * (wire_tasks.LOG_CHUNK + 1)).fields == {"log"}
    assert agent.report(task_id, "done", result={"deep": nested(40)}).fields == {"result"}
    assert agent.report(task_id, "done", result={"deep": nested(900)}).status == 400
    assert agent.report(task_id, "done", result={"large": "x" * wire_tasks.REPORT_LIMIT}).status == 413
    answer = agent.call("POST", wire_tasks.NEXT_PATH, b'{"more": 1}')
    assert answer.fields == {"more"}
    assert one_site.task().state == "waiting"


def nested(depth: int) -> object:
    found: object = []
    for _ in range(depth):
        found = [found]
    return found


def test_a_result_is_kept_without_control_characters(one_site: AgentSite) -> None:
    agent = one_site.an_agent().welcomed()
    task_id = one_site.a_task()
    result = {"mod\x07el": "Disk\x1b[31m\x00 9000", "lines": ["one\ntwo", 3, None, True]}
    assert agent.report(task_id, "done", result=result).status == 200
    assert one_site.task().result == {"model": "Disk 9000", "lines": ["one\ntwo", 3, None, True]}


def test_one_agent_cannot_call_without_end(one_site: AgentSite) -> None:
    agent = one_site.an_agent().welcomed()
    one_site.a_task()
    statuses = [agent.next().status for _ in range(CALL_BURST + 1)]
    assert (statuses[0], statuses[-1]) == (200, 429)


# ---------------------------------------------------------------- logs


def test_log_chunks_come_once_and_in_order_whatever_is_sent_again(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    task_id = site.a_task()
    agent.report(task_id, log="one\r\ntw", logOffset=0)
    agent.report(task_id, log="one\r\ntw", logOffset=0)
    agent.report(task_id, log="two\n\x1b[1mthree\x1b[0m\n", logOffset=5)
    agent.report(task_id, log="\x00\ttabbed\u202e\n", logOffset=23)
    assert log_of(site) == "one\ntwo\nthree\n\ttabbed\n"
    agent.report(task_id, log="late\n", logOffset=1033)
    assert log_of(site).endswith("tabbed\n\n[bcmetal: 1000 characters of this log never came]\nlate\n")


def test_a_log_is_cut_in_words_when_it_is_too_long(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    task_id = site.a_task()
    chunk = "x" * (wire_tasks.LOG_CHUNK - 1) + "\n"
    many = agent_tasks.LOG_LIMIT // wire_tasks.LOG_CHUNK + 3
    for n in range(many):
        assert agent.report(task_id, log=chunk, logOffset=n * len(chunk)).status == 200
    log = log_of(site)
    told = f"\n[bcmetal: the log is cut here, after {agent_tasks.LOG_LIMIT} characters]\n"
    assert log.endswith(told)
    assert len(log) == agent_tasks.LOG_LIMIT + len(told)
    assert log.count("[bcmetal:") == 1
    assert site.task().log_read == many * len(chunk)


def log_of(site: AgentSite, name: str = "inventory") -> str:
    return site.db.read(agent_tasks.log_of, site.operation_id, name)


# ---------------------------------------------------------------- long polls


def test_a_long_poll_is_answered_as_soon_as_a_task_is_put(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    app = site.an_app(poll_s=30)

    async def scenario() -> tuple[Answered, float]:
        loop = asyncio.get_running_loop()
        headers = agent.headers("POST", wire_tasks.NEXT_PATH, b"{}", 1) | good_type()
        polling = loop.create_task(site.patient(app, "POST", wire_tasks.NEXT_PATH, b"{}", headers))
        await asyncio.sleep(0.1)
        assert not polling.done()
        began = loop.time()
        await site.db.store.write(agent_tasks.put, "op_other", "nd_other", "x", "inventory", {}, site.now)
        await site.db.store.write(
            agent_tasks.put, site.operation_id, site.node_id, "inventory", "inventory", {}, site.now
        )
        return await asyncio.wait_for(polling, 10), loop.time() - began

    answer, took_s = site.db.run(scenario())
    assert answer.doc["taskId"] == site.task().task_id
    assert took_s < 5


class Counting:
    """A store that counts what is read through it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads: Counter[str] = Counter()

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.reads[fn.__name__] += 1
        return await self._store.read(fn, *args, **kwargs)

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._store.write(fn, *args, **kwargs)

    async def close(self) -> None:
        await self._store.close()


def test_a_thousand_waiting_agents_share_one_look_at_the_store(one_site: AgentSite) -> None:
    store = Counting(one_site.db.store)
    waits = Waits(store, tick_s=0.1)

    async def scenario() -> None:
        await asyncio.gather(*(waits.task_for(f"op_{n}", 0.55) for n in range(1000)))
        looks = store.reads["waiting"]
        assert 3 <= looks <= 8
        await asyncio.sleep(0.25)
        assert store.reads["waiting"] == looks  # nobody waits: nothing is looked at

    one_site.db.run(scenario())


def test_who_waits_goes_on_when_the_daemon_stops(one_site: AgentSite) -> None:
    waits = Waits(one_site.db.store)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        waiting = [loop.create_task(waits.task_for("op_1", 60)), loop.create_task(waits.pause(60))]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        waits.close()
        await asyncio.wait_for(asyncio.gather(*waiting, waits.task_for("op_2", 60), waits.pause(60)), 5)

    one_site.db.run(scenario())


# ---------------------------------------------------------------- secrets


def test_secrets_are_put_in_when_a_task_is_handed_out_and_each_time_anew(site: AgentSite) -> None:
    asked: list[tuple[str, str]] = []

    async def prepare(task: AgentTaskRow, agent: AgentRow) -> Json:
        asked.append((task.name, agent.session_id))
        return {**task.params, "passwordHash": f"fresh-{len(asked)}"}

    site.prepare["rescue"] = prepare
    site.app = site.an_app()
    agent = site.an_agent().welcomed()
    site.a_task("rescue", "rescue", expiresInS=60)
    assert agent.next().doc["params"] == {"expiresInS": 60, "passwordHash": "fresh-1"}
    assert agent.next().doc["params"] == {"expiresInS": 60, "passwordHash": "fresh-2"}
    assert asked == [("rescue", agent.session_id)] * 2
    assert site.task("rescue").params == {"expiresInS": 60}


def test_a_token_that_crossed_the_wire_in_the_clear_gets_no_secret_before_the_other_can_have_said_hello(
    site: AgentSite,
) -> None:
    agent = site.an_agent(in_clear=True).welcomed()
    site.a_task("config", "writeConfigDrive")
    assert agent.next().doc["status"] == "idle"
    site.skip(PLAIN_WAIT_S - 1)
    assert agent.next().doc["status"] == "idle"
    assert site.task("config").state == "waiting"
    assert Agent(site, agent.token).hello().status == 403  # the machine itself, or whoever read its token
    site.skip(2)
    assert agent.next().status == 403
    assert site.task("config").state == "waiting"

    quiet = site.an_agent(in_clear=True).welcomed()
    site.skip(PLAIN_WAIT_S)
    assert quiet.next().doc["kind"] == "writeConfigDrive"


def test_what_is_no_secret_waits_for_nothing(site: AgentSite) -> None:
    agent = site.an_agent(in_clear=True).welcomed()
    site.a_task("erase", "erase", phase="inspect")
    assert agent.next().doc["kind"] == "erase"


# ---------------------------------------------------------------- the image


def test_the_image_of_the_task_under_way_is_served_by_ranges(site: AgentSite) -> None:
    (site.folder / "image.raw").write_bytes(IMAGE)
    agent = site.an_agent().welcomed()
    assert agent.image().status == 404
    task_id = site.a_task("write", "writeImage", file="image.raw")
    assert agent.image().status == 404  # not handed out yet
    agent.next()
    answer = agent.image()
    assert (answer.status, answer.raw) == (200, IMAGE)
    assert (answer.headers["accept-ranges"], answer.headers["content-length"]) == ("bytes", str(len(IMAGE)))
    answer = agent.image(Range="bytes=1000-")
    assert (answer.status, answer.raw) == (206, IMAGE[1000:])
    assert answer.headers["content-range"] == f"bytes 1000-{len(IMAGE) - 1}/{len(IMAGE)}"
    assert agent.image(Range=f"bytes={len(IMAGE)}-").status == 416
    answer = agent.image("HEAD")
    assert (answer.status, answer.raw, answer.headers["content-length"]) == (200, b"", str(len(IMAGE)))
    agent.report(task_id, "done", result={})
    assert agent.image().status == 404


def test_an_image_is_for_its_own_session_alone(site: AgentSite) -> None:
    (site.folder / "image.raw").write_bytes(IMAGE)
    site.a_task("write", "writeImage", file="image.raw")
    agent = site.an_agent().welcomed()
    agent.next()
    node_id, operation_id, _ = site.a_node("22222222-2222-4333-8444-555555555555", "SN00002X", "3c:ec:ef:10:00:02")
    foreign = Agent(site, site.a_token(operation_id=operation_id, node_id=node_id))
    foreign.says = a_machine(productUuid=None, serial="SN00002X", macs=[])
    foreign.welcomed()
    assert foreign.image().status == 404
    foreign.session_id = agent.session_id
    foreign.sequence = 50
    assert foreign.image().status == 401
    headers = {"Authorization": f"Bearer {agent.token}"}
    assert site.db.run(site.sending("GET", wire_tasks.IMAGE_PATH, b"", headers)).status == 401
    assert agent.image().status == 200
    site.a_token()  # another boot of the machine
    assert agent.image().status == 403


def test_an_image_never_comes_from_outside_the_shelf(one_site: AgentSite) -> None:
    (one_site.folder.parent / "secret").write_bytes(b"not for agents")
    agent = one_site.an_agent().welcomed()
    one_site.a_task("write", "writeImage", file="../secret")
    agent.next()
    assert agent.image().status == 404


def test_what_the_agent_said_of_its_machine_is_there_for_the_workflow(one_site: AgentSite) -> None:
    one_site.an_agent().welcomed()
    row = one_site.db.read(agents.current, one_site.operation_id)
    assert row is not None
    assert row.identifiers == {"productUuid": UUID, "serial": SERIAL, "macs": [MAC]}
    assert (row.version, row.address, row.hello_at, row.seen_at) == ("0.1", "192.0.2.7", one_site.now, one_site.now)
    assert isinstance(row.hello_at, int)
    assert Micros(row.hello_at) == one_site.now
