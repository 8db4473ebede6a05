"""Acts that cannot be observed (a reset, a password): a row before, closed after."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, func, insert, select, update

from bcmetal.decisions import Micros
from bcmetal.store.tables import intents
from bcmetal.store.values import Intent

_OPEN: Final = (
    select(intents.c.n)
    .where(
        intents.c.operation_id == bindparam("operation_id"),
        intents.c.name == bindparam("name"),
        intents.c.ended_at.is_(None),
    )
    .limit(1)
)
_LAST: Final = select(func.coalesce(func.max(intents.c.n), 0)).where(
    intents.c.operation_id == bindparam("operation_id")
)
_ADD: Final = insert(intents)
_OUTCOME: Final = (
    select(func.coalesce(intents.c.outcome, ""))
    .where(intents.c.operation_id == bindparam("operation_id"), intents.c.name == bindparam("name"))
    .order_by(intents.c.n.desc())
    .limit(1)
)
_END: Final = (
    update(intents)
    .where(
        intents.c.operation_id == bindparam("a_operation_id"),
        intents.c.n == bindparam("a_n"),
        intents.c.ended_at.is_(None),
    )
    .values(ended_at=bindparam("a_now"), outcome=bindparam("a_outcome"))
)


def begin(c: Connection, operation_id: str, name: str, args_digest: str, now: Micros) -> Intent:
    """Under the node's lock, which the caller holds."""
    found = c.execute(_OPEN, {"operation_id": operation_id, "name": name}).scalar_one_or_none()
    if found is not None:
        return Intent(operation_id, found, name, open=True)
    number = c.execute(_LAST, {"operation_id": operation_id}).scalar_one() + 1
    row = {"operation_id": operation_id, "n": number, "name": name, "args_digest": args_digest, "begun_at": now}
    c.execute(_ADD, row)
    return Intent(operation_id, number, name, open=False)


def outcome(c: Connection, operation_id: str, name: str) -> str | None:
    """How the last act of that name ended: "" is not known. None: there was none."""
    found: str | None = c.execute(_OUTCOME, {"operation_id": operation_id, "name": name}).scalar_one_or_none()
    return found


def end(c: Connection, operation_id: str, number: int, outcome: str, now: Micros) -> None:
    c.execute(_END, {"a_operation_id": operation_id, "a_n": number, "a_outcome": outcome, "a_now": now})
