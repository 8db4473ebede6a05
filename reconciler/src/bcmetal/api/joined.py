"""nodes: what joined, by whom it was let in, what it was given; and its eviction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from bcmetal import models_joining as models
from bcmetal.answers_joining import Evicted, MemberList, MemberView
from bcmetal.api.calls import Call, method
from bcmetal.api.join_tokens import owned
from bcmetal.decisions import Micros
from bcmetal.errors import NotFound
from bcmetal.join.leaving import leave
from bcmetal.settings_grants import Action
from bcmetal.store import audit, certificates, join_tokens, members, outbox
from bcmetal.store.certificates import CertificateRow
from bcmetal.store.members import MemberRow
from bcmetal.store.values import Json, NewAudit, NewEvent
from bcmetal.store.views import stamp


@method("nodes", models.MemberList, MemberList, None, name="list")
async def list_members(call: Call[models.MemberList]) -> Json:
    """The pool's joined nodes, with or without a BMC, in the order of their ids; those that left stay listed."""
    call = owned(call, Action.JOIN_READ)
    asked = call.input
    rows, cursor = await call.store.read(
        members.list_page, asked.tenant_id, [call.its_pool.name], asked.limit, asked.cursor
    )
    return {"nodes": [member_view(row) for row in rows], "cursor": cursor}


@method("nodes", models.MemberGet, MemberView, None)
async def get(call: Call[models.MemberGet]) -> Json:
    """One joined node: what it said of itself, its certificates, and which secrets it was given."""
    call = owned(call, Action.JOIN_READ)
    return await call.store.read(_whole, call.input.node_id, call.its_pool.name, call.its_pool.owner)


@method("nodes", models.MemberEvict, Evicted, None)
async def evict(call: Call[models.MemberEvict]) -> Json:
    """Put a node out: its certificates are revoked at once, and its open connections closed. Answers what to rotate.

    It can join again by a token that is minted later.
    """
    call = owned(call, Action.JOIN_REVOKE)
    pool = call.its_pool
    entry = call.audit(f"compute-pool/{pool.name}", "allowed", call.input.node_id, {"reason": call.input.reason})
    return await call.store.write(_evict, call.input, pool.name, call.who.name, call.new_id("ev"), entry, call.now)


def _evict(
    c: Connection, asked: models.MemberEvict, pool_id: str, by: str, event_id: str, entry: NewAudit, now: Micros
) -> Json:
    members.lock_pool(c, pool_id)
    before = _member(c, asked.node_id, pool_id, asked.tenant_id)
    rotate = [name for name, _, _ in members.secrets_of(c, asked.node_id)]
    token = join_tokens.get(c, before.token_id) if before.token_id is not None else None
    tokens = [token.token_id] if token is not None and token.is_live(now) else []
    left = leave(c, asked.node_id, "evicted", asked.reason or f"evicted by {by}", now)
    if left is not None:
        data = {"by": by, "reason": asked.reason, "rotate": rotate, "tokens": tokens}
        event = NewEvent(event_id, asked.node_id, left.tenant_id, pool_id, left.site_id, "security.node.evicted", data)
        outbox.add(c, [event], now)
        audit.add(c, entry, now)
    return {"node": _whole(c, asked.node_id, pool_id, asked.tenant_id), "rotate": rotate, "tokens": tokens}


def _member(c: Connection, node_id: str, pool_id: str, tenant_id: str) -> MemberRow:
    row = members.get(c, node_id)
    if row is None or (row.pool_id, row.tenant_id) != (pool_id, tenant_id):  # a pool may have had another owner
        raise NotFound
    return row


def _whole(c: Connection, node_id: str, pool_id: str, tenant_id: str) -> dict[str, Any]:
    row = _member(c, node_id, pool_id, tenant_id)
    said = members.said_by(c, node_id)
    return member_view(row) | {
        "identifiers": [{"kind": one.kind, "value": one.raw, "usable": one.usable, "conflicts": []} for one in said],
        "certificates": [_certificate(one) for one in certificates.of_node(c, node_id)],
        "secrets": [
            {"name": name, "firstAt": stamp(first), "lastAt": stamp(last)}
            for name, first, last in members.secrets_of(c, node_id)
        ],
    }


def _certificate(row: CertificateRow) -> dict[str, Any]:
    return {
        "serial": row.serial,
        "kind": row.kind,
        "issuedAt": stamp(row.issued_at),
        "notAfter": stamp(row.not_after_at),
        "renewAfter": stamp(row.renew_after_at),
        "revokedAt": stamp(row.revoked_at),
        "revokeReason": row.revoke_reason,
    }


def member_view(row: MemberRow) -> dict[str, Any]:
    return {
        "nodeId": row.node_id,
        "tenantId": row.tenant_id,
        "poolId": row.pool_id,
        "siteId": row.site_id,
        "state": row.state,
        "trust": row.trust,
        "hosted": row.hosted,
        "metal": row.metal_node_id is not None,
        "attestor": row.attestor,
        "tokenId": row.token_id,
        "requestId": row.request_id,
        "admittedBy": row.admitted_by,
        "ekSha256": row.ek_sha256,
        "tpmProven": row.tpm_proven,
        "address": row.address,
        "joinedAt": stamp(row.joined_at),
        "lastJoinAt": stamp(row.last_join_at),
        "lastSeenAt": stamp(row.last_seen_at),
        "endedAt": stamp(row.ended_at),
        "endReason": row.end_reason,
    }
