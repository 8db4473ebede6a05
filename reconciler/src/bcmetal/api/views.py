"""The node's view as an answer: the stored document, with what is allowed now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from bcmetal.api.calls import Call
from bcmetal.decisions import AllowedVerb, Micros, NodeFacts, PoolPolicy, allowed_verbs
from bcmetal.errors import NotFound
from bcmetal.settings import Settings
from bcmetal.store import nodes, operations, views
from bcmetal.store.values import OperationRow
from bcmetal.store.views import ViewRow, stamp


def allowed_words(facts: NodeFacts, policy: PoolPolicy, now: Micros) -> list[dict[str, str]]:
    return [_word(one) for one in allowed_verbs(facts, policy, now)]


def _word(one: AllowedVerb) -> dict[str, str]:
    return {"verb": one.verb.value} | ({"needs": one.needs} if one.needs is not None else {})


def shown(row: ViewRow, settings: Settings, now: Micros) -> dict[str, Any]:
    """A pool that the configuration no longer has allows nothing."""
    pool = settings.pool(row.pool_id)
    allowed = [] if pool is None else allowed_words(row.facts, pool.policy(settings), now)
    return {**row.doc, "allowedVerbs": allowed}


def _read(c: Connection, node_id: str, operation_id: str | None) -> tuple[ViewRow | None, Any, OperationRow | None]:
    """The view, what is left of a removed node, and an operation, as of one moment."""
    found = views.read(c, [node_id])
    operation = None if operation_id is None else operations.get(c, operation_id)
    if found:
        return found[0], None, operation
    return None, nodes.tombstone(c, node_id), operation


async def answer(call: Call[Any], node_id: str, operation_id: str | None = None) -> dict[str, Any]:
    """The view; `operation` is the one that the call asked for. Of a removed node: its last view, with nothing allowed."""
    row, tombstone, operation = await call.store.read(_read, node_id, operation_id)
    if row is None:
        if tombstone is None:
            raise NotFound
        return {**tombstone["doc"], "allowedVerbs": [], "operation": None, "removedAt": stamp(tombstone["at"])}
    view = shown(row, call.settings, call.services.clock())
    under_way: Mapping[str, Any] | None = view.get("operation")
    if operation is not None and operation.kind != "instant" and (under_way is None or operation.kind == "side"):
        view["operation"] = brief(operation, str(view["name"]))
    return view


def brief(row: OperationRow, node_name: str) -> dict[str, Any]:
    """An operation that the stored view does not show: a side operation, or one that ended already."""
    return {
        "id": row.operation_id,
        "verb": row.verb,
        "status": row.status,
        "step": row.step,
        "stepNumber": None,
        "steps": None,
        "progress": row.progress,
        "waitingFor": row.waiting_for,
        "since": stamp(row.created_at),
        "attempts": row.step_attempt,
        "nextTryAt": stamp(row.wake_at),
        "touched": row.touched,
        "error": views.last_error(row.error, node_name),
    }
