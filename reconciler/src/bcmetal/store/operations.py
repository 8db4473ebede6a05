"""Operations: how a verb begins, and what becomes of it. Each function here is a verb's whole transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, case, func, insert, select, update

from bcmetal.decisions import Micros, Move
from bcmetal.errors import Lost
from bcmetal.settling import Ended
from bcmetal.states import State
from bcmetal.store import audit as audit_rows
from bcmetal.store import idempotency as keys
from bcmetal.store import jsontext, nodes, outbox, rows, sealed, views
from bcmetal.store.idempotency import Replay
from bcmetal.store.tables import nodes as nodes_table
from bcmetal.store.tables import operations, step_runs
from bcmetal.store.values import Idempotency, NewAudit, NewEvent, NewOperation, OperationRow

n = nodes_table.c

_START: Final = (
    update(nodes_table)
    .where(
        n.node_id == bindparam("a_node_id"),
        n.state == bindparam("a_origin"),
        n.generation == func.coalesce(bindparam("a_generation"), n.generation),
        n.operation_id.is_(None),
    )
    .values(
        state=bindparam("a_during"),
        generation=n.generation + 1,
        operation_id=bindparam("a_operation_id"),
        queued_verb=bindparam("a_verb"),
        due_at=bindparam("a_now"),
        updated_at=bindparam("a_now"),
    )
)
_QUEUE: Final = (
    update(nodes_table)
    .where(n.node_id == bindparam("a_node_id"))
    .values(
        due_at=case((n.due_at < bindparam("a_now"), n.due_at), else_=bindparam("a_now")),
        side_due_at=case((n.side_due_at < bindparam("a_now"), n.side_due_at), else_=bindparam("a_now")),
        updated_at=bindparam("a_now"),
    )
    .returning(n.tenant_id, n.state)
)
_INSERT: Final = insert(operations)
_OWNER: Final = select(n.tenant_id, n.state).where(n.node_id == bindparam("node_id"))
_ABORT_NODE: Final = (
    update(nodes_table)
    .where(n.node_id == bindparam("a_node_id"), n.operation_id.is_not(None))
    .values(due_at=bindparam("a_now"), queued_verb=None, updated_at=bindparam("a_now"))
    .returning(n.operation_id)
)
_ABORT: Final = (
    update(operations)
    .where(operations.c.operation_id == bindparam("a_operation_id"), operations.c.status == "running")
    .values(
        abort_at=func.coalesce(operations.c.abort_at, bindparam("a_now")),
        abort_by=func.coalesce(operations.c.abort_by, bindparam("a_by")),
    )
)
_END_NODE: Final = (
    update(nodes_table)
    .where(n.node_id == bindparam("a_node_id"), n.operation_id == bindparam("a_operation_id"))
    .values(
        state=bindparam("a_state"),
        generation=n.generation + 1,
        operation_id=None,
        queued_verb=None,
        last_error=bindparam("a_error"),
        failed_verb=bindparam("a_failed_verb"),
        failed_origin=bindparam("a_failed_origin"),
        due_at=n.side_due_at,
        claim_epoch=n.claim_epoch
        + 1,  # whoever runs its step now writes nothing more, and is left the time to end its call
        updated_at=bindparam("a_now"),
    )
)
END: Final = (
    update(operations)
    .where(operations.c.operation_id == bindparam("a_operation_id"), operations.c.ended_at.is_(None))
    .values(
        status=bindparam("a_status"),
        error=bindparam("a_error"),
        ended_at=bindparam("a_now"),
        touched=bindparam("a_touched"),
        wake_at=None,
        waiting_for=None,
        waiting_since_at=None,
    )
)
_GET: Final = select(operations).where(operations.c.operation_id == bindparam("operation_id"))
_LAST_FAILED: Final = (
    select(operations)
    .where(
        operations.c.node_id == bindparam("node_id"),
        operations.c.kind == "workflow",
        operations.c.status.in_(("failed", "aborted")),
    )
    .order_by(operations.c.ended_at.desc(), operations.c.operation_id.desc())
    .limit(1)
)
_TIMELINE: Final = (
    select(operations)
    .where(operations.c.node_id == bindparam("node_id"))
    .order_by(operations.c.created_at.desc(), operations.c.operation_id.desc())
    .limit(bindparam("limit"))
)
_STEPS: Final = (
    select(step_runs)
    .where(step_runs.c.operation_id.in_(bindparam("operation_ids", expanding=True)))
    .order_by(step_runs.c.n)
)


def start(
    c: Connection,
    node_id: str,
    expected_generation: int | None,
    move: Move,
    op: NewOperation,
    audit: NewAudit,
    events: Sequence[NewEvent],
    now: Micros,
    idempotency: Idempotency | None = None,
) -> str:
    """Begin a workflow. Raises Lost when the node is no longer in the state, or of the generation, that was decided upon."""
    if move.during is None:
        raise ValueError(f"{move.verb} has no busy state")
    moved = c.execute(
        _START,
        {
            "a_node_id": node_id,
            "a_origin": move.origin.value,
            "a_generation": expected_generation,
            "a_during": move.during.value,
            "a_operation_id": op.operation_id,
            "a_verb": str(op.verb),
            "a_now": now,
        },
    )
    if not moved.rowcount:
        raise Lost
    _add(c, node_id, op, "running", move.origin, now)
    return _told(c, node_id, op, audit, events, now, idempotency)


def queue_side(
    c: Connection,
    node_id: str,
    op: NewOperation,
    audit: NewAudit,
    events: Sequence[NewEvent],
    now: Micros,
    idempotency: Idempotency | None = None,
) -> str:
    """Queue a side operation; it runs between steps. Raises Lost when the node is gone."""
    queue(c, node_id, op, now)
    return _told(c, node_id, op, audit, events, now, idempotency)


def queue(c: Connection, node_id: str, op: NewOperation, now: Micros) -> None:
    row = c.execute(_QUEUE, {"a_node_id": node_id, "a_now": now}).one_or_none()
    if row is None:
        raise Lost
    _insert(c, node_id, row.tenant_id, op, "queued", row.state, now)


def record_instant(
    c: Connection,
    node_id: str,
    columns: Mapping[str, Any] | None,
    expected_generation: int | None,
    new_state: State | None,
    op: NewOperation,
    audit: NewAudit,
    events: Sequence[NewEvent],
    now: Micros,
    idempotency: Idempotency | None = None,
    *,
    expected_state: State | None = None,
) -> str:
    """What ends at once: adopt, setMaintenance, setProtected, update. A new state is taken only where no workflow is under way.

    Raises Lost; Conflict when a new name is taken.
    """
    before = c.execute(_OWNER, {"node_id": node_id}).one_or_none()
    if before is None:
        raise Lost
    extra: dict[str, Any] = {}
    where: list[Any] = []
    if expected_generation is not None:
        where.append(n.generation == expected_generation)
    if expected_state is not None:
        where.append(n.state == expected_state.value)
    if new_state is not None:
        extra["state"] = new_state.value
        where.extend((n.operation_id.is_(None), n.state == before.state))
    if columns or new_state is not None:
        extra["generation"] = n.generation + 1
    nodes.update_columns(c, node_id, columns or {}, now, extra=extra, where=where)
    _insert(c, node_id, before.tenant_id, op, "done", before.state, now, ended_at=now)
    return _told(c, node_id, op, audit, events, now, idempotency)


def request_abort(
    c: Connection, node_id: str, by: str, audit: NewAudit, events: Sequence[NewEvent], now: Micros
) -> str | None:
    """Flag the workflow under way; the engine ends it after the step it is in. None: nothing is under way."""
    operation_id: str | None = c.execute(_ABORT_NODE, {"a_node_id": node_id, "a_now": now}).scalar_one_or_none()
    if operation_id is None:
        return None
    if not c.execute(_ABORT, {"a_operation_id": operation_id, "a_now": now, "a_by": by}).rowcount:
        return None
    audit_rows.add(c, audit, now)
    outbox.add(c, events, now)
    views.rewrite(c, node_id, now)
    return operation_id


def end_now(
    c: Connection,
    node_id: str,
    ended: Ended,
    audit: NewAudit,
    events: Sequence[NewEvent],
    now: Micros,
    cleanup: NewOperation | None,
) -> None:
    """End the workflow at once, such as by an abort in maintenance or in a freeze; what it left is undone by `cleanup` once the hold lifts.

    A step that runs meanwhile loses its claim. Raises Lost when that workflow is no longer under way.
    """
    op = get(c, ended.operation_id)
    if op is None:
        raise Lost
    changed = c.execute(
        _END_NODE,
        {
            "a_node_id": node_id,
            "a_operation_id": ended.operation_id,
            "a_state": ended.state.value,
            "a_error": error_text(ended),
            "a_failed_verb": None if ended.status == "done" else ended.verb.value,
            "a_failed_origin": None if ended.status == "done" else op.origin_state,
            "a_now": now,
        },
    )
    if not changed.rowcount:
        raise Lost
    end(c, ended, now)
    if cleanup is not None:
        queue(c, node_id, cleanup, now)
        sealed.put(c, cleanup.sealed)
    audit_rows.add(c, audit, now)
    outbox.add(c, events, now)
    views.rewrite(c, node_id, now)


def end(c: Connection, ended: Ended, now: Micros) -> None:
    """The operation's row; the node's is the caller's."""
    c.execute(
        END,
        {
            "a_operation_id": ended.operation_id,
            "a_status": ended.status.value,
            "a_error": error_text(ended),
            "a_touched": ended.touched,
            "a_now": now,
        },
    )


