"""Erasure records: what became of each drive. They outlive the node, and are read by whoever may read the pool that it was in."""

from __future__ import annotations

from typing import Any, Final

from bcmetal import models
from bcmetal.answers import ErasureRecord, ErasureRecords
from bcmetal.api.access import actions_on_pool, pool_of, pools_allowing, require, whole_tenant
from bcmetal.api.calls import Call, method
from bcmetal.errors import NotFound, PermissionDenied
from bcmetal.settings import Action
from bcmetal.store import erasure
from bcmetal.store.erasure import ErasureRow
from bcmetal.store.values import Json
from bcmetal.store.views import stamp

TIMES: Final = ("startedAt", "endedAt")


@method("erasureRecords", models.ErasureRecordList, ErasureRecords, None, name="list")
async def list_records(call: Call[models.ErasureRecordList]) -> Json:
    """Records of one tenant, newest first; also of nodes that were removed."""
    asked = call.input
    pools = _pools(call, asked.pool_id)
    rows, cursor = await call.store.read(
        erasure.list_page,
        asked.tenant_id,
        asked.limit,
        asked.cursor,
        pools=pools,
        node=asked.node_id,
        serial=asked.serial,
    )
    return {"records": [_shown(row) for row in rows], "cursor": cursor}


@method("erasureRecords", models.ErasureRecordGet, ErasureRecord, None)
async def get(call: Call[models.ErasureRecordGet]) -> Json:
    """One record. Another tenant's is NOT_FOUND."""
    pools = _pools(call, None)
    row = await call.store.read(erasure.get, call.input.record_id)
    if row is None or row.tenant_id != call.input.tenant_id or (pools is not None and row.pool_id not in pools):
        raise NotFound
    return _shown(row)


def _pools(call: Call[Any], pool_id: str | None) -> list[str] | None:
    """Where the caller may read. None: everywhere, also in pools that the configuration has no longer; for the tenant's own people alone.

    Raises NotFound, PermissionDenied.
    """
    settings, who, tenant_id = call.settings, call.who, str(call.input.tenant_id)
    if pool_id is not None:
        pool = pool_of(settings, who, tenant_id, pool_id)
        require(actions_on_pool(settings, who, pool), {Action.READ}, who, f"compute-pool/{pool.name}")
        return [pool.name]
    if who.tenant_id == tenant_id:
        try:
            whole_tenant(settings, who, tenant_id, Action.READ)
        except PermissionDenied:
            pass  # a part of it, perhaps
        else:
            return None
    return [pool.name for pool in pools_allowing(settings, who, tenant_id, Action.READ)]


def _shown(row: ErasureRow) -> dict[str, Any]:
    times = {name: stamp(row.doc[name]) for name in TIMES if row.doc.get(name) is not None}
    return {
        "serial": row.serial,
        **row.doc,  # where the waiver is for the whole machine, its serial is null
        **times,
        "recordId": row.record_id,
        "at": stamp(row.at),
        "nodeId": row.node_id,
        "tenantId": row.tenant_id,
        "poolId": row.pool_id,
    }
