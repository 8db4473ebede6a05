"""Claims: a lease on a node with an epoch. Every write of the engine carries the epoch; a stale one writes nothing.

`claim_due` is in `due`. The guard is the WHERE of the first UPDATE of each function here; that row's lock then holds for the rest of
the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from sqlalchemy import Connection, bindparam, case, func, insert, select, update

from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import Stale
from bcmetal.settling import Ended, EndStatus, Run
from bcmetal.states import State
from bcmetal.store import freezes, intents, jsontext, nodes, operations, outbox, rows, sealed, sightings, views
from bcmetal.store.due import SLOW_LANE, TAKEOVER_WAIT_S, claim_due
from bcmetal.store.tables import bmcs as bmcs_table
from bcmetal.store.tables import nodes as nodes_table
from bcmetal.store.tables import operations as operations_table
from bcmetal.store.tables import step_runs
from bcmetal.store.time import db_now
from bcmetal.store.values import (
    Claim,
    Fact,
    Holds,
    Intent,
    Json,
    NewEvent,
    NodeRow,
    OperationRow,
    Sealed,
    SetMemo,
    StepRun,
    Work,
)

__all__ = [
    "SLOW_LANE",
    "TAKEOVER_WAIT_S",
    "claim_due",
    "clear_own",
    "holds",
    "intent_begin",
    "intent_end",
    "let_go",
    "load",
    "next_due",
    "peek",
    "release",
    "renew",
    "save",
    "save_side",
    "touch",
]

n = nodes_table.c
o = operations_table.c
OURS: Final = (
    n.node_id == bindparam("a_node_id"),
    n.claim_owner == bindparam("a_owner"),
    n.claim_epoch == bindparam("a_epoch"),
)
_RELEASED: Final = {"claim_owner": None, "claim_until": None}

_RENEW: Final = (
    update(nodes_table).where(*OURS).values(claim_until=db_now() + bindparam("a_lease_us")).returning(n.claim_until)
)
_held: Final = select(n.node_id).where(*OURS).with_for_update().scalar_subquery()
_TOUCH: Final = (
    update(operations_table)
    .where(o.operation_id == bindparam("a_operation_id"), o.ended_at.is_(None), o.node_id == _held)
    .values(touched=True)
)
_SHOW: Final = (
    update(operations_table)
    .where(o.operation_id == bindparam("a_operation_id"), o.ended_at.is_(None), o.node_id == _held)
    .values(waiting_for=bindparam("a_waiting_for"), progress=bindparam("a_progress"))
)
# The earliest of the run's own wake and the queued side operations'.
_due = case((n.side_due_at < bindparam("a_due"), n.side_due_at), else_=bindparam("a_due"))


def _save(guard: Sequence[Any]) -> Any:
    return update(nodes_table).where(*guard).values(due_at=_due, updated_at=bindparam("a_now"))


def _save_ended(guard: Sequence[Any]) -> Any:
    return (
        update(nodes_table)
        .where(*guard)
        .values(
            state=bindparam("a_state"),
            generation=n.generation + 1,
            operation_id=None,
            queued_verb=None,
            last_error=bindparam("a_error"),
            failed_verb=bindparam("a_failed_verb"),
            failed_origin=select(o.origin_state).where(o.operation_id == bindparam("a_failed_id")).scalar_subquery(),
            due_at=n.side_due_at,
            updated_at=bindparam("a_now"),
        )
    )


_workflow = (*OURS, n.operation_id == bindparam("a_operation_id"))
_SAVE: Final = _save(_workflow)
_SAVE_RELEASE: Final = _SAVE.values(_RELEASED)
_ENDED: Final = _save_ended(_workflow)
_ENDED_RELEASE: Final = _ENDED.values(_RELEASED)
_CURSOR: Final = (
    update(operations_table)
    .where(o.operation_id == bindparam("a_operation_id"))
    .values(
        step=bindparam("a_step"),
        step_number=bindparam("a_step_number"),
        steps=bindparam("a_steps"),
        step_attempt=bindparam("a_attempt"),
        backs=bindparam("a_backs"),
        touched=bindparam("a_touched"),
        cleaning=bindparam("a_cleaning"),
        wake_at=bindparam("a_wake_at"),
        asked_wait_us=bindparam("a_asked_wait_us"),
        counted_at=bindparam("a_counted_at"),
        budget_us=bindparam("a_budget_us"),
        budget_used_us=bindparam("a_budget_used_us"),
        waiting_for=bindparam("a_waiting_for"),
        waiting_since_at=bindparam("a_waiting_since"),
        progress=bindparam("a_progress"),
        error=bindparam("a_error"),
    )
    .returning(o.abort_at)
)
_HURRY: Final = update(nodes_table).where(*OURS).values(due_at=bindparam("a_now"))
_MEMO: Final = (
    update(operations_table).where(o.operation_id == bindparam("a_operation_id")).values(memo=bindparam("a_memo"))
)
_STEP_RUN: Final = insert(step_runs)
_MODEL: Final = (
    select(bmcs_table.c.model)
    .join(nodes_table, n.bmc_id == bmcs_table.c.bmc_id)
    .where(n.node_id == bindparam("a_node_id"))
    .scalar_subquery()
)
_HOLD: Final = update(nodes_table).where(*OURS).values(updated_at=bindparam("a_now"))
_SIDE: Final = (
    update(operations_table)
    .where(o.operation_id == bindparam("a_operation_id"), o.node_id == bindparam("a_node_id"), o.ended_at.is_(None))
    .values(
        status=bindparam("a_status"),
        error=bindparam("a_error"),
        waiting_for=bindparam("a_waiting_for"),
        wake_at=bindparam("a_wake_at"),
        ended_at=bindparam("a_ended_at"),
        started_at=func.coalesce(o.started_at, bindparam("a_now")),
        counted_at=bindparam("a_now"),
    )
)
_side_due: Final = (
    select(func.min(func.coalesce(o.wake_at, o.created_at)))
    .where(o.node_id == bindparam("a_node_id"), o.status == "queued")
    .scalar_subquery()
)
_run_due: Final = (
    select(o.wake_at)
    .where(o.operation_id == n.operation_id, o.status == "running")
    .correlate(nodes_table)
    .scalar_subquery()
)
_SIDE_DUE: Final = update(nodes_table).where(*OURS).values(side_due_at=_side_due)
_DUE: Final = (
    update(nodes_table)
    .where(*OURS)
    .values(
        due_at=case(
            (n.side_due_at.is_(None), _run_due),
            (_run_due.is_(None), n.side_due_at),
            (n.side_due_at < _run_due, n.side_due_at),
            else_=_run_due,
        )
    )
)
_RELEASE: Final = update(nodes_table).where(*OURS).values(_RELEASED)
_LET_GO: Final = _RELEASE.where(n.claim_until == bindparam("a_until"))
_RELEASE_DUE: Final = _RELEASE.values(due_at=bindparam("a_due"))
_CLEAR: Final = update(nodes_table).where(n.claim_owner.like(bindparam("a_prefix") + "%", escape="/")).values(_RELEASED)
_LOAD: Final = rows.NODE.where(n.claim_owner == bindparam("owner"), n.claim_epoch == bindparam("epoch"))
_OPEN: Final = (
    select(operations_table)
    .where(o.node_id == bindparam("node_id"), o.ended_at.is_(None), o.status.in_(("running", "queued")))
    .order_by(o.created_at, o.operation_id)
)
_HOLDS: Final = (
    select(n.maintenance, n.quiet, n.claim_owner, n.claim_epoch, o.abort_at, freezes.covering_node.label("frozen"))
    .select_from(nodes_table.outerjoin(operations_table, o.operation_id == bindparam("operation_id")))
    .where(n.node_id == bindparam("node_id"))
)
_NEXT: Final = (
    select(n.due_at)
    .where(n.due_at > bindparam("now"), n.queued_verb.is_(None), n.claim_owner.is_(None), ~n.maintenance, ~n.quiet)
    .order_by(n.due_at)
    .limit(1)
)


def _guard(claim: Claim) -> dict[str, Any]:
    return {"a_node_id": claim.node_id, "a_owner": claim.owner, "a_epoch": claim.epoch}


def renew(c: Connection, claims: Sequence[Claim], lease_s: float = 60) -> dict[str, Claim]:
    """Those that are still ours, with their new end."""
    renewed: dict[str, Claim] = {}
    for claim in sorted(claims, key=lambda one: one.node_id):
        until = c.execute(_RENEW, {**_guard(claim), "a_lease_us": int(lease_s * SECOND)}).scalar_one_or_none()
        if until is not None:
            renewed[claim.node_id] = Claim(claim.node_id, claim.owner, claim.epoch, Micros(until))
    return renewed


def load(c: Connection, claim: Claim, now: Micros) -> Work | None:
    """All that there is to do at the node, with the side operations that are due. None: the claim is lost."""
    asked = {"node_id": claim.node_id, "owner": claim.owner, "epoch": claim.epoch}
    row = c.execute(_LOAD, asked).one_or_none()
    return None if row is None else _work(c, rows.node_from(c, row), now)


def peek(c: Connection, node_id: str) -> Work | None:
    """The same without a claim, for a reader: the node, its BMC and the BMC's secrets. All queued side operations are there."""
    node = rows.node(c, node_id)
    return None if node is None else _work(c, node, None)


