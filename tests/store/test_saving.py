"""Saving under a claim: the cursor, the end, the first effect, intents; and what a stale one may write: nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bcmetal.decisions import SECOND, EndStatus, LastError
from bcmetal.errors import Stale
from bcmetal.states import State, Verb
from bcmetal.store import claims, operations, sealed, views
from bcmetal.store.values import (
    Emit,
    Fact,
    SetBmc,
    SetCondition,
    SetMemo,
    SetNode,
    StepRun,
)
from store.samples import (
    NOW,
    STEPS,
    Db,
    a_bmc,
    a_node,
    a_run,
    a_sealed,
    an_audit,
    an_end,
    an_event,
    an_operation,
    claim,
    everything,
    facts_of,
    fresh,
    know,
    later,
    operation_of,
    queue,
    save,
    start,
    state_of,
    under_way,
)

# ---------------------------------------------------------------- saving


def test_a_run_is_the_operations_cursor(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    run = a_run(
        node_id,
        operation_id,
        step=STEPS[1],
        attempt=2,
        backs=1,
        touched=True,
        budget_used_us=5 * SECOND,
        asked_wait_us=SECOND,
        counted_at=later(3),
        wake_at=later(9),
        waiting_for="The machine starts.",
        waiting_since=later(2),
        progress=0.5,
        error=LastError("bmc-busy", "busy", STEPS[1], later(2)),
    )
    step_run = StepRun(STEPS[0], 1, "done", None, NOW, later(1))
    db.write(claims.save, held, operation_id, run, step_run, [SetMemo({"job": "7"})], later(3), True)
    op = operation_of(db, operation_id)
    assert (op.step, op.step_attempt, op.backs, op.touched, op.wake_at) == (STEPS[1], 2, 1, True, later(9))
    assert (op.waiting_for, op.waiting_since, op.progress) == ("The machine starts.", later(2), 0.5)
    assert (op.budget_used_us, op.asked_wait_us, op.counted_at) == (5 * SECOND, SECOND, later(3))
    assert op.error == {"code": "bmc-busy", "message": "busy", "step": STEPS[1], "at": later(2)}
    assert op.memo == {"job": "7"}
    [entry] = db.read(operations.timeline, node_id, 10)
    assert [(one["step"], one["outcome"]) for one in entry["steps"]] == [(STEPS[0], "done")]
    [view] = db.read(views.read, [node_id])
    assert view.doc["operation"]["stepNumber"] == 2
    assert view.doc["operation"]["waitingFor"] == "The machine starts."
    assert view.doc["operation"]["budgetLeftS"] == 895
    assert state_of(db, node_id) is State.INSPECTING
    assert facts_of(db, node_id).generation == 2
    assert db.read(claims.load, held, NOW) is None  # released


def test_success_ends_the_workflow_in_its_state(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    save(db, held, operation_id, an_end(node_id, operation_id), now=later(5))
    node = facts_of(db, node_id)
    assert (node.facts.state, node.generation, node.operation_id) == (State.INSPECTED, 3, None)
    assert node.last_error is None
    op = operation_of(db, operation_id)
    assert (op.status, op.ended_at, op.error) == ("done", later(5), None)
    db.write(claims.release, held)
    assert claim(db) == []


def test_a_failure_leaves_its_error_and_what_a_retry_would_do(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    save(db, held, operation_id, an_end(node_id, operation_id, State.INSPECT_FAILED, EndStatus.FAILED))
    node = facts_of(db, node_id)
    assert node.last_error["code"] == "bmc-unreachable"
    assert (node.facts.failed_verb, node.facts.failed_origin) == (Verb.INSPECT, State.ENROLLED)
    failed = db.read(operations.last_failed, node_id)
    assert failed is not None
    assert failed.operation_id == operation_id
    [view] = db.read(views.read, [node_id])
    assert view.doc["needsAttention"]
    assert "bcmetal" in view.doc["lastError"]["hint"]


def test_an_untouched_failure_keeps_the_error_too(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    end = an_end(node_id, operation_id, State.ENROLLED, EndStatus.FAILED, touched=False)
    save(db, held, operation_id, end)
    node = facts_of(db, node_id)
    assert node.facts.state is State.ENROLLED
    assert node.last_error["message"] == "no answer"
    assert node.facts.failed_verb is None  # nothing to retry from a rest state


def test_what_troubles_a_running_step_is_the_last_error_meanwhile(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    busy = LastError("bmc-busy", "its session table is full", STEPS[1], NOW)
    held = save(db, held, operation_id, a_run(node_id, operation_id, error=busy))
    [view] = db.read(views.read, [node_id])
    assert (view.doc["lastError"]["code"], view.doc["lastError"]["hint"] != "") == ("bmc-busy", True)
    save(db, held, operation_id, a_run(node_id, operation_id))
    [view] = db.read(views.read, [node_id])
    assert view.doc["lastError"] is None


def test_the_last_error_stays_until_the_next_workflow_ends(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    save(db, held, operation_id, an_end(node_id, operation_id, State.INSPECT_FAILED, EndStatus.FAILED))
    db.write(claims.release, held)
    again = start(db, node_id, origin=State.INSPECT_FAILED)
    assert facts_of(db, node_id).last_error is not None
    [held] = claim(db)
    save(db, held, again, an_end(node_id, again))
    assert facts_of(db, node_id).last_error is None


def test_secrets_of_a_done_operation_go_and_those_of_a_failed_one_wait_for_a_retry(db: Db) -> None:
    node_id = a_node(db)
    op = an_operation()
    start(db, node_id, op=replace(op, sealed=(a_sealed("operation", op.operation_id),)))
    [held] = claim(db)
    save(db, held, op.operation_id, an_end(node_id, op.operation_id, State.INSPECT_FAILED, EndStatus.FAILED))
    assert len(db.read(sealed.get, "operation", op.operation_id)) == 1
    db.write(claims.release, held)
    again = an_operation()
    start(
        db, node_id, origin=State.INSPECT_FAILED, op=replace(again, sealed=(a_sealed("operation", again.operation_id),))
    )
    [held] = claim(db)
    save(db, held, again.operation_id, an_end(node_id, again.operation_id))
    assert db.read(sealed.every) == ()


def test_a_retired_node_holds_its_bmc_against_nobody(db: Db) -> None:
    bmc = a_bmc()
    node_id, operation_id, held = under_way(db, Verb.RETIRE, bmc=bmc)
    know(db, node_id, SetBmc({"proven_at": NOW}))
    save(db, held, operation_id, an_end(node_id, operation_id, State.RETIRED, verb=Verb.RETIRE))
    rival = a_node(db, bmc=bmc, tenant_id="tenant-b", pool_id="cpu")
    know(db, rival, SetBmc({"proven_at": NOW}))
    assert facts_of(db, rival).bmc.proven_at == NOW


def test_a_stale_claim_writes_nothing(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    side = queue(db, node_id)
    db.write(claims.release, held)
    [theirs] = claim(db, "daemon-2")
    before = everything(db)
    facts: list[Fact] = [SetNode({"desired_power": "on"}), Emit(fresh("ev"), "metal.step.finished", {})]
    run, end = a_run(node_id, operation_id, touched=True), an_end(node_id, operation_id)
    for stale in (held, replace(theirs, owner="daemon-1"), replace(theirs, epoch=theirs.epoch + 1)):
        with pytest.raises(Stale):
            save(db, stale, operation_id, run, facts)
        with pytest.raises(Stale):
            save(db, stale, operation_id, end, facts)
        with pytest.raises(Stale):
            db.write(claims.touch, stale, operation_id, NOW)
        with pytest.raises(Stale):
            db.write(claims.save_side, stale, side, "done", None, facts, NOW)
        with pytest.raises(Stale):
            db.write(claims.intent_begin, stale, operation_id, "reset", "", NOW)
        with pytest.raises(Stale):
            db.write(claims.intent_end, stale, operation_id, 1, "done", NOW)
        db.write(claims.release, stale, None)
    assert everything(db) == before
    save(db, theirs, operation_id, end, facts)
    assert state_of(db, node_id) is State.INSPECTED


def test_a_workflow_that_was_ended_meanwhile_is_not_saved(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    ended = an_end(node_id, operation_id, State.ENROLLED, EndStatus.ABORTED, touched=False)
    db.write(operations.end_now, node_id, ended, an_audit(node_id), [], NOW, None)
    with pytest.raises(Stale):
        save(db, held, operation_id, an_end(node_id, operation_id))
    assert state_of(db, node_id) is State.ENROLLED


def test_an_abort_that_comes_while_a_step_runs_is_seen_at_once_after_it(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    assert db.write(operations.request_abort, node_id, "key:anna", an_audit(node_id), [], NOW) == operation_id
    save(db, held, operation_id, a_run(node_id, operation_id, wake_at=later(600)), now=later(1))
    db.write(claims.release, held)
    assert [one.node_id for one in claim(db, now=later(1))] == [node_id]
    assert operation_of(db, operation_id).abort


def test_a_wait_is_cut_short_for_a_side_operation_queued_meanwhile(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    side = queue(db, node_id, now=later(1))
    save(db, held, operation_id, a_run(node_id, operation_id, wake_at=later(600)), now=later(2))
    db.write(claims.release, held)
    [held] = claim(db, now=later(2))
    work = db.read(claims.load, held, later(2))
    assert work is not None
    assert [one.operation_id for one in work.side] == [side]
    db.write(claims.save_side, held, side, "done", None, [], later(3))
    db.write(claims.release, held)
    assert claim(db, now=later(599)) == []
    assert len(claim(db, now=later(600))) == 1


# ---------------------------------------------------------------- touch and intents


def test_touch_is_written_before_the_first_effect(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    db.write(claims.touch, held, operation_id, NOW)
    assert operation_of(db, operation_id).touched
    [view] = db.read(views.read, [node_id])
    assert view.doc["operation"]["touched"]


def test_an_intent_that_was_never_closed_is_found_open(db: Db) -> None:
    _, operation_id, held = under_way(db)
    first = db.write(claims.intent_begin, held, operation_id, "reset", "d", NOW)
    assert (first.n, first.open) == (1, False)
    found = db.write(claims.intent_begin, held, operation_id, "reset", "d", later(1))
    assert (found.n, found.open) == (1, True)
    other = db.write(claims.intent_begin, held, operation_id, "password", "d", later(1))
    assert (other.n, other.open) == (2, False)
    db.write(claims.intent_end, held, operation_id, first.n, "done", later(2))
    again = db.write(claims.intent_begin, held, operation_id, "reset", "d", later(3))
    assert (again.n, again.open) == (3, False)


def test_events_and_facts_are_written_with_the_settle_or_not_at_all(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    facts: list[Fact] = [
        Emit("ev_one", "metal.step.finished", {"step": "look"}),
        SetCondition("power", "error", "error", "odd", "odd"),
        SetNode({"no_such_column": 1}),
    ]
    with pytest.raises(KeyError):
        save(db, held, operation_id, a_run(node_id, operation_id), facts)
    assert db.rows("SELECT count(*) FROM outbox WHERE event_id = 'ev_one'") == [(0,)]
    event = an_event(node_id, "metal.step.finished")
    db.write(claims.save, held, operation_id, a_run(node_id, operation_id), None, facts[:2], NOW, False, events=[event])
    types = [row[0] for row in db.rows("SELECT type FROM outbox ORDER BY seq")]
    assert types == [
        "metal.state.changed",
        "metal.step.finished",
        "metal.condition.changed",
        "metal.step.finished",
    ]
