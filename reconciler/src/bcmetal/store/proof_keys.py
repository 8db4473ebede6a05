"""The keys that sign erasure records. The public halves stay for ever; the private half of the present one is in `sealed`, under its id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from bcmetal.decisions import Micros
from bcmetal.store import sealed
from bcmetal.store.tables import proof_keys
from bcmetal.store.values import Sealed

OWNER: Final = "proof"
FIELD: Final = "key"


@dataclass(frozen=True, slots=True)
class ProofKeyRow:
    """`public_key`: PEM. `key_id`: the SHA-256 of its SubjectPublicKeyInfo, in hexadecimal."""

    key_id: str
    public_key: str
    created_at: Micros
    retired_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class Current:
    row: ProofKeyRow
    key: Sealed | None


_ADD: Final = insert(proof_keys)
_RETIRE: Final = (
    update(proof_keys).where(proof_keys.c.retired_at.is_(None)).values(retired_at=bindparam("a_now"))
).returning(proof_keys.c.key_id)
_ALL: Final = select(proof_keys).order_by(proof_keys.c.created_at, proof_keys.c.key_id)


def current(c: Connection) -> Current | None:
    """The key that signs now. Where two daemons began at once with one each, both use the first."""
    live = [row for row in every(c) if row.retired_at is None]
    if not live:
        return None
    kept = sealed.get(c, OWNER, live[0].key_id)
    return Current(live[0], next((row for row in kept if row.field == FIELD), None))


def every(c: Connection) -> tuple[ProofKeyRow, ...]:
    """Oldest first, the retired ones too."""
    return tuple(_row(row) for row in c.execute(_ALL))


def begin(c: Connection, row: ProofKeyRow, key: Sealed) -> Current:
    """The first key of a site; where there is one by now, that one stays."""
    there = current(c)
    if there is not None:
        return there
    _add(c, row, key)
    return Current(row, key)


def rotate(c: Connection, row: ProofKeyRow, key: Sealed) -> tuple[str, ...]:
    """This one signs from now on. The ids of those that were retired: their private halves are gone, what they signed stays good."""
    retired = tuple(sorted(c.execute(_RETIRE, {"a_now": row.created_at}).scalars()))
    for key_id in retired:
        sealed.drop(c, key_id)
    _add(c, row, key)
    return retired


def _add(c: Connection, row: ProofKeyRow, key: Sealed) -> None:
    c.execute(_ADD, {"key_id": row.key_id, "public_key": row.public_key, "created_at": row.created_at})
    sealed.put(c, [key])


def _row(row: Row[Any]) -> ProofKeyRow:
    return ProofKeyRow(row.key_id, row.public_key, Micros(row.created_at), row.retired_at)