def error_text(ended: Ended) -> str | None:
    if ended.error is None:
        return None
    error = ended.error
    return jsontext.dump({"code": error.code, "message": error.message, "step": error.step, "at": error.at})


def _told(
    c: Connection,
    node_id: str,
    op: NewOperation,
    audit: NewAudit,
    events: Sequence[NewEvent],
    now: Micros,
    idempotency: Idempotency | None,
) -> str:
    sealed.put(c, op.sealed)
    audit_rows.add(c, audit, now)
    outbox.add(c, events, now)
    if idempotency is not None:
        keys.add(c, idempotency, op.operation_id, node_id, now)
    views.rewrite(c, node_id, now)
    return op.operation_id


def _add(c: Connection, node_id: str, op: NewOperation, status: str, origin: State, now: Micros) -> None:
    tenant_id = c.execute(_OWNER, {"node_id": node_id}).one().tenant_id
    _insert(c, node_id, tenant_id, op, status, origin.value, now)


def _insert(
    c: Connection,
    node_id: str,
    tenant_id: str,
    op: NewOperation,
    status: str,
    origin: str,
    now: Micros,
    ended_at: Micros | None = None,
) -> None:
    c.execute(
        _INSERT,
        {
            "operation_id": op.operation_id,
            "node_id": node_id,
            "tenant_id": tenant_id,
            "kind": op.kind,
            "verb": str(op.verb),
            "status": status,
            "origin_state": origin,
            "input": jsontext.dump(dict(op.input)),
            "by": op.by,
            "step": op.first_step,
            "step_number": 1 if op.first_step else None,
            "steps": len(op.steps) or None,
            "wake_at": None if ended_at is not None else now,
            "counted_at": now,
            "budget_us": op.budget_us,
            "created_at": now,
            "started_at": ended_at,
            "ended_at": ended_at,
        },
    )


