"""Idempotency keys of (tenant, identity): what a call with a known key did the first time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from bcmetal.decisions import Micros
from bcmetal.errors import Lost
from bcmetal.store.tables import idempotency
from bcmetal.store.upsert import insert
from bcmetal.store.values import Idempotency


@dataclass(frozen=True, slots=True)
class Replay:
    """`digest` of the first call's input: another one is a conflict."""

    method: str
    digest: str
    operation_id: str | None
    node_id: str | None
    at: Micros


_ADD: Final = insert(idempotency).on_conflict_do_nothing()
_FIND: Final = select(idempotency).where(
    idempotency.c.tenant_id == bindparam("tenant_id"),
    idempotency.c.identity == bindparam("identity"),
    idempotency.c.key == bindparam("key"),
)
_PRUNE: Final = delete(idempotency).where(idempotency.c.at < bindparam("before"), idempotency.c.token_id.is_(None))


def add(c: Connection, known: Idempotency, operation_id: str | None, node_id: str | None, now: Micros) -> None:
    """Raises Lost when a call with this key was committed meanwhile: the caller reads it again and answers from it."""
    added = c.execute(
        _ADD,
        {
            "tenant_id": known.tenant_id,
            "identity": known.identity,
            "key": known.key,
            "method": known.method,
            "digest": known.digest,
            "operation_id": operation_id,
            "node_id": node_id,
            "at": now,
        },
    )
    if not added.rowcount:
        raise Lost("a call with this idempotency key was made meanwhile", reason="idempotency-key")


def find(c: Connection, tenant_id: str, identity: str, key: str) -> Replay | None:
    row = c.execute(_FIND, {"tenant_id": tenant_id, "identity": identity, "key": key}).one_or_none()
    return None if row is None else Replay(row.method, row.digest, row.operation_id, row.node_id, Micros(row.at))


def prune(c: Connection, before: Micros) -> int:
    """Drop keys that were used before a time; those of tokens stay."""
    return int(c.execute(_PRUNE, {"before": before}).rowcount)
