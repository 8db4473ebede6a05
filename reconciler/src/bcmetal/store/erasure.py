"""Erasure records: insert only, kept after the node is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, insert, select

from bcmetal.decisions import Micros
from bcmetal.store import jsontext
from bcmetal.store.tables import erasure_records
from bcmetal.store.values import AddErasureRecord, Json


@dataclass(frozen=True, slots=True)
class ErasureRow:
    record_id: str
    serial: str
    node_id: str
    tenant_id: str
    pool_id: str
    doc: Json
    at: Micros


_ADD: Final = insert(erasure_records)
_OF_NODE: Final = (
    select(erasure_records)
    .where(erasure_records.c.node_id == bindparam("node_id"))
    .order_by(erasure_records.c.at, erasure_records.c.record_id)
)
_OF_TENANTS: Final = (
    select(erasure_records)
    .where(erasure_records.c.tenant_id.in_(bindparam("tenants", expanding=True)))
    .where(erasure_records.c.record_id < bindparam("before"))
    .order_by(erasure_records.c.record_id.desc())
    .limit(bindparam("limit"))
)


def add(c: Connection, node_id: str, tenant_id: str, pool_id: str, fact: AddErasureRecord, now: Micros) -> None:
    c.execute(
        _ADD,
        {
            "record_id": fact.record_id,
            "serial": fact.serial,
            "node_id": node_id,
            "tenant_id": tenant_id,
            "pool_id": pool_id,
            "doc": jsontext.dump(dict(fact.doc)),
            "at": now,
        },
    )


def of_node(c: Connection, node_id: str) -> list[ErasureRow]:
    return [_row(row) for row in c.execute(_OF_NODE, {"node_id": node_id})]


def list_page(
    c: Connection, tenants: Sequence[str], limit: int, cursor: str | None = None
) -> tuple[list[ErasureRow], str | None]:
    """Newest first. The cursor is opaque; None: that was the last page."""
    asked = {"tenants": list(tenants), "before": cursor or "~", "limit": limit + 1}
    found = [_row(row) for row in c.execute(_OF_TENANTS, asked)]
    return found[:limit], (found[limit - 1].record_id if len(found) > limit else None)


def _row(row: Row[Any]) -> ErasureRow:
    return ErasureRow(
        record_id=row.record_id,
        serial=row.serial,
        node_id=row.node_id,
        tenant_id=row.tenant_id,
        pool_id=row.pool_id,
        doc=jsontext.load(row.doc),
        at=Micros(row.at),
    )
