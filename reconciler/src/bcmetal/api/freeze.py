"""Freezes: every mutating step on a site, a pool or a rack is held; reads go on, verbs are accepted and wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from bcmetal import models_records
from bcmetal.answers import FreezeLifted, Freezes, FreezeView
from bcmetal.api.access import Identity, actions_on_pool, actions_on_site, pool_of, require, site_of
from bcmetal.api.calls import Call, method
from bcmetal.decisions import Micros
from bcmetal.errors import Fault, InvalidInput, NotFound
from bcmetal.settings import Settings
from bcmetal.settings_grants import Action
from bcmetal.store import audit, freezes
from bcmetal.store.freezes import FreezeRow
from bcmetal.store.values import Json, NewAudit
from bcmetal.store.views import stamp


@dataclass(frozen=True, slots=True)
class Scope:
    kind: str
    stored_id: str  # as the store holds it: a rack's is SITE/RACK


@method("freeze", models_records.FreezeSet, FreezeView, None, name="set")
async def set_freeze(call: Call[models_records.FreezeSet]) -> Json:
    """Hold every mutating step on a site, a pool or a rack."""
    scope = _scope(call)
    row = FreezeRow(scope.kind, scope.stored_id, call.input.reason, call.who.name, call.now)
    entry = call.audit(f"{scope.kind}/{scope.stored_id}", "allowed", doc={"reason": row.reason})
    await call.store.write(_set, row, entry)
    return _shown(row)


def _set(c: Connection, row: FreezeRow, entry: NewAudit) -> None:
    freezes.set(c, row.scope_kind, row.scope_id, row.reason, row.by, row.at)
    audit.add(c, entry, row.at)


@method("freeze", models_records.FreezeScope, FreezeLifted, None)
async def lift(call: Call[models_records.FreezeScope]) -> Json:
    """Let changes go on. Lifting what is not frozen is no error."""
    scope = _scope(call)
    entry = call.audit(f"{scope.kind}/{scope.stored_id}", "allowed")
    lifted = await call.store.write(_lift, scope, entry, call.now)
    call.services.wake(None)
    return {"scopeKind": scope.kind, "scopeId": scope.stored_id, "lifted": lifted}


def _lift(c: Connection, scope: Scope, entry: NewAudit, now: Micros) -> bool:
    lifted = freezes.lift(c, scope.kind, scope.stored_id)
    audit.add(c, entry, now)
    return lifted


@method("freeze", models_records.FreezeList, Freezes, None, name="list")
async def list_freezes(call: Call[models_records.FreezeList]) -> Json:
    """What is held on the tenant's pools, or on the sites that they are on."""
    rows = await call.store.read(freezes.list)
    seen = [_shown(row) for row in rows if _visible(call.settings, call.who, call.input.tenant_id, row)]
    return {"freezes": seen}


def _visible(settings: Settings, who: Identity, tenant_id: str, row: FreezeRow) -> bool:
    pools = [
        pool
        for pool in settings.pools.values()
        if pool.owner == tenant_id and Action.READ in actions_on_pool(settings, who, pool)
    ]
    if row.scope_kind == "pool":
        return any(pool.name == row.scope_id for pool in pools)
    site_id = row.scope_id.partition("/")[0]
    return any(pool.site == site_id for pool in pools)


def _shown(row: FreezeRow) -> dict[str, Any]:
    return {
        "scopeKind": row.scope_kind,
        "scopeId": row.scope_id,
        "reason": row.reason,
        "by": row.by,
        "at": stamp(row.at),
    }


def _scope(call: Call[Any]) -> Scope:
    """The scope, if it is the tenant's and the caller may freeze it. Raises NotFound, PermissionDenied, InvalidInput."""
    asked: models_records.FreezeScope = call.input
    settings, who = call.settings, call.who
    if asked.scope_kind == "pool":
        pool = pool_of(settings, who, asked.tenant_id, asked.scope_id)
        require(actions_on_pool(settings, who, pool), {Action.FREEZE}, who, f"compute-pool/{pool.name}")
        return Scope("pool", pool.name)
    site_id = asked.site_id
    if asked.scope_kind == "site":
        site_id = asked.scope_id
    elif site_id is None:
        if len(settings.sites) != 1:
            raise InvalidInput([Fault("siteId", "is missing: a rack is named with its site")])
        site_id = next(iter(settings.sites))
    site = site_of(settings, who, site_id)
    if site.owner != asked.tenant_id:
        raise NotFound
    require(actions_on_site(settings, who, site_id), {Action.FREEZE}, who, f"site/{site_id}")
    stored = site_id if asked.scope_kind == "site" else freezes.rack_scope(site_id, asked.scope_id)
    return Scope(asked.scope_kind, stored)
