"""The one way of every verb and side operation: replay a known key, decide, one transaction, wake the engine, answer with the view.

A new side operation is its row in `states.SIDE_TABLE`, its runbook in `side/`, and a function that calls `run_verb`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection

from bcmetal.api.access import actions_for, actions_on_pool, require
from bcmetal.api.calls import Call
from bcmetal.api.views import allowed_words, answer
from bcmetal.decisions import SECOND, Move, Params, PoolPolicy, Refusal, Refused, decide
from bcmetal.errors import BcmetalError, Conflict, Fault, InvalidInput, InvalidState, Lost, NotFound, PermissionDenied
from bcmetal.models_words import NodeMutation
from bcmetal.settings import Pool, Settings
from bcmetal.states import SideVerb, State, Verb
from bcmetal.store import nodes, operations
from bcmetal.store.values import Idempotency, Json, NewAudit, NewEvent, NewOperation, NodeRow, Sealed

ATTEMPTS: Final = 5  # how often a decision is made anew because somebody else moved the node meanwhile


@dataclass(frozen=True, slots=True)
class Decided:
    """What one transaction is to write."""

    call: Call[Any]
    row: NodeRow
    move: Move | None  # None: what needs no decision, such as maintenance
    operation: NewOperation
    audit: NewAudit
    events: Sequence[NewEvent]
    idempotency: Idempotency | None

    @property
    def expected_generation(self) -> int:
        """What was decided upon."""
        return self.row.generation


Record = Callable[[Connection, Decided], None]
Look = Callable[[Connection, NodeRow], Json]
Seal = Callable[[NodeRow, str], Sequence[Sealed]]


async def run_verb(
    call: Call[Any],
    verb: Verb | SideVerb | str,
    given: Json | None = None,
    *,
    check: Callable[[NodeRow], Json | None] | None = None,
    look: Look | None = None,
    seal: Seal | None = None,
    record: Record | None = None,
) -> Json:
    """`given` is the operation's input, as JSON without a secret; `check(node)` may add to it, or raise InvalidInput.

    `look` reads the input with the node instead (retry). `seal(node, operation id)` brings the secrets. `record` writes what is neither a
    workflow nor a side operation. A plain string for a verb needs no decision.
    """
    for _ in range(ATTEMPTS):
        done = await replayed(call)
        if done is not None:
            return done
        try:
            row, plan = await _decide(call, verb, given or {}, check, look, seal)
            await call.store.write(record or _record, plan)
        except BcmetalError as error:
            # A twin of this call, with the same key, may have been done since the key was looked up.
            done = await replayed(call)
            if done is not None:
                return done
            if not isinstance(error, Lost):
                raise
            continue
        call.services.wake(row.node_id)
        return await answer(call, row.node_id, plan.operation.operation_id)
    raise Conflict("the node is being changed by others all the time: try again", reason="busy")


async def _decide(
    call: Call[Any],
    verb: Verb | SideVerb | str,
    given: Json,
    check: Callable[[NodeRow], Json | None] | None,
    look: Look | None,
    seal: Seal | None,
) -> tuple[NodeRow, Decided]:
    row, found = await call.store.read(_look, call.its_pool.name, call.input.node_id, look)
    check_generation(call, row)
    wanted: Json = given if found is None else found
    if check is not None:
        wanted = {**wanted, **(check(row) or {})}
    move = None
    if isinstance(verb, Verb | SideVerb):
        params = params_of(row.facts.failed_verb if verb is Verb.RETRY else verb, wanted, call.settings, call.its_pool)
        if verb is Verb.RETRY and row.facts.failed_verb is not None:
            wants = actions_for(row.facts.failed_verb, wanted)
            require(actions_on_pool(call.settings, call.who, call.its_pool), wants, call.who, place_of(call))
        move = decided(call, row, decide(row.facts, verb, params, call.policy, call.now))
    return row, _plan(call, row, verb, move, wanted, seal)


def _look(c: Connection, pool_id: str, id_or_name: str, look: Look | None) -> tuple[NodeRow, Json | None]:
    node_id = nodes.find(c, pool_id, id_or_name)
    row = None if node_id is None else nodes.get(c, node_id)
    if row is None:
        raise NotFound
    return row, None if look is None else look(c, row)


async def node_of(call: Call[Any]) -> NodeRow:
    """The node of the call's pool. Raises NotFound."""
    row, _ = await call.store.read(_look, call.its_pool.name, call.input.node_id, None)
    return row


async def replayed(call: Call[Any]) -> Json | None:
    """The node's view as it is now, when this very call was made before. Raises Conflict for another use of the key."""
    asked = call.idempotency()
    if asked is None:
        return None
    found = await call.store.read(operations.replayed, asked.tenant_id, asked.identity, asked.key)
    if found is None:
        return None
    if (found.method, found.digest) != (asked.method, asked.digest) or found.node_id is None:
        raise Conflict(
            "this idempotency key was used for something else", reason="idempotency-key", field="idempotencyKey"
        )
    return await answer(call, found.node_id, found.operation_id)


def check_generation(call: Call[NodeMutation], row: NodeRow) -> None:
    wanted = call.input.if_generation
    if wanted is not None and wanted != row.generation:
        raise Conflict(
            f"the node is at generation {row.generation}, not {wanted}",
            reason="stale-generation",
            field="ifGeneration",
            generation=row.generation,
        )