def _work(c: Connection, node: NodeRow, now: Micros | None) -> Work:
    workflow: OperationRow | None = None
    side: list[OperationRow] = []
    for row in c.execute(_OPEN, {"node_id": node.node_id}):
        operation = rows.operation_from(row)
        if operation.kind == "workflow":
            workflow = operation
        elif now is None or operation.wake_at is None or operation.wake_at <= now:
            side.append(operation)
    owners = [one.operation_id for one in (*side, *((workflow,) if workflow else ()))]
    if node.bmc is not None:
        owners.append(node.bmc.bmc_id)
    secrets: tuple[Sealed, ...] = sealed.of_owners(c, owners) if owners else ()
    return Work(
        node=node,
        workflow=workflow,
        side=tuple(side),
        sealed=secrets,
        frozen=freezes.covering(c, node.site_id, node.pool_id, node.location_rack),
        sighting=sightings.get(c, node.node_id),
    )


def holds(c: Connection, claim: Claim, operation_id: str) -> Holds:
    """One look, just before a mutating act."""
    row = c.execute(_HOLDS, {"node_id": claim.node_id, "operation_id": operation_id}).one_or_none()
    if row is None:
        return Holds(ours=False, abort=False, maintenance=False, quiet=False, frozen=None)
    return Holds(
        ours=row.claim_owner == claim.owner and row.claim_epoch == claim.epoch,
        abort=row.abort_at is not None,
        maintenance=row.maintenance,
        quiet=row.quiet,
        frozen=row.frozen,
    )


