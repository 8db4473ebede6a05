"""Who did what, whence, on what, with which outcome; refusals too. Kept by tenant, so the action is needed on all that the tenant has."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final

from sqlalchemy import Connection
from starlette.responses import Response, StreamingResponse

from bcmetal import models_records
from bcmetal.answers import AuditEntries, AuditEntry
from bcmetal.api.access import whole_tenant
from bcmetal.api.calls import Call, method
from bcmetal.api.faults import HEADERS
from bcmetal.api.times import micros
from bcmetal.decisions import Micros
from bcmetal.errors import NotFound
from bcmetal.settings_grants import Action
from bcmetal.store import audit, nodes
from bcmetal.store.audit import AuditRow
from bcmetal.store.values import Json
from bcmetal.store.views import stamp

EXPORT_PAGE: Final = 500
LINES: Final = "application/x-ndjson"
_ID: Final = re.compile(r"nd_[0-9a-z]{26}")


@method("audit", models_records.AuditList, AuditEntries, None, name="list")
async def list_entries(call: Call[models_records.AuditList]) -> Json:
    """Entries of one tenant, newest first."""
    asked = call.input
    whole_tenant(call.settings, call.who, asked.tenant_id, Action.AUDIT)
    node_id = asked.node_id
    if node_id is not None and not _ID.fullmatch(node_id):
        pools = [name for name, pool in call.settings.pools.items() if pool.owner == asked.tenant_id]
        wanted = [name for name in pools if asked.pool_id in (None, name)]
        node_id = await call.store.read(_find, wanted, node_id)
    rows, cursor = await call.store.read(
        audit.list_page,
        [asked.tenant_id],
        asked.limit,
        asked.cursor,
        node_id=node_id,
        identity=asked.identity,
        since=None if asked.since is None else micros(asked.since),
        until=None if asked.until is None else micros(asked.until),
    )
    return {"entries": [_entry(row) for row in rows], "cursor": cursor}


def _find(c: Connection, pool_ids: list[str], name: str) -> str:
    for pool_id in pool_ids:
        node_id = nodes.find(c, pool_id, name)
        if node_id is not None:
            return node_id
    raise NotFound


def _entry(row: AuditRow) -> dict[str, Any]:
    return {
        "auditId": row.audit_id,
        "at": stamp(row.at),
        "identity": row.identity,
        "tenantId": row.tenant_id,
        "address": row.address,
        "action": row.action,
        "resource": row.resource,
        "nodeId": row.node_id,
        "outcome": row.outcome,
        "traceId": row.trace_id,
        "details": dict(row.doc),
    }


@method("audit", models_records.AuditExport, AuditEntry, None, media=LINES)
async def export(call: Call[models_records.AuditExport]) -> Response:
    """All entries of one tenant, newest first, one JSON object a line (`application/x-ndjson`)."""
    asked = call.input
    whole_tenant(call.settings, call.who, asked.tenant_id, Action.AUDIT)
    since = None if asked.since is None else micros(asked.since)
    until = None if asked.until is None else micros(asked.until)
    lines = _lines(call, asked.tenant_id, since, until)
    return StreamingResponse(lines, media_type=LINES, headers=dict(HEADERS))


async def _lines(call: Call[Any], tenant_id: str, since: Micros | None, until: Micros | None) -> AsyncIterator[str]:
    cursor: str | None = None
    while True:
        rows, cursor = await call.store.read(
            audit.list_page, [tenant_id], EXPORT_PAGE, cursor, since=since, until=until
        )
        yield "".join(json.dumps(_entry(row)) + "\n" for row in rows)
        if cursor is None:
            return
