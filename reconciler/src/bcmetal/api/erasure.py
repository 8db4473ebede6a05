"""Erasure records: what became of each drive. They outlive the node, and are read by whoever may read the pool that it was in.

`export` hands out a record's very bytes with their signature, so that it is verified without us.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from bcmetal import models_records
from bcmetal.answers_erasure import ErasureExport, ErasureRecord, ErasureRecords
from bcmetal.api.access import actions_on_pool, pool_of, pools_allowing, require, whole_tenant
from bcmetal.api.calls import Call, method
from bcmetal.errors import NotFound, PermissionDenied
from bcmetal.proof.document import TIMES, canonical
from bcmetal.proof.keys import ALGORITHM
from bcmetal.settings_grants import Action
from bcmetal.store import erasure, proof_keys
from bcmetal.store.erasure import ErasureRow
from bcmetal.store.proof_keys import ProofKeyRow
from bcmetal.store.values import Json
from bcmetal.store.views import stamp


@method("erasureRecords", models_records.ErasureRecordList, ErasureRecords, None, name="list")
async def list_records(call: Call[models_records.ErasureRecordList]) -> Json:
    """Records of one tenant, newest first; also of nodes that were removed."""
    rows, cursor = await _page(call, None)
    return {"records": [_shown(row) for row in rows], "cursor": cursor}


@method("erasureRecords", models_records.ErasureRecordGet, ErasureRecord, None)
async def get(call: Call[models_records.ErasureRecordGet]) -> Json:
    """One record. Another tenant's is NOT_FOUND."""
    pools = _pools(call, None)
    row = await call.store.read(erasure.get, call.input.record_id)
    if row is None or row.tenant_id != call.input.tenant_id or (pools is not None and row.pool_id not in pools):
        raise NotFound
    return _shown(row)


@method("erasureRecords", models_records.ErasureRecordExport, ErasureExport, None)
async def export(call: Call[models_records.ErasureRecordExport]) -> Json:
    """Records as they were signed, newest first, with the public keys. `openssl dgst -sha256 -verify KEY.pem -signature SIG FILE` verifies one."""
    rows, cursor = await _page(call, call.input.record_ids)
    keys = await call.store.read(proof_keys.every)
    return {"records": [_exported(row) for row in rows], "keys": [_key(row) for row in keys], "cursor": cursor}


async def _page(
    call: Call[models_records.ErasureRecordList] | Call[models_records.ErasureRecordExport],
    records: Sequence[str] | None,
) -> tuple[list[ErasureRow], str | None]:
    asked = call.input
    return await call.store.read(
        erasure.list_page,
        asked.tenant_id,
        asked.limit,
        asked.cursor,
        pools=_pools(call, asked.pool_id),
        node=asked.node_id,
        serial=asked.serial,
        records=records,
    )


def _exported(row: ErasureRow) -> dict[str, Any]:
    unsigned = row.signature is None
    return {
        "recordId": row.record_id,
        "document": canonical(_shown(row)) if unsigned else row.text,
        "signature": None if row.signature is None else base64.b64encode(row.signature).decode("ascii"),
        "keyId": None if unsigned else row.doc.get("keyId"),
    }


def _key(row: ProofKeyRow) -> dict[str, Any]:
    return {
        "keyId": row.key_id,
        "algorithm": ALGORITHM,
        "publicKey": row.public_key,
        "createdAt": stamp(row.created_at),
        "retiredAt": stamp(row.retired_at),
    }


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
    """A signed record has its times in words already."""
    times = {name: stamp(row.doc[name]) for name in TIMES if isinstance(row.doc.get(name), int)}
    return {
        "serial": row.serial,
        **row.doc,  # where the waiver is for the whole machine, its serial is null
        **times,
        "signed": row.signature is not None,
        "recordId": row.record_id,
        "at": stamp(row.at),
        "nodeId": row.node_id,
        "tenantId": row.tenant_id,
        "poolId": row.pool_id,
    }