def touch(c: Connection, claim: Claim, operation_id: str, now: Micros) -> None:
    """The operation's first effect is about to begin. Raises Stale."""
    if not c.execute(_TOUCH, {**_guard(claim), "a_operation_id": operation_id}).rowcount:
        raise Stale
    views.rewrite(c, claim.node_id, now)


def show(c: Connection, claim: Claim, operation_id: str, waiting_for: str, progress: float, now: Micros) -> None:
    """How far a step is that goes on for long. Raises Stale."""
    shown = {"a_operation_id": operation_id, "a_waiting_for": waiting_for, "a_progress": progress}
    if not c.execute(_SHOW, {**_guard(claim), **shown}).rowcount:
        raise Stale
    views.rewrite(c, claim.node_id, now)


def save(
    c: Connection,
    claim: Claim,
    operation_id: str,
    run: Run | Ended,
    step_run: StepRun | None,
    facts: Sequence[Fact],
    now: Micros,
    release: bool = False,
    *,
    events: Sequence[NewEvent] = (),
) -> Claim:
    """A step settled: its facts, the workflow's cursor or end, the node's due time. Raises Stale, IdentityHeld, BmcInUse."""
    asked: dict[str, Any] = {**_guard(claim), "a_operation_id": operation_id, "a_now": now}
    if isinstance(run, Ended):
        failed = run.status is not EndStatus.DONE
        statement = _ENDED_RELEASE if release else _ENDED
        asked |= {
            "a_state": run.state.value,
            "a_error": operations.error_text(run),
            "a_failed_verb": run.verb.value if failed else None,
            "a_failed_id": operation_id if failed else None,
        }
    else:
        statement = _SAVE_RELEASE if release else _SAVE
        asked["a_due"] = run.wake_at
    if not c.execute(statement, asked).rowcount:
        raise Stale
    if isinstance(run, Ended):
        _end(c, claim.node_id, run, now)
    else:
        _move_cursor(c, claim, run, now)
    if step_run is not None:
        _add_step_run(c, claim, operation_id, step_run)
    _remember(c, operation_id, facts)
    nodes.apply(c, claim.node_id, facts, now)
    outbox.add(c, events, now)
    views.rewrite(c, claim.node_id, now)
    return claim


def _end(c: Connection, node_id: str, ended: Ended, now: Micros) -> None:
    operations.end(c, ended, now)
    if ended.status is EndStatus.DONE:
        sealed.purge_ended(c, node_id)  # those of failed ones are kept for a retry
    if ended.state is State.RETIRED:
        nodes.retired(c, node_id, now)


def _move_cursor(c: Connection, claim: Claim, run: Run, now: Micros) -> None:
    names = run.cleanup if run.cleaning else run.steps
    error = None
    if run.error is not None:
        one = run.error
        error = jsontext.dump({"code": one.code, "message": one.message, "step": one.step, "at": one.at})
    abort_at = c.execute(
        _CURSOR,
        {
            "a_operation_id": run.operation_id,
            "a_step": run.step,
            "a_step_number": names.index(run.step) + 1 if run.step in names else None,
            "a_steps": len(names),
            "a_attempt": run.attempt,
            "a_backs": run.backs,
            "a_touched": run.touched,
            "a_cleaning": run.cleaning,
            "a_wake_at": run.wake_at,
            "a_asked_wait_us": run.asked_wait_us,
            "a_counted_at": run.counted_at,
            "a_budget_us": run.budget_us,
            "a_budget_used_us": run.budget_used_us,
            "a_waiting_for": run.waiting_for,
            "a_waiting_since": run.waiting_since,
            "a_progress": run.progress,
            "a_error": error,
        },
    ).scalar_one()
    if abort_at is not None and not run.cleaning and not run.abort:
        c.execute(_HURRY, {**_guard(claim), "a_now": now})  # asked for while the step ran


