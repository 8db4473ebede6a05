"""Sealed secrets: the one table that holds any. The vault made them and alone opens them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, delete, select, update

from bcmetal.store.tables import operations, sealed
from bcmetal.store.upsert import insert
from bcmetal.store.values import MoveSealed, Sealed

_put = insert(sealed)
_PUT: Final = _put.on_conflict_do_update(
    index_elements=[sealed.c.owner_kind, sealed.c.owner_id, sealed.c.field, sealed.c.slot],
    set_={"key_id": _put.excluded.key_id, "nonce": _put.excluded.nonce, "blob": _put.excluded.blob},
)
_GET: Final = (
    select(sealed)
    .where(sealed.c.owner_kind == bindparam("owner_kind"), sealed.c.owner_id == bindparam("owner_id"))
    .order_by(sealed.c.field, sealed.c.slot)
)
_OF_OWNERS: Final = (
    select(sealed)
    .where(sealed.c.owner_id.in_(bindparam("owners", expanding=True)))
    .order_by(sealed.c.owner_kind, sealed.c.owner_id, sealed.c.field, sealed.c.slot)
)
_ALL: Final = select(sealed).order_by(sealed.c.owner_kind, sealed.c.owner_id, sealed.c.field, sealed.c.slot)
_DROP: Final = delete(sealed).where(sealed.c.owner_id == bindparam("a_owner_id"))
_DROP_SLOT: Final = delete(sealed).where(
    sealed.c.owner_id == bindparam("a_owner_id"), sealed.c.slot == bindparam("a_slot")
)
_MOVE: Final = (
    update(sealed)
    .where(sealed.c.owner_id == bindparam("a_owner_id"), sealed.c.slot == bindparam("a_slot"))
    .values(slot=bindparam("a_to"))
)
_FIELDS: Final = select(sealed.c.field).where(sealed.c.owner_id == bindparam("o"), sealed.c.slot == bindparam("s"))
_DROP_FIELD: Final = delete(sealed).where(
    sealed.c.owner_id == bindparam("a_owner_id"),
    sealed.c.field == bindparam("a_field"),
    sealed.c.slot == bindparam("a_slot"),
)
_PURGE: Final = delete(sealed).where(
    sealed.c.owner_kind == "operation",
    sealed.c.owner_id.in_(
        select(operations.c.operation_id).where(
            operations.c.node_id == bindparam("a_node_id"), operations.c.ended_at.is_not(None)
        )
    ),
)


def put(c: Connection, rows: Sequence[Sealed]) -> None:
    """Each row takes the place of one with the same owner, field and slot."""
    for row in rows:
        c.execute(
            _PUT,
            {
                "owner_kind": row.owner_kind,
                "owner_id": row.owner_id,
                "field": row.field,
                "slot": row.slot,
                "key_id": row.key_id,
                "nonce": row.nonce,
                "blob": row.blob,
            },
        )


def get(c: Connection, owner_kind: str, owner_id: str) -> tuple[Sealed, ...]:
    return tuple(_sealed(row) for row in c.execute(_GET, {"owner_kind": owner_kind, "owner_id": owner_id}))


def of_owners(c: Connection, owners: Sequence[str]) -> tuple[Sealed, ...]:
    return tuple(_sealed(row) for row in c.execute(_OF_OWNERS, {"owners": list(owners)}))


def every(c: Connection) -> tuple[Sealed, ...]:
    """All of them: for a change of the vault's key."""
    return tuple(_sealed(row) for row in c.execute(_ALL))


def drop(c: Connection, owner_id: str, slot: str | None = None) -> None:
    """Forget an owner's secrets, or those of one slot."""
    if slot is None:
        c.execute(_DROP, {"a_owner_id": owner_id})
    else:
        c.execute(_DROP_SLOT, {"a_owner_id": owner_id, "a_slot": slot})


def move(c: Connection, fact: MoveSealed) -> None:
    """Accept those of one slot: each takes the place of its field's in the other slot. Or drop them."""
    if fact.accept:
        for name in c.execute(_FIELDS, {"o": fact.owner_id, "s": fact.slot}).scalars().all():
            c.execute(_DROP_FIELD, {"a_owner_id": fact.owner_id, "a_field": name, "a_slot": fact.to})
        c.execute(_MOVE, {"a_owner_id": fact.owner_id, "a_slot": fact.slot, "a_to": fact.to})
    else:
        c.execute(_DROP_SLOT, {"a_owner_id": fact.owner_id, "a_slot": fact.slot})


def purge_ended(c: Connection, node_id: str) -> None:
    """Secrets that came with operations of this node which are over."""
    c.execute(_PURGE, {"a_node_id": node_id})


def _sealed(row: Row[Any]) -> Sealed:
    return Sealed(row.owner_kind, row.owner_id, row.field, row.slot, row.key_id, bytes(row.nonce), bytes(row.blob))
