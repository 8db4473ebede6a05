"""Boot tokens, the agents that come with them, and their tasks."""

from __future__ import annotations

import hashlib
import os

import pytest
from sqlalchemy.exc import IntegrityError

from bcmetal.store import agent_tasks, agents, boot_tokens
from bcmetal.store.agent_tasks import AgentTaskRow, NewReport
from bcmetal.store.agents import AgentRow
from store.samples import NOW, Db, an_end, fresh, later, save, under_way


def a_token(db: Db, operation_id: str, node_id: str, at: float = 0, ttl_s: float = 3600) -> bytes:
    sha256 = hashlib.sha256(os.urandom(8)).digest()
    db.write(boot_tokens.mint, operation_id, node_id, sha256, later(at + ttl_s), later(at))
    return sha256


def an_agent(db: Db, operation_id: str, node_id: str, n: int = 1) -> AgentRow:
    row = AgentRow(
        session_id=fresh("as"),
        operation_id=operation_id,
        token_n=n,
        node_id=node_id,
        public_key=os.urandom(32),
        identifiers={"serial": "S1"},
        version="0.1",
        address="192.0.2.7",
        hello_at=NOW,
        seen_at=NOW,
        sequence=0,
        ended_at=None,
    )
    db.write(agents.add, row)
    return row


def test_a_new_token_ends_those_before_it_and_their_agents(db: Db) -> None:
    node_id, operation_id, _ = under_way(db)
    first = a_token(db, operation_id, node_id)
    agent = an_agent(db, operation_id, node_id)
    assert db.read(agents.current, operation_id) == agent
    second = a_token(db, operation_id, node_id, at=10)
    assert db.read(agents.current, operation_id) is None
    live = db.read(boot_tokens.live, operation_id, later(20))
    assert live is not None
    assert (live.n, live.sha256, live.in_clear, live.expires_at) == (2, second, True, later(3610))
    ended = db.read(boot_tokens.shown, first)
    assert ended is not None
    assert (ended.token.ended_at, ended.over) == (later(10), False)
    assert db.read(boot_tokens.shown, b"none") is None
    later_agent = an_agent(db, operation_id, node_id, 2)
    assert db.read(agents.current, operation_id) == later_agent
    assert db.read(agents.of_token, operation_id, 2) == later_agent


