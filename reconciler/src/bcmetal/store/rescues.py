"""Rescues by the agent: how a rescued machine is reached, and which rescues are over by the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, func, select

from bcmetal.decisions import SECOND, Micros
from bcmetal.states import State, Verb
from bcmetal.store import jsontext
from bcmetal.store.agent_tables import agent_tasks
from bcmetal.store.tables import nodes, operations
from bcmetal.store.values import Json

TASK: Final = "rescue"
o, t = operations.c, agent_tasks.c


@dataclass(frozen=True, slots=True)
class Rescue:
    """The last rescue of a node. `ready`: what its agent told, None where an ISO was booted. `ends_at`: None: by nobody but a person."""

    node_id: str
    operation_id: str
    ready: Json | None
    ends_at: Micros | None


_newest_first = (o.created_at.desc(), o.operation_id.desc())
_RESCUES: Final = (
    select(o.node_id, o.operation_id, o.input, o.ended_at, t.result, t.handed_at)
    .outerjoin(agent_tasks, (t.operation_id == o.operation_id) & (t.name == TASK))
    .where(o.verb == Verb.RESCUE.value, o.kind == "workflow", o.status == "done")
)
_OF: Final = _RESCUES.where(o.node_id == bindparam("node_id")).order_by(*_newest_first).limit(1)
_ranked = (
    _RESCUES.join(nodes, nodes.c.node_id == o.node_id)
    .where(nodes.c.state == State.RESCUED.value)
    .add_columns(func.row_number().over(partition_by=o.node_id, order_by=_newest_first).label("rank"))
    .subquery()
)
_OF_RESCUED: Final = select(_ranked).where(_ranked.c.rank == 1).order_by(_ranked.c.node_id)


def of(c: Connection, node_id: str) -> Rescue | None:
    """None: the node was never rescued by us."""
    row = c.execute(_OF, {"node_id": node_id}).one_or_none()
    return None if row is None else _rescue(row)


def over(c: Connection, now: Micros) -> tuple[Rescue, ...]:
    """Of nodes that are still rescued, past their time."""
    found = (_rescue(row) for row in c.execute(_OF_RESCUED))
    return tuple(one for one in found if one.ends_at is not None and one.ends_at <= now)


def _rescue(row: Row[Any]) -> Rescue:
    lasts_s = jsontext.load(row.input).get("expiresAfterS")
    began = row.ended_at if row.handed_at is None else row.handed_at
    return Rescue(
        row.node_id,
        row.operation_id,
        jsontext.load_or_none(row.result),
        None if not lasts_s or began is None else Micros(began + int(lasts_s) * SECOND),
    )


def told(rescue: Rescue | None, stamp: Callable[[int | None], str | None]) -> dict[str, Any] | None:
    """As the view shows it; None where there is nothing to tell."""
    if rescue is None or (rescue.ready is None and rescue.ends_at is None):
        return None
    ready = rescue.ready or {}
    return {
        "user": ready.get("user"),
        "addresses": ready.get("addresses", []),
        "port": ready.get("port"),
        "hostKeys": ready.get("hostKeys", []),
        "fingerprints": ready.get("fingerprints", []),
        "endsAt": stamp(rescue.ends_at),
    }
