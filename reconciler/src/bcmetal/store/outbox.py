"""Events, written in the transaction that makes them true, numbered when they are delivered.

A node's row is written before its event, and its lock puts the events of one node in order. Positions are given by whoever holds the
outbox lease; a second one waits at the counter's row, so that no number is given twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from bcmetal.decisions import Micros
from bcmetal.store import jsontext
from bcmetal.store.ids import new_id
from bcmetal.store.tables import counters, outbox
from bcmetal.store.upsert import insert as upsert
from bcmetal.store.values import Json, NewEvent

COUNTER: Final = "outbox"


@dataclass(frozen=True, slots=True)
class EventRow:
    position: int
    event_id: str
    node_id: str | None
    tenant_id: str
    pool_id: str
    site_id: str
    type: str
    data: Json
    at: Micros


_ADD: Final = insert(outbox)
_LOCK: Final = (
    update(counters).where(counters.c.name == COUNTER).values(value=counters.c.value).returning(counters.c.value)
)
_FIRST: Final = upsert(counters).values(name=COUNTER, value=0).on_conflict_do_nothing()
_WAITING: Final = select(outbox).where(outbox.c.position.is_(None)).order_by(outbox.c.seq).limit(bindparam("limit"))
_NUMBER: Final = update(outbox).where(outbox.c.seq == bindparam("a_seq")).values(position=bindparam("a_position"))
_COUNT: Final = update(counters).where(counters.c.name == COUNTER).values(value=bindparam("a_value"))
_SINCE: Final = (
    select(outbox).where(outbox.c.position > bindparam("after")).order_by(outbox.c.position).limit(bindparam("limit"))
)
_LAST: Final = select(counters.c.value).where(counters.c.name == COUNTER)
_OLDEST: Final = select(func.min(outbox.c.position))
_PRUNE: Final = delete(outbox).where(outbox.c.position <= bindparam("upto"))
_UPTO: Final = select(func.max(outbox.c.position)).where(
    outbox.c.position.is_not(None), outbox.c.at < bindparam("before")
)


def add(c: Connection, events: Iterable[NewEvent], now: Micros) -> None:
    rows = [
        {
            "event_id": event.event_id,
            "node_id": event.node_id,
            "tenant_id": event.tenant_id,
            "pool_id": event.pool_id,
            "site_id": event.site_id,
            "type": event.type,
            "data": jsontext.dump(dict(event.data)),
            "at": now,
        }
        for event in events
    ]
    for row in rows:  # one by one: their order is their sequence
        c.execute(_ADD, row)


def derived_id(now: Micros, *parts: object) -> str:
    """The id of an event that the store itself finds to be true: a hash of what it says."""
    text = "\0".join(str(part) for part in (now, *parts))
    return new_id("ev", now, hashlib.sha256(text.encode()).digest()[:10])


def deliver(c: Connection, limit: int) -> list[EventRow]:
    """Number up to `limit` events that have no position yet, in the order in which they became true, and hand them out."""
    last = c.execute(_LOCK).scalar_one_or_none()
    if last is None:
        c.execute(_FIRST)
        last = c.execute(_LOCK).scalar_one()
    rows = c.execute(_WAITING, {"limit": limit}).all()
    if not rows:
        return []
    numbered = [(last + n, row) for n, row in enumerate(rows, start=1)]
    c.execute(_NUMBER, [{"a_seq": row.seq, "a_position": position} for position, row in numbered])
    c.execute(_COUNT, {"a_value": numbered[-1][0]})
    return [_event(row, position) for position, row in numbered]


def since(c: Connection, position: int, limit: int) -> list[EventRow]:
    """Numbered events after a position. When its oldest is not `position + 1`, the gap was pruned: see `bounds`."""
    rows: Sequence[Row[Any]] = c.execute(_SINCE, {"after": position, "limit": limit}).all()
    return [_event(row, row.position) for row in rows]


def bounds(c: Connection) -> tuple[int, int]:
    """The positions of the oldest event that is kept and of the newest that was numbered; an empty feed is (newest + 1, newest)."""
    newest = c.execute(_LAST).scalar_one_or_none() or 0
    oldest = c.execute(_OLDEST).scalar_one_or_none()
    return (newest + 1 if oldest is None else oldest), newest


def prune(c: Connection, before: Micros, keep: int | None = None) -> int:
    """Drop numbered events that became true before a time, and those past the newest `keep`; how many."""
    upto = c.execute(_UPTO, {"before": before}).scalar_one_or_none() or 0
    if keep is not None:
        upto = max(upto, bounds(c)[1] - keep)
    return int(c.execute(_PRUNE, {"upto": upto}).rowcount)


def _event(row: Row[Any], position: int) -> EventRow:
    return EventRow(
        position=position,
        event_id=row.event_id,
        node_id=row.node_id,
        tenant_id=row.tenant_id,
        pool_id=row.pool_id,
        site_id=row.site_id,
        type=row.type,
        data=jsontext.load(row.data),
        at=Micros(row.at),
    )
