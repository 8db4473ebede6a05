"""Rescues that are over by the clock: of machines that are rescued now, by the last rescue of each."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, event

from bcmetal.decisions import SECOND, Micros
from bcmetal.states import State, Verb
from bcmetal.store import agent_tasks, claims, rescues
from store.samples import NOW, Db, a_node, an_end, an_operation, claim, later, save, start

MINUTE = 60


def rescued(db: Db, node_id: str, lasts_s: int | None = MINUTE, now: Micros = NOW) -> str:
    """The node goes through a rescue; the operation."""
    db.sql("UPDATE nodes SET state = 'deployed' WHERE node_id = :node_id", node_id=node_id)
    asked = {} if lasts_s is None else {"expiresAfterS": lasts_s}
    operation_id = start(db, node_id, Verb.RESCUE, State.DEPLOYED, now, an_operation(Verb.RESCUE, input=asked))
    [held] = [one for one in claim(db, now=now) if one.node_id == node_id]
    end = an_end(node_id, operation_id, State.RESCUED, verb=Verb.RESCUE)
    db.write(claims.release, save(db, held, operation_id, end, now=now))
    return operation_id


def over(db: Db, seconds: float) -> list[str]:
    return [one.operation_id for one in db.read(rescues.over, later(seconds))]


def test_a_rescue_is_over_once_its_time_has_passed(db: Db) -> None:
    operation_id = rescued(db, a_node(db))
    assert over(db, MINUTE - 1) == []
    assert over(db, MINUTE) == [operation_id]


def test_a_rescue_without_a_time_is_ended_by_a_person_alone(db: Db) -> None:
    rescued(db, a_node(db), lasts_s=None)
    assert over(db, 365 * 86_400) == []


def test_the_last_rescue_of_a_node_counts(db: Db) -> None:
    node_id, other = a_node(db), a_node(db)
    rescued(db, node_id, MINUTE)
    kept = rescued(db, other, MINUTE)
    rescued(db, node_id, 10 * MINUTE, later(10))
    assert over(db, 2 * MINUTE) == [kept]


def test_a_machine_that_is_rescued_no_longer_has_nothing_to_end(db: Db) -> None:
    node_id = a_node(db)
    rescued(db, node_id)
    db.sql("UPDATE nodes SET state = 'deployed' WHERE node_id = :node_id", node_id=node_id)
    assert over(db, 10 * MINUTE) == []


def test_the_time_runs_from_when_the_agent_got_its_task(db: Db) -> None:
    node_id = a_node(db)
    operation_id = rescued(db, node_id)
    db.write(agent_tasks.put, operation_id, node_id, rescues.TASK, "rescue", {}, NOW)
    task = db.read(agent_tasks.of, operation_id, rescues.TASK)
    assert task is not None
    db.write(agent_tasks.hand, task, "session-1", Micros(NOW + 30 * SECOND))
    assert over(db, MINUTE) == []
    assert over(db, MINUTE + 30) == [operation_id]
    found = db.read(rescues.of, node_id)
    assert found is not None
    assert (found.ready, found.ends_at) == (None, later(MINUTE + 30))


def test_however_many_are_rescued_one_statement_finds_those_that_are_over(db: Db) -> None:
    ended = {rescued(db, a_node(db)) for _ in range(3)}

    def counted(c: Connection) -> tuple[set[str], int]:
        statements: list[str] = []

        def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
            statements.append(statement)

        event.listen(c, "before_cursor_execute", note)
        try:
            found = {one.operation_id for one in rescues.over(c, later(MINUTE))}
        finally:
            event.remove(c, "before_cursor_execute", note)
        return found, len(statements)

    assert db.read(counted) == (ended, 1)