def decided(call: Call[Any], row: NodeRow, decision: Move | Refusal) -> Move:
    """The move. A refusal is raised, with what is allowed instead."""
    if isinstance(decision, Move):
        return decision
    raise refused(decision, row, call.policy, call)


def refused(refusal: Refusal, row: NodeRow, policy: PoolPolicy, call: Call[Any]) -> Exception:
    if refusal.code is Refused.INVALID_INPUT:
        return InvalidInput([Fault(refusal.field or "", refusal.message)])
    details: dict[str, object] = {"reason": refusal.reason, **refusal.details}
    if refusal.field is not None:
        details["field"] = refusal.field
    if refusal.code is Refused.PERMISSION_DENIED:
        return PermissionDenied(refusal.message, **details)
    details["state"] = row.facts.state.value
    details["allowedVerbs"] = allowed_words(row.facts, policy, call.now)
    return InvalidState(refusal.message, **details)


def not_in_this_build(what: str, field: str | None = None) -> InvalidState:
    details = {"reason": "not-in-this-build"} | ({"field": field} if field else {})
    return InvalidState(f"this build does not have {what} yet", **details)


def params_of(verb: Verb | SideVerb | None, given: Mapping[str, Any], settings: Settings, pool: Pool) -> Params:
    """The part of a verb's input that decides; of a new call as of a stored one."""
    profile = given.get("profile")
    erases = None
    if profile is not None:
        known = settings.profiles.commission if verb is Verb.COMMISSION else settings.profiles.release
        erases = known[profile].erases if profile in known else None
    waiver = given.get("eraseWaiver")
    return Params(
        rebuild=bool(given.get("rebuild")),
        confirm_erase=given.get("confirmErase"),
        erases=erases,
        waiver=waiver is not None,
        waiver_machine=bool(waiver and waiver.get("machine")),
        abandon=given.get("abandon"),
        kind=str(given.get("kind", "iso")),
        deep=bool(given.get("deep")),
        ssh_keys=bool(given.get("sshKeys")),
        password_hash=bool(given.get("passwordHash")),
        power=given.get("action"),
    )


def _plan(
    call: Call[Any], row: NodeRow, verb: Verb | SideVerb | str, move: Move | None, given: Json, seal: Seal | None
) -> Decided:
    operation_id = call.new_id("op")
    events: list[NewEvent] = []
    does = verb if move is None else move.verb
    operation = NewOperation(operation_id, "instant", does, call.who.name, given)
    if isinstance(verb, SideVerb):
        operation = replace(operation, kind="side")
    elif move is not None and move.during is not None and isinstance(move.verb, Verb):
        steps = tuple(call.services.steps_of(move.verb, row, given, call.its_pool))
        operation = replace(
            operation, kind="workflow", steps=steps, first_step=steps[0], budget_us=move.budget_s * SECOND
        )
        events.append(state_event(call, row, move.during, str(does), operation_id))
    if does is Verb.RESCUE:
        events.append(event_of(call, row, "security.access.rescue", {"by": call.who.name, "operationId": operation_id}))
    if verb is SideVerb.CONSOLE:
        told = {"by": call.who.name, "operationId": operation_id}
        events.append(event_of(call, row, "security.access.console", told))
    if given.get("eraseWaiver"):
        signed = {"by": call.who.name, "operationId": operation_id, "waiver": given["eraseWaiver"]}
        events.append(event_of(call, row, "security.access.waiver", signed))
    if seal is not None:
        operation = replace(operation, sealed=tuple(seal(row, operation_id)))
    audit = call.audit(resource_of(row), "allowed", row.node_id, {"operation": operation_id, "input": dict(given)})
    return Decided(call, row, move, operation, audit, events, call.idempotency())


def place_of(call: Call[Any]) -> str:
    return f"compute-pool/{call.its_pool.name}"


def resource_of(row: NodeRow) -> str:
    return f"compute-pool/{row.pool_id}/nodes/{row.node_id}"


def event_of(call: Call[Any], row: NodeRow, type_: str, data: Json) -> NewEvent:
    return NewEvent(call.new_id("ev"), row.node_id, row.tenant_id, row.pool_id, row.site_id, type_, data)


def state_event(call: Call[Any], row: NodeRow, to: State, verb: str, operation_id: str) -> NewEvent:
    data = {"from": row.facts.state.value, "to": to.value, "verb": verb, "operationId": operation_id}
    return event_of(call, row, "metal.state.changed", data)


def _record(c: Connection, plan: Decided) -> None:
    """A workflow begins, or a side operation is queued."""
    now, row = plan.call.now, plan.row
    if plan.operation.kind == "workflow" and plan.move is not None:
        operations.start(
            c,
            row.node_id,
            plan.expected_generation,
            plan.move,
            plan.operation,
            plan.audit,
            plan.events,
            now,
            plan.idempotency,
        )
    else:
        operations.queue_side(c, row.node_id, plan.operation, plan.audit, plan.events, now, plan.idempotency)


def instant(columns: Json | None = None, to: State | None = None) -> Record:
    """What ends at once: columns of the node, and perhaps its state."""

    def record(c: Connection, plan: Decided) -> None:
        row, call = plan.row, plan.call
        events = list(plan.events)
        if to is not None:
            events.append(state_event(call, row, to, str(plan.operation.verb), plan.operation.operation_id))
        operations.record_instant(
            c,
            row.node_id,
            columns,
            plan.expected_generation,
            to,
            plan.operation,
            plan.audit,
            events,
            call.now,
            plan.idempotency,
            expected_state=row.facts.state,
        )

    return record
