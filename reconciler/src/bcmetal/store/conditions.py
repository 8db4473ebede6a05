"""Conditions of a node, and `needsAttention`, which they and the node's state drive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, and_, bindparam, delete, exists, or_, select

from bcmetal.decisions import SECOND, Micros
from bcmetal.states import FAILED
from bcmetal.store.tables import conditions, nodes
from bcmetal.store.upsert import insert
from bcmetal.store.values import SetCondition

ATTENTION_AFTER_US: Final = 600 * SECOND  # an error condition is left alone that long


@dataclass(frozen=True, slots=True)
class ConditionRow:
    type: str
    status: str
    severity: str
    reason: str
    message: str
    since_at: Micros


_put = insert(conditions)
_same = (conditions.c.status == _put.excluded.status) & (conditions.c.reason == _put.excluded.reason)
_PUT: Final = _put.on_conflict_do_update(
    index_elements=[conditions.c.node_id, conditions.c.type],
    set_={name: _put.excluded[name] for name in ("status", "severity", "reason", "message", "since_at")},
    where=~_same,
)
_PUT_WEAK: Final = _put.on_conflict_do_nothing(index_elements=[conditions.c.node_id, conditions.c.type])
_CLEAR: Final = delete(conditions).where(
    conditions.c.node_id == bindparam("a_node_id"), conditions.c.type == bindparam("a_type")
)
_OF_NODE: Final = select(conditions).where(conditions.c.node_id == bindparam("node_id")).order_by(conditions.c.type)

_troubled = exists().where(
    conditions.c.node_id == nodes.c.node_id,
    conditions.c.status == "error",
    conditions.c.since_at <= bindparam("error_before"),
)
_overdue = and_(
    nodes.c.maintenance, nodes.c.maintenance_until.is_not(None), nodes.c.maintenance_until < bindparam("now")
)
_should: Final = or_(nodes.c.state.in_(sorted(FAILED)), _troubled, _overdue)
_WRONG: Final = (
    select(nodes.c.node_id)
    .where(or_(and_(_should, ~nodes.c.needs_attention), and_(~_should, nodes.c.needs_attention)))
    .order_by(nodes.c.node_id)
)


def set(c: Connection, node_id: str, fact: SetCondition, now: Micros) -> bool:
    """Whether it changed: another status or another reason. A condition that only repeats itself keeps its `since_at`."""
    if fact.status == "ok":
        return bool(c.execute(_CLEAR, {"a_node_id": node_id, "a_type": fact.type}).rowcount)
    row = {
        "node_id": node_id,
        "type": fact.type,
        "status": fact.status,
        "severity": fact.severity,
        "reason": fact.reason,
        "message": fact.message,
        "since_at": now,
    }
    return bool(c.execute(_PUT_WEAK if fact.weak else _PUT, row).rowcount)


def list(c: Connection, node_id: str) -> tuple[ConditionRow, ...]:
    return tuple(
        ConditionRow(row.type, row.status, row.severity, row.reason, row.message, Micros(row.since_at))
        for row in c.execute(_OF_NODE, {"node_id": node_id})
    )


def needs_attention(
    state: str, found: tuple[ConditionRow, ...], maintenance: bool, maintenance_until: Micros | None, now: Micros
) -> bool:
    """A failed state, an error condition older than ten minutes, or overdue maintenance."""
    if state in FAILED:
        return True
    if any(one.status == "error" and one.since_at <= now - ATTENTION_AFTER_US for one in found):
        return True
    return maintenance and maintenance_until is not None and maintenance_until < now


def wrongly_marked(c: Connection, now: Micros) -> tuple[str, ...]:
    """Nodes whose `needsAttention` is no longer what time has made of it."""
    return tuple(c.execute(_WRONG, {"now": now, "error_before": now - ATTENTION_AFTER_US}).scalars())