# ---------------------------------------------------------------- reading


def get(c: Connection, operation_id: str) -> OperationRow | None:
    row = c.execute(_GET, {"operation_id": operation_id}).one_or_none()
    return None if row is None else rows.operation_from(row)


def last_failed(c: Connection, node_id: str) -> OperationRow | None:
    """The workflow that failed or was aborted last: what `retry` does again."""
    row = c.execute(_LAST_FAILED, {"node_id": node_id}).one_or_none()
    return None if row is None else rows.operation_from(row)


def replayed(c: Connection, tenant_id: str, identity: str, key: str) -> Replay | None:
    return keys.find(c, tenant_id, identity, key)


def timeline(c: Connection, node_id: str, limit: int) -> list[dict[str, Any]]:
    """Operations, newest first, each with its step runs, oldest first; as the API shows them. Also of a node that is gone."""
    found = c.execute(_TIMELINE, {"node_id": node_id, "limit": limit}).all()
    steps: dict[str, list[dict[str, Any]]] = {row.operation_id: [] for row in found}
    if steps:
        for run in c.execute(_STEPS, {"operation_ids": list(steps)}):
            steps[run.operation_id].append(
                {
                    "step": run.step,
                    "attempt": run.attempt,
                    "outcome": run.outcome,
                    "why": run.why,
                    "startedAt": views.stamp(run.started_at),
                    "endedAt": views.stamp(run.ended_at),
                }
            )
    return [
        {
            "id": row.operation_id,
            "kind": row.kind,
            "verb": row.verb,
            "status": row.status,
            "originState": row.origin_state,
            "by": row.by,
            "input": jsontext.load(row.input),
            "touched": row.touched,
            "step": row.step,
            "waitingFor": row.waiting_for,
            "error": views.last_error(jsontext.load_or_none(row.error), "NODE"),
            "abortedBy": row.abort_by,
            "createdAt": views.stamp(row.created_at),
            "startedAt": views.stamp(row.started_at),
            "endedAt": views.stamp(row.ended_at),
            "steps": steps[row.operation_id],
        }
        for row in found
    ]