def _add_step_run(c: Connection, claim: Claim, operation_id: str, done: StepRun) -> None:
    c.execute(
        _STEP_RUN.values(model=_MODEL),
        {
            "a_node_id": claim.node_id,
            "operation_id": operation_id,
            "step": done.step,
            "attempt": done.attempt,
            "outcome": done.outcome,
            "why": done.why,
            "started_at": done.started_at,
            "ended_at": done.ended_at,
            "daemon_id": claim.owner,
        },
    )


def _remember(c: Connection, operation_id: str, facts: Sequence[Fact]) -> None:
    for fact in facts:
        if isinstance(fact, SetMemo):
            c.execute(_MEMO, {"a_operation_id": operation_id, "a_memo": jsontext.dump(dict(fact.memo))})


def save_side(
    c: Connection,
    claim: Claim,
    operation_id: str,
    status: str,
    error: Json | None,
    facts: Sequence[Fact],
    now: Micros,
    wake_at: Micros | None = None,
    *,
    waiting_for: str | None = None,
    events: Sequence[NewEvent] = (),
) -> Claim:
    """A side operation ended (`done`, `failed`, `aborted`), or is queued again until `wake_at`: `waiting_for` says to what end.

    Raises Stale, IdentityHeld, BmcInUse.
    """
    if not c.execute(_HOLD, {**_guard(claim), "a_now": now}).rowcount:
        raise Stale
    queued = status == "queued"
    changed = c.execute(
        _SIDE,
        {
            "a_operation_id": operation_id,
            "a_node_id": claim.node_id,
            "a_status": status,
            "a_error": jsontext.dump_or_none(dict(error) if error is not None else None),
            "a_waiting_for": waiting_for if queued else None,
            "a_wake_at": (wake_at if wake_at is not None else now) if queued else None,
            "a_ended_at": None if queued else now,
            "a_now": now,
        },
    )
    if not changed.rowcount:
        raise Stale
    if not queued:
        sealed.drop(c, operation_id)
    c.execute(_SIDE_DUE, _guard(claim))
    c.execute(_DUE, _guard(claim))
    _remember(c, operation_id, facts)
    nodes.apply(c, claim.node_id, facts, now)
    outbox.add(c, events, now)
    views.rewrite(c, claim.node_id, now)
    return claim


def release(c: Connection, claim: Claim, due_at: Micros | Literal["keep"] | None = "keep") -> None:
    """Give the node back. A claim that is lost already is none of ours to give."""
    if due_at == "keep":
        c.execute(_RELEASE, _guard(claim))
    else:
        c.execute(_RELEASE_DUE, {**_guard(claim), "a_due": due_at})


def let_go(c: Connection, claim: Claim) -> None:
    """Its workflow was ended from outside while its step ran; the step is over now, and nobody claimed the node since."""
    c.execute(_LET_GO, {**_guard(claim), "a_epoch": claim.epoch + 1, "a_until": claim.until})


def clear_own(c: Connection, owner_prefix: str) -> int:
    """Give back what owners of this prefix claimed; the empty prefix is everybody. For the start of a daemon that is alone."""
    escaped = owner_prefix.replace("/", "//").replace("%", "/%").replace("_", "/_")
    return int(c.execute(_CLEAR, {"a_prefix": escaped}).rowcount)


def intent_begin(c: Connection, claim: Claim, operation_id: str, name: str, args_digest: str, now: Micros) -> Intent:
    """Written before an act that cannot be observed. `open`: an earlier one of that name was never closed. Raises Stale."""
    if not c.execute(_HOLD, {**_guard(claim), "a_now": now}).rowcount:
        raise Stale
    return intents.begin(c, operation_id, name, args_digest, now)


def intent_end(c: Connection, claim: Claim, operation_id: str, number: int, outcome: str, now: Micros) -> None:
    """Raises Stale."""
    if not c.execute(_HOLD, {**_guard(claim), "a_now": now}).rowcount:
        raise Stale
    intents.end(c, operation_id, number, outcome, now)


def next_due(c: Connection, now: Micros) -> Micros | None:
    """When a free node falls due next, after `now`: what is due already is `claim_due`'s."""
    due = c.execute(_NEXT, {"now": now}).scalar_one_or_none()
    return None if due is None else Micros(due)
