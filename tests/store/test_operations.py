"""Operations: each verb is one transaction, and a lost race writes nothing of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bcmetal.decisions import EndStatus, Micros, Move
from bcmetal.errors import Conflict, Lost
from bcmetal.states import Disks, SideVerb, State, Verb
from bcmetal.store import audit, claims, idempotency, nodes, operations, sealed, views
from bcmetal.store.values import NewOperation, NodeRow, SetSighting
from store.samples import (
    NOW,
    STEPS,
    Db,
    a_key,
    a_move,
    a_node,
    a_run,
    a_sealed,
    an_audit,
    an_end,
    an_event,
    an_operation,
    claim,
    everything,
    fresh,
    know,
    later,
    queue,
    save,
    start,
    under_way,
)


def node_of(db: Db, node_id: str) -> NodeRow:
    node = db.read(nodes.get, node_id)
    assert node is not None
    return node


def instant(verb: str) -> NewOperation:
    return NewOperation(fresh("op"), "instant", verb, "key:anna", {})


def record(db: Db, node_id: str, columns: dict[str, Any] | None, **over: Any) -> str:
    generation, state = over.pop("generation", None), over.pop("state", None)
    return db.write(
        operations.record_instant,
        node_id,
        columns,
        generation,
        state,
        over.pop("op", instant("setMaintenance")),
        an_audit(node_id),
        over.pop("events", []),
        over.pop("now", NOW),
        over.pop("idempotency", None),
        **over,
    )


def test_a_verb_is_one_transaction(db: Db) -> None:
    node_id = a_node(db)
    op = an_operation()
    op = replace(op, sealed=(a_sealed("operation", op.operation_id),))
    assert start(db, node_id, op=op, generation=1, idempotency=a_key()) == op.operation_id
    node = node_of(db, node_id)
    assert (node.facts.state, node.generation, node.operation_id) == (State.INSPECTING, 2, op.operation_id)
    found = db.read(operations.get, op.operation_id)
    assert found is not None
    assert (found.status, found.origin_state, found.verb, found.step) == ("running", "enrolled", "inspect", STEPS[0])
    assert (found.by, found.input, found.started_at, found.tenant_id) == ("key:anna", {"deep": False}, None, "tenant-a")
    assert len(db.read(sealed.get, "operation", op.operation_id)) == 1
    [entry] = db.read(audit.list_page, ["tenant-a"], 10)[0]
    assert (entry.node_id, entry.action, entry.outcome) == (node_id, "compute:metal:operate", "allowed")
    assert db.rows("SELECT type, node_id FROM outbox") == [("metal.state.changed", node_id)]
    replay = db.read(operations.replayed, "tenant-a", "key:anna", "once")
    assert replay is not None
    assert (replay.operation_id, replay.node_id, replay.digest) == (op.operation_id, node_id, "digest")
    [view] = db.read(views.read, [node_id])
    assert view.doc["operation"]["steps"] == len(STEPS)
    assert view.doc["state"] == "inspecting"


def test_a_verb_that_lost_writes_nothing(db: Db) -> None:
    node_id = a_node(db)
    before = everything(db)
    with pytest.raises(Lost):
        start(db, node_id, generation=2)
    with pytest.raises(Lost):
        start(db, node_id, origin=State.INSPECTED)
    with pytest.raises(Lost):
        start(db, "nd_none")
    with pytest.raises(ValueError, match="busy state"):
        db.write(
            operations.start,
            node_id,
            None,
            Move(Verb.ADOPT, State.INSPECTED, None, State.DEPLOYED, None),
            an_operation(),
            an_audit(),
            [],
            NOW,
        )
    assert everything(db) == before


def test_a_busy_node_starts_nothing_more(db: Db) -> None:
    node_id, _, _ = under_way(db)
    with pytest.raises(Lost):
        start(db, node_id, origin=State.INSPECTING)


def test_an_idempotency_key_is_used_once(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    start(db, one, idempotency=a_key())
    before = everything(db)
    with pytest.raises(Lost):
        start(db, two, idempotency=a_key())
    assert everything(db) == before
    start(db, two, idempotency=a_key(identity="key:bert"))
    assert db.read(operations.replayed, "tenant-b", "key:anna", "once") is None
    assert db.write(idempotency.prune, NOW) == 0
    assert db.write(idempotency.prune, later(1)) == 2


def test_a_side_operation_is_queued_beside_whatever_runs(db: Db) -> None:
    node_id, operation_id, _ = under_way(db)
    side = queue(db, node_id, SideVerb.SET_BMC_CREDENTIALS, later(1))
    node = node_of(db, node_id)
    assert (node.operation_id, node.generation) == (operation_id, 2)
    found = db.read(operations.get, side)
    assert found is not None
    assert (found.kind, found.status, found.origin_state) == ("side", "queued", "inspecting")
    with pytest.raises(Lost):
        queue(db, "nd_none")


def test_what_ends_at_once_changes_its_columns_and_is_on_record(db: Db) -> None:
    node_id = a_node(db)
    op = record(
        db,
        node_id,
        {"maintenance": True, "quiet": True, "maintenance_reason": "fans", "maintenance_until": later(9)},
        generation=1,
        now=later(1),
    )
    node = node_of(db, node_id)
    assert (node.facts.maintenance, node.facts.quiet, node.maintenance_reason) == (True, True, "fans")
    assert node.generation == 2
    found = db.read(operations.get, op)
    assert found is not None
    assert (found.kind, found.status, found.ended_at) == ("instant", "done", later(1))
    [view] = db.read(views.read, [node_id])
    assert view.doc["maintenance"] == {"on": True, "quiet": True, "reason": "fans", "until": views.stamp(later(9))}
    with pytest.raises(Lost):
        record(db, node_id, {"maintenance": False}, generation=1)
    with pytest.raises(Lost):
        record(db, "nd_none", {"maintenance": False})


def test_adopting_moves_the_state_unless_a_workflow_began_meanwhile(db: Db) -> None:
    node_id = a_node(db)
    db.sql("UPDATE nodes SET state = 'inspected' WHERE node_id = :node_id", node_id=node_id)
    record(db, node_id, {"system": "present"}, state=State.DEPLOYED, op=instant("adopt"))
    assert node_of(db, node_id).facts.state is State.DEPLOYED
    busy, _, _ = under_way(db)
    before = everything(db)
    with pytest.raises(Lost):
        record(db, busy, None, state=State.DEPLOYED)
    with pytest.raises(Lost):
        record(db, node_id, None, state=State.AVAILABLE, expected_state=State.INSPECTED)
    assert everything(db) == before


def test_an_update_of_the_name_is_refused_where_it_is_taken(db: Db) -> None:
    a_node(db, "r3u17")
    node_id = a_node(db, "r3u18")
    with pytest.raises(Conflict) as refused:
        record(db, node_id, {"name": "r3u17"}, op=instant("update"))
    assert refused.value.details["field"] == "name"
    record(db, node_id, {"name": "r3u19", "labels": {"a": "b"}, "root_device": {"wwn": "1"}}, op=instant("update"))
    node = node_of(db, node_id)
    assert (node.name, node.labels, node.root_device) == ("r3u19", {"a": "b"}, {"wwn": "1"})
    assert db.rows("SELECT key, value FROM node_labels") == [("a", "b")]


def test_an_abort_is_a_durable_flag(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    event = an_event(node_id, "metal.step.failed")
    assert db.write(operations.request_abort, node_id, "key:bert", an_audit(node_id), [event], later(1)) == operation_id
    found = db.read(operations.get, operation_id)
    assert found is not None
    assert found.abort
    assert found.status == "running"
    [view] = db.read(views.read, [node_id])
    assert view.doc["operation"]["aborting"]
    [entry] = db.read(operations.timeline, node_id, 5)
    assert entry["abortedBy"] == "key:bert"
    save(db, held, operation_id, an_end(node_id, operation_id, State.ENROLLED, EndStatus.ABORTED, touched=False))
    assert db.write(operations.request_abort, node_id, "key:bert", an_audit(node_id), [], later(2)) is None
    assert node_of(db, node_id).facts.state is State.ENROLLED


def test_an_abort_in_maintenance_ends_at_once_and_its_cleanup_waits(db: Db) -> None:
    node_id, operation_id, held = under_way(db, Verb.DEPLOY, State.AVAILABLE)
    save(db, held, operation_id, replace(a_run(node_id, operation_id, touched=True), verb=Verb.DEPLOY))
    db.write(nodes.update, node_id, {"maintenance": True}, NOW)
    ended = an_end(node_id, operation_id, State.DEPLOY_FAILED, EndStatus.ABORTED, Verb.DEPLOY)
    cleanup = an_operation(SideVerb.CLEANUP)
    db.write(operations.end_now, node_id, ended, an_audit(node_id), [an_event(node_id)], later(1), cleanup)
    node = node_of(db, node_id)
    assert (node.facts.state, node.operation_id, node.facts.failed_verb) == (State.DEPLOY_FAILED, None, Verb.DEPLOY)
    assert node.last_error is not None
    found = db.read(operations.get, operation_id)
    assert found is not None
    assert (found.status, found.ended_at, found.touched) == ("aborted", later(1), True)
    assert claim(db, now=later(1)) == []
    db.write(nodes.update, node_id, {"maintenance": False}, later(2))
    assert (
        claim(db, now=later(2)) == claim(db, "daemon-2", now=later(2)) == []
    )  # its last call to the BMC may not be over
    db.write(claims.let_go, held)
    [held] = claim(db, now=later(2))
    db.write(claims.let_go, replace(held, epoch=held.epoch - 1, until=Micros(held.until - 1)))  # an older step of ours
    work = db.read(operations.get, cleanup.operation_id)
    assert work is not None
    assert (held.node_id, work.status) == (node_id, "queued")
    with pytest.raises(Lost):
        db.write(operations.end_now, node_id, ended, an_audit(node_id), [], later(3), None)


def test_the_last_failed_workflow_is_what_a_retry_does_again(db: Db) -> None:
    node_id, first, held = under_way(db)
    assert db.read(operations.last_failed, node_id) is None
    save(db, held, first, an_end(node_id, first, State.INSPECT_FAILED, EndStatus.FAILED), now=later(1))
    second = start(db, node_id, origin=State.INSPECT_FAILED, now=later(2))
    [held] = claim(db, "daemon-1", later(2)) or [held]
    save(db, held, second, an_end(node_id, second, State.INSPECT_FAILED, EndStatus.ABORTED), now=later(3))
    found = db.read(operations.last_failed, node_id)
    assert found is not None
    assert (found.operation_id, found.status) == (second, "aborted")


def test_the_timeline_outlives_the_node(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    queue(db, node_id, now=later(1))
    save(db, held, operation_id, an_end(node_id, operation_id))
    db.write(nodes.tombstone_and_delete, node_id, "gone", later(2))
    found = db.read(operations.timeline, node_id, 10)
    assert [(one["verb"], one["status"]) for one in found] == [("refresh", "refused"), ("inspect", "done")]
    assert db.read(operations.timeline, node_id, 1) == found[:1]


def test_the_view_is_rewritten_by_whatever_changes_it(db: Db) -> None:
    """Each function of the store leaves a stored view that is what a fresh rewrite would store."""
    node_id = a_node(db)
    operation_id = start(db, node_id)
    [held] = claim(db)
    know(db, node_id, SetSighting(power="on"))
    save(db, held, operation_id, a_run(node_id, operation_id, waiting_for="It boots.", waiting_since=NOW))
    queue(db, node_id)
    record(db, node_id, {"protected": True, "protected_reason": "demo"})
    save(db, held, operation_id, an_end(node_id, operation_id, State.INSPECT_FAILED, EndStatus.FAILED))
    db.write(nodes.update, node_id, {"disks": Disks.CLEAN}, NOW)
    before = db.rows("SELECT doc FROM node_views")
    db.write(views.rewrite, node_id, NOW)
    assert db.rows("SELECT doc FROM node_views") == before


def test_views_are_read_in_the_order_that_was_asked(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    assert [view.doc["nodeId"] for view in db.read(views.read, [two, "nd_none", one])] == [two, one]
    [view] = db.read(views.read, [one])
    assert view.facts == node_of(db, one).facts
    assert (view.generation, view.pool_id, view.tenant_id, view.sighting) == (1, "gpu", "tenant-a", None)


def test_a_retried_verb_may_start_from_its_failed_state(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    save(db, held, operation_id, an_end(node_id, operation_id, State.INSPECT_FAILED, EndStatus.FAILED))
    again = db.write(
        operations.start,
        node_id,
        3,
        a_move(Verb.INSPECT, State.INSPECT_FAILED),
        an_operation(),
        an_audit(node_id),
        [],
        later(1),
    )
    found = db.read(operations.get, again)
    assert found is not None
    assert found.origin_state == "inspect-failed"
