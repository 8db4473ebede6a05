"""Side operations in the store: queued beside whatever runs, saved under the node's claim, and shown in its view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bcmetal.decisions import Micros
from bcmetal.errors import Stale
from bcmetal.states import SideVerb, State
from bcmetal.store import claims, nodes, operations, sealed, views
from bcmetal.store.side_operations import LOOKED_BACK
from bcmetal.store.values import SetNode
from store.samples import (
    NOW,
    Db,
    a_node,
    a_sealed,
    an_audit,
    an_end,
    an_operation,
    claim,
    facts_of,
    later,
    operation_of,
    queue,
    save,
    under_way,
)


def test_a_side_operation_changes_no_state_and_ends(db: Db) -> None:
    node_id = a_node(db)
    side = queue(db, node_id, SideVerb.SET_POWER)
    assert facts_of(db, node_id).generation == 1
    [held] = claim(db)
    db.write(claims.save_side, held, side, "done", None, [SetNode({"desired_power": "on"})], later(1))
    node = facts_of(db, node_id)
    assert (node.facts.state, node.generation, node.desired_power) == (State.ENROLLED, 1, "on")
    assert operation_of(db, side).status == "done"
    db.write(claims.release, held)
    assert claim(db) == []


def test_a_side_operation_may_wait_and_its_secret_goes_when_it_ends(db: Db) -> None:
    node_id = a_node(db)
    op = an_operation(SideVerb.SET_BMC_CREDENTIALS)
    secret = a_sealed("operation", op.operation_id)
    db.write(operations.queue_side, node_id, replace(op, sealed=(secret,)), an_audit(node_id), [], NOW)
    [held] = claim(db)
    error = {"code": "bmc-busy", "message": "busy", "step": "x", "at": NOW}
    db.write(claims.save_side, held, op.operation_id, "queued", error, [], NOW, later(30))
    waiting = db.read(claims.load, held, later(1))
    assert waiting is not None
    assert waiting.side == ()
    db.write(claims.release, held)
    assert claim(db, now=later(29)) == []
    [held] = claim(db, now=later(30))
    assert db.read(sealed.get, "operation", op.operation_id) == (secret,)
    db.write(claims.save_side, held, op.operation_id, "failed", error, [], later(31))
    assert db.read(sealed.get, "operation", op.operation_id) == ()
    found = operation_of(db, op.operation_id)
    assert (found.status, found.error, found.ended_at) == ("failed", error, later(31))


def test_a_side_operation_that_ended_is_not_saved_again(db: Db) -> None:
    node_id = a_node(db)
    side = queue(db, node_id)
    [held] = claim(db)
    db.write(claims.save_side, held, side, "done", None, [], NOW)
    with pytest.raises(Stale):
        db.write(claims.save_side, held, side, "failed", None, [SetNode({"desired_power": "on"})], NOW)
    assert facts_of(db, node_id).desired_power is None


def test_side_operations_that_wait_make_a_node_due_when_its_workflow_ends(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    queue(db, node_id, now=later(1))
    save(db, held, operation_id, an_end(node_id, operation_id), now=later(2))
    db.write(claims.release, held)
    assert [one.node_id for one in claim(db, now=later(2))] == [node_id]


# ---------------------------------------------------------------- as the node's view shows them


def shown(db: Db, node_id: str) -> list[dict[str, Any]]:
    [view] = db.read(views.read, [node_id])
    found = view.doc["sideOperations"]
    assert isinstance(found, list)
    return found


def end(db: Db, node_id: str, verb: SideVerb, status: str, now: Micros) -> str:
    """Queue one and end it, as the engine would; its id."""
    side = queue(db, node_id, verb, now)
    [held] = claim(db, now=now)
    error = {"code": "bmc-refused", "message": "no", "step": verb.value, "at": now} if status == "failed" else None
    db.write(claims.save_side, held, side, status, error, [], now)
    db.write(claims.release, held)
    return side


def test_the_view_shows_what_a_queued_side_operation_waits_for(db: Db) -> None:
    node_id = a_node(db)
    side = queue(db, node_id, SideVerb.SET_POWER)
    assert [(one["id"], one["status"], one["waitingFor"]) for one in shown(db, node_id)] == [(side, "queued", None)]
    [held] = claim(db)
    wait = "frozen: power work"
    db.write(claims.save_side, held, side, "queued", None, [], NOW, later(30), waiting_for=wait)
    [one] = shown(db, node_id)
    assert (one["verb"], one["waitingFor"], one["nextTryAt"]) == ("setPower", wait, views.stamp(later(30)))
    assert operation_of(db, side).waiting_for == wait
    db.write(claims.save_side, held, side, "done", None, [], later(30))
    assert shown(db, node_id) == []
    assert operation_of(db, side).waiting_for is None


def test_in_maintenance_the_view_says_that_a_side_operation_is_held(db: Db) -> None:
    node_id = a_node(db)
    queue(db, node_id, SideVerb.REFRESH)
    db.write(nodes.update, node_id, {"maintenance": True}, later(1))
    [one] = shown(db, node_id)
    assert (one["waitingFor"], one["nextTryAt"]) == ("the node is in maintenance", None)


def test_a_failed_side_operation_is_shown_until_a_later_one_of_its_verb_succeeded(db: Db) -> None:
    node_id = a_node(db, "n1")
    end(db, node_id, SideVerb.SET_POWER, "failed", later(1))
    again = end(db, node_id, SideVerb.SET_POWER, "failed", later(2))
    end(db, node_id, SideVerb.REFRESH, "done", later(3))
    [one] = shown(db, node_id)
    assert (one["id"], one["status"], one["error"]["code"]) == (again, "failed", "bmc-refused")
    assert "n1" in one["error"]["hint"]
    end(db, node_id, SideVerb.SET_POWER, "done", later(4))
    assert shown(db, node_id) == []


def test_of_a_failure_long_ago_only_the_timeline_tells(db: Db) -> None:
    node_id = a_node(db)
    end(db, node_id, SideVerb.SET_POWER, "failed", later(0))
    for n in range(1, LOOKED_BACK):
        end(db, node_id, SideVerb.REFRESH, "done", later(n))
    assert [one["verb"] for one in shown(db, node_id)] == ["setPower"]
    end(db, node_id, SideVerb.REFRESH, "done", later(LOOKED_BACK))
    assert shown(db, node_id) == []
