"""Side operations as the node's view shows them: what is queued, and what failed last and was not put right since.

Each read is bounded, for the view is rewritten in every transaction: the queued ones have an index of their own, and failures are looked
for among the node's latest operations alone. Older ones stand in the timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, select, text

from bcmetal.decisions import Micros
from bcmetal.store import jsontext
from bcmetal.store.tables import operations
from bcmetal.store.values import Json

LOOKED_BACK: Final = 50
_o: Final = operations.c
_SHOWN: Final = (
    *(_o.operation_id, _o.kind, _o.verb, _o.status, _o.by, _o.waiting_for),
    *(_o.wake_at, _o.error, _o.created_at, _o.ended_at),
)
_QUEUED: Final = (
    select(*_SHOWN)
    .where(_o.node_id == bindparam("node_id"), _o.status == text("'queued'"))  # a literal, as the partial index has it
    .order_by(_o.created_at, _o.operation_id)
)
_latest = (
    select(*_SHOWN)
    .where(_o.node_id == bindparam("node_id"))
    .order_by(_o.created_at.desc(), _o.operation_id.desc())
    .limit(LOOKED_BACK)
    .subquery()
)
_ENDED: Final = (
    select(_latest)
    .where(_latest.c.kind == "side", _latest.c.status.in_(("done", "failed")))
    .order_by(_latest.c.created_at.desc(), _latest.c.operation_id.desc())
)


_RESULT: Final = (
    select(_o.memo, _o.ended_at)
    .where(
        _o.node_id == bindparam("node_id"), _o.kind == "side", _o.verb == bindparam("verb"), _o.status == text("'done'")
    )
    .order_by(_o.created_at.desc(), _o.operation_id.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class Result:
    at: Micros
    result: Json


def last_result(c: Connection, node_id: str, verb: str) -> Result | None:
    """What the last side operation of that verb found (its memo's `result`), if one ever ended well."""
    row = c.execute(_RESULT, {"node_id": node_id, "verb": str(verb)}).one_or_none()
    return None if row is None else Result(row.ended_at, jsontext.load(row.memo).get("result") or {})


def queued(c: Connection, node_id: str) -> Sequence[Row[Any]]:
    """Those that wait or are tried again, oldest first."""
    return c.execute(_QUEUED, {"node_id": node_id}).all()


def failed(c: Connection, node_id: str) -> list[Row[Any]]:
    """Of each verb the one that failed last, unless a later one of that verb succeeded; newest first."""
    latest: dict[str, Row[Any]] = {}
    for row in c.execute(_ENDED, {"node_id": node_id}):
        latest.setdefault(row.verb, row)
    return [row for row in latest.values() if row.status == "failed"]
