"""Erasure records: insert only, kept after the node is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, func, insert, or_, select

from bcmetal.decisions import Micros
from bcmetal.store import jsontext
from bcmetal.store.tables import erasure_records, nodes, tombstones
from bcmetal.store.values import AddErasureRecord, Json


@dataclass(frozen=True, slots=True)
class ErasureRow:
    """`text` is the record's own, byte for byte; with a `signature` it is what was signed, and says all of it by itself."""

    record_id: str
    serial: str
    node_id: str
    tenant_id: str
    pool_id: str
    doc: Json
    at: Micros
    text: str
    signature: bytes | None


_ADD: Final = insert(erasure_records)
_OF_NODE: Final = (
    select(erasure_records)
    .where(erasure_records.c.node_id == bindparam("node_id"))
    .order_by(erasure_records.c.at, erasure_records.c.record_id)
)
_GET: Final = select(erasure_records).where(erasure_records.c.record_id == bindparam("record_id"))


def add(c: Connection, node_id: str, tenant_id: str, pool_id: str, fact: AddErasureRecord, now: Micros) -> None:
    c.execute(
        _ADD,
        {
            "record_id": fact.record_id,
            "serial": fact.serial,
            "node_id": node_id,
            "tenant_id": tenant_id,
            "pool_id": pool_id,
            "doc": jsontext.dump(dict(fact.doc)) if fact.signed is None else fact.signed.text,
            "signature": None if fact.signed is None else fact.signed.signature,
            "at": now,
        },
    )


def of_node(c: Connection, node_id: str) -> list[ErasureRow]:
    return [_row(row) for row in c.execute(_OF_NODE, {"node_id": node_id})]


def get(c: Connection, record_id: str) -> ErasureRow | None:
    row = c.execute(_GET, {"record_id": record_id}).one_or_none()
    return None if row is None else _row(row)


def list_page(
    c: Connection,
    tenant_id: str,
    limit: int,
    cursor: str | None = None,
    *,
    pools: Sequence[str] | None = None,
    node: str | None = None,
    serial: str | None = None,
    records: Sequence[str] | None = None,
) -> tuple[list[ErasureRow], str | None]:
    """Newest first. `node`: an id, or a name that a node of the tenant has, or had when it was removed. A serial is compared without case.

    `pools` None: of all, also those that are no more. `records`: these ids alone. The cursor is opaque; None: that was the last page.
    """
    r = erasure_records.c
    found = select(erasure_records).where(r.tenant_id == tenant_id).order_by(r.at.desc(), r.record_id.desc())
    if pools is not None:
        found = found.where(r.pool_id.in_(list(pools)))
    if node is not None:
        named = [select(t.c.node_id).where(t.c.tenant_id == tenant_id, t.c.name == node) for t in (nodes, tombstones)]
        found = found.where(or_(r.node_id == node, *(r.node_id.in_(ids) for ids in named)))
    if serial is not None:
        found = found.where(func.lower(r.serial) == serial.lower())
    if records is not None:
        found = found.where(r.record_id.in_(list(records)))
    if cursor is not None:
        at_text, _, last_id = cursor.partition(".")
        at = int(at_text) if at_text.isdecimal() else 0
        found = found.where(or_(r.at < at, and_(r.at == at, r.record_id < last_id)))
    rows = [_row(row) for row in c.execute(found.limit(limit + 1))]
    more = f"{rows[limit - 1].at}.{rows[limit - 1].record_id}" if len(rows) > limit else None
    return rows[:limit], more


def _row(row: Row[Any]) -> ErasureRow:
    return ErasureRow(
        record_id=row.record_id,
        serial=row.serial,
        node_id=row.node_id,
        tenant_id=row.tenant_id,
        pool_id=row.pool_id,
        doc=jsontext.load(row.doc),
        at=Micros(row.at),
        text=row.doc,
        signature=None if row.signature is None else bytes(row.signature),
    )
