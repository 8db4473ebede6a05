"""Rescues by the agent: how a rescued machine is reached, and which rescues are over by the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select

from bcmetal.decisions import SECOND, Micros
from bcmetal.states import State, Verb
from bcmetal.store import jsontext
from bcmetal.store.agent_tables import agent_tasks
from bcmetal.store.tables import nodes, operations
from bcmetal.store.values import Json

TASK: Final = "rescue"
o = operations.c


@dataclass(frozen=True, slots=True)
class Rescue:
    """The last rescue of a node. `ready`: what its agent told, None where an ISO was booted. `ends_at`: None: by nobody but a person."""

    node_id: str
    operation_id: str
    ready: Json | None
    ends_at: Micros | None


_OF: Final = (
    select(operations)
    .where(o.node_id == bindparam("node_id"), o.verb == Verb.RESCUE.value, o.kind == "workflow", o.status == "done")
    .order_by(o.created_at.desc(), o.operation_id.desc())
    .limit(1)
)
_READY: Final = select(agent_tasks.c.result, agent_tasks.c.handed_at).where(
    agent_tasks.c.operation_id == bindparam("operation_id"), agent_tasks.c.name == TASK
)
_RESCUED: Final = select(nodes.c.node_id).where(nodes.c.state == State.RESCUED.value).order_by(nodes.c.node_id)


def of(c: Connection, node_id: str) -> Rescue | None:
    """None: the node was never rescued by us."""
    row = c.execute(_OF, {"node_id": node_id}).one_or_none()
    if row is None:
        return None
    task = c.execute(_READY, {"operation_id": row.operation_id}).one_or_none()
    lasts_s = jsontext.load(row.input).get("expiresAfterS")
    began = row.ended_at if task is None or task.handed_at is None else task.handed_at
    return Rescue(
        node_id,
        row.operation_id,
        None if task is None else jsontext.load_or_none(task.result),
        None if not lasts_s or began is None else Micros(began + int(lasts_s) * SECOND),
    )


def over(c: Connection, now: Micros) -> tuple[Rescue, ...]:
    """Of nodes that are still rescued, past their time."""
    found = (of(c, node_id) for node_id in c.execute(_RESCUED).scalars().all())
    return tuple(one for one in found if one is not None and one.ends_at is not None and one.ends_at <= now)


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
