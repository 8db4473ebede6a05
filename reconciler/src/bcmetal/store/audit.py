"""Who did what, whence, on what, with which outcome. Insert only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, insert, or_, select

from bcmetal.decisions import Micros
from bcmetal.store import jsontext
from bcmetal.store.tables import audit
from bcmetal.store.values import Json, NewAudit


@dataclass(frozen=True, slots=True)
class AuditRow:
    audit_id: str
    at: Micros
    identity: str
    tenant_id: str
    address: str
    action: str
    resource: str
    node_id: str | None
    outcome: str
    trace_id: str
    doc: Json


_ADD: Final = insert(audit)


def add(c: Connection, new: NewAudit, now: Micros) -> None:
    c.execute(
        _ADD,
        {
            "audit_id": new.audit_id,
            "at": now,
            "identity": new.identity,
            "tenant_id": new.tenant_id,
            "address": new.address,
            "action": new.action,
            "resource": new.resource,
            "node_id": new.node_id,
            "outcome": new.outcome,
            "trace_id": new.trace_id,
            "doc": jsontext.dump(dict(new.doc)),
        },
    )


def list_page(
    c: Connection,
    tenants: Sequence[str] | None,
    limit: int,
    cursor: str | None = None,
    *,
    node_id: str | None = None,
    identity: str | None = None,
    since: Micros | None = None,
    until: Micros | None = None,
) -> tuple[list[AuditRow], str | None]:
    """Newest first. `tenants` None: of all. The cursor is opaque; None: that was the last page."""
    found = select(audit).order_by(audit.c.at.desc(), audit.c.audit_id.desc()).limit(limit + 1)
    values: dict[str, Any] = {}
    if tenants is not None:
        found = found.where(audit.c.tenant_id.in_(bindparam("tenants", expanding=True)))
        values["tenants"] = list(tenants)
    if node_id is not None:
        found = found.where(audit.c.node_id == node_id)
    if identity is not None:
        found = found.where(audit.c.identity == identity)
    if since is not None:
        found = found.where(audit.c.at >= since)
    if until is not None:
        found = found.where(audit.c.at < until)
    if cursor is not None:
        at_text, _, last_id = cursor.partition(".")
        at = int(at_text) if at_text.isdecimal() else 0
        found = found.where(or_(audit.c.at < at, and_(audit.c.at == at, audit.c.audit_id < last_id)))
    rows = c.execute(found, values).all()
    more = f"{rows[limit - 1].at}.{rows[limit - 1].audit_id}" if len(rows) > limit else None
    return [_row(row) for row in rows[:limit]], more


def _row(row: Row[Any]) -> AuditRow:
    return AuditRow(
        audit_id=row.audit_id,
        at=Micros(row.at),
        identity=row.identity,
        tenant_id=row.tenant_id,
        address=row.address,
        action=row.action,
        resource=row.resource,
        node_id=row.node_id,
        outcome=row.outcome,
        trace_id=row.trace_id,
        doc=jsontext.load(row.doc),
    )