def test_a_token_is_live_until_its_end_its_time_or_its_operations(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    sha256 = a_token(db, operation_id, node_id, ttl_s=60)
    assert db.read(boot_tokens.live, operation_id, later(59)) is not None
    assert db.read(boot_tokens.live, operation_id, later(60)) is None
    a_token(db, operation_id, node_id)
    db.write(boot_tokens.end, operation_id, later(5))
    assert db.read(boot_tokens.live, operation_id, later(6)) is None
    newest = a_token(db, operation_id, node_id, at=7)
    agent = an_agent(db, operation_id, node_id, 3)
    save(db, held, operation_id, an_end(node_id, operation_id))
    assert db.read(boot_tokens.live, operation_id, later(8)) is None
    for one in (sha256, newest):
        shown = db.read(boot_tokens.shown, one)
        assert shown is not None
        assert shown.over
    session = db.read(agents.session, agent.session_id)
    assert session is not None
    assert session.over


def test_a_conflict_is_counted_once_for_each_token(db: Db) -> None:
    node_id, operation_id, _ = under_way(db)
    for n in (1, 2):
        shown = db.read(boot_tokens.shown, a_token(db, operation_id, node_id))
        assert shown is not None
        an_agent(db, operation_id, node_id, n)
        assert db.write(boot_tokens.conflict, shown.token, NOW)
        assert not db.write(boot_tokens.conflict, shown.token, NOW)
        assert db.read(agents.current, operation_id) is None
        assert db.read(boot_tokens.conflicts, operation_id) == n
    assert db.read(boot_tokens.conflicts, "op_other") == 0


def test_one_digest_is_one_token_and_one_token_one_agent(db: Db) -> None:
    node_id, operation_id, _ = under_way(db)
    sha256 = a_token(db, operation_id, node_id)
    with pytest.raises(IntegrityError):
        db.write(boot_tokens.mint, operation_id, node_id, sha256, later(60), NOW)
    an_agent(db, operation_id, node_id)
    with pytest.raises(IntegrityError):
        an_agent(db, operation_id, node_id)


def test_calls_count_upwards_until_the_session_ends(db: Db) -> None:
    node_id, operation_id, _ = under_way(db)
    a_token(db, operation_id, node_id)
    agent = an_agent(db, operation_id, node_id)
    calls = [db.write(agents.calls, agent.session_id, n, "192.0.2.8", later(n)) for n in (1, 5, 5, 4, 6)]
    assert calls == [True, True, False, False, True]
    row = db.read(agents.current, operation_id)
    assert row is not None
    assert (row.sequence, row.seen_at, row.address) == (6, later(6), "192.0.2.8")
    db.write(boot_tokens.end, operation_id, later(7))
    assert not db.write(agents.calls, agent.session_id, 7, "192.0.2.8", later(8))


def test_waking_brings_an_operation_forward_and_no_other(db: Db) -> None:
    node_id, operation_id, _ = under_way(db)
    wake = "UPDATE operations SET wake_at = :at WHERE operation_id = :id"
    db.sql(wake, at=later(600), id=operation_id)
    db.sql("UPDATE nodes SET due_at = :at WHERE node_id = :id", at=later(600), id=node_id)

    def due() -> list[tuple[int, int]]:
        found = db.rows(
            "SELECT o.wake_at, n.due_at FROM operations o JOIN nodes n ON n.node_id = o.node_id "
            "WHERE o.operation_id = :id",
            id=operation_id,
        )
        return [(row[0], row[1]) for row in found]

    db.write(agents.wake, node_id, "op_before", later(1))
    assert due() == [(later(600), later(600))]
    db.write(agents.wake, node_id, operation_id, later(2))
    assert due() == [(later(2), later(2))]
    db.write(agents.wake, node_id, operation_id, later(9))  # it is due already: nothing is put off
    assert due() == [(later(2), later(2))]


def test_a_task_of_a_name_is_put_once(db: Db) -> None:
    node_id, operation_id, _ = under_way(db)
    first = db.write(
        agent_tasks.put, operation_id, node_id, "erase", "erase", {"phase": "plant"}, NOW, file="image.raw"
    )
    again = db.write(agent_tasks.put, operation_id, node_id, "erase", "erase", {"phase": "erase"}, later(5))
    assert again == first
    assert (first.state, first.params, first.file) == ("waiting", {"phase": "plant"}, "image.raw")
    assert db.read(agent_tasks.of, operation_id, "erase") == first
    assert db.read(agent_tasks.of, operation_id, "other") is None
    other = db.write(agent_tasks.put, "op_other", node_id, "erase", "erase", {}, NOW)
    assert other.task_id != first.task_id
    assert db.read(agent_tasks.waiting) == {operation_id, "op_other"}
    db.write(agent_tasks.hand, first, "as_1", later(6))
    db.write(agent_tasks.hand, first, "as_1", later(9))
    handed = db.read(agent_tasks.present, operation_id)
    assert handed is not None
    assert (handed.state, handed.handed_at, handed.session_id) == ("handed", later(6), "as_1")
    assert db.read(agent_tasks.waiting) == {"op_other"}


def test_another_start_of_the_machine_begins_its_task_and_its_log_anew(db: Db) -> None:
    node_id, operation_id, _ = under_way(db)

    def present() -> AgentTaskRow:
        row = db.read(agent_tasks.present, operation_id)
        assert row is not None
        return row

    db.write(agent_tasks.put, operation_id, node_id, "erase", "erase", {}, NOW)
    db.write(agent_tasks.hand, present(), "as_1", later(1))
    db.write(agent_tasks.report, present(), NewReport("running", 700, log="half of it\n"), later(2))
    db.write(agent_tasks.hand, present(), "as_1", later(3))
    assert (present().state, present().progress, present().log_read) == ("running", 700, 11)
    db.write(agent_tasks.hand, present(), "as_2", later(4))
    row = present()
    assert (row.state, row.progress, row.handed_at, row.session_id) == ("handed", 0, later(1), "as_2")
    db.write(agent_tasks.report, present(), NewReport("running", 100, log="all of it\n"), later(5))
    log = db.read(agent_tasks.log_of, operation_id, "erase")
    assert log == f"half of it\n{agent_tasks.AGAIN}all of it\n"


def test_the_present_task_is_the_oldest_that_has_not_ended(db: Db) -> None:
    node_id, operation_id, _ = under_way(db)
    tasks = [
        db.write(agent_tasks.put, operation_id, node_id, name, "inventory", {}, later(n))
        for n, name in enumerate(("b", "a", "c"))
    ]
    assert db.read(agent_tasks.present, operation_id) == tasks[0]
    assert db.write(agent_tasks.report, tasks[0], NewReport("done", 1000, result={"n": 1}), later(9))
    assert not db.write(agent_tasks.report, tasks[0], NewReport("failed", error_code="late"), later(10))
    done = db.read(agent_tasks.of, operation_id, "b")
    assert done is not None
    assert (done.state, done.result, done.error_code, done.ended_at) == ("done", {"n": 1}, None, later(9))
    assert db.read(agent_tasks.present, operation_id) == tasks[1]
    db.write(agent_tasks.end, operation_id, later(11))
    assert db.read(agent_tasks.present, operation_id) is None
    assert [row.state for row in db.read(agent_tasks.every, operation_id)] == ["done", "waiting", "waiting"]
    assert [row.ended_at for row in db.read(agent_tasks.every, operation_id)] == [later(9), later(11), later(11)]


def test_what_is_long_over_is_forgotten(db: Db) -> None:
    node_id, operation_id, _ = under_way(db)
    a_token(db, operation_id, node_id, ttl_s=60)
    an_agent(db, operation_id, node_id)
    task = db.write(agent_tasks.put, operation_id, node_id, "erase", "erase", {}, NOW)
    db.write(agent_tasks.report, task, NewReport("done", result={}, log="long\n"), NOW)
    db.write(boot_tokens.end, operation_id, later(5))
    assert db.write(boot_tokens.prune, later(5)) == 0
    assert db.write(boot_tokens.prune, later(61)) == 1
    assert db.write(agent_tasks.prune, later(0)) == 0
    assert db.read(agent_tasks.log_of, operation_id, "erase") == "long\n"
    assert db.write(agent_tasks.prune, later(1)) == 1
    assert db.read(agent_tasks.log_of, operation_id, "erase") == ""
    assert db.rows("SELECT count(*) FROM agents") == [(0,)]
