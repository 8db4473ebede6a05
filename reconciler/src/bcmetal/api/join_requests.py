"""joinRequests: joins that an attestor deferred, with the evidence side by side, and a person's decision."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from bcmetal import models_joining as models
from bcmetal.answers_joining import RequestList, RequestView
from bcmetal.api.calls import Call, method
from bcmetal.api.join_tokens import owned
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import Conflict, InvalidState, NotFound
from bcmetal.join.events import request_decided
from bcmetal.join.leaving import deny as deny_request
from bcmetal.join.leaving import expire_of_token
from bcmetal.settings_grants import Action
from bcmetal.store import audit, join_requests, join_tokens, members, outbox
from bcmetal.store.join_requests import RequestRow
from bcmetal.store.values import Json, NewAudit
from bcmetal.store.views import stamp


@method("joinRequests", models.RequestList, RequestList, None, name="list")
async def list_requests(call: Call[models.RequestList]) -> Json:
    """A pool's join requests in the order in which they came; by default those that wait for a decision or for their machine."""
    call = owned(call, Action.JOIN_READ)
    asked = call.input
    rows, cursor = await call.store.read(
        join_requests.list_page,
        asked.tenant_id,
        call.its_pool.name,
        asked.limit,
        asked.cursor,
        asked.state,
        asked.include_inactive,
        call.now,
    )
    return {"requests": [request_view(row, call.now) for row in rows], "cursor": cursor}


@method("joinRequests", models.RequestGet, RequestView, None)
async def get(call: Call[models.RequestGet]) -> Json:
    """One join request with its evidence."""
    call = owned(call, Action.JOIN_READ)
    row = await call.store.read(_get, call.input.request_id, call.its_pool.name, call.its_pool.owner)
    return request_view(row, call.now)


@method("joinRequests", models.RequestApprove, RequestView, None)
async def approve(call: Call[models.RequestApprove]) -> Json:
    """Admit exactly one join, which the machine's retry with the same CSR consumes. Reserves one use of its token."""
    call = owned(call, Action.JOIN_CREATE)
    pool = call.its_pool
    until = Micros(call.now + call.settings.joining.approved_s * SECOND)
    entry = call.audit(f"compute-pool/{pool.name}", "allowed", doc={"requestId": call.input.request_id})
    row = await call.store.write(_approve, call.input, pool.name, pool.site, call.who.name, until, entry, call.now)
    return request_view(row, call.now)


def _approve(
    c: Connection,
    asked: models.RequestApprove,
    pool_id: str,
    site_id: str,
    by: str,
    until: Micros,
    entry: NewAudit,
    now: Micros,
) -> RequestRow:
    members.lock_pool(c, pool_id)
    row = _get(c, asked.request_id, pool_id, asked.tenant_id)
    if asked.csr_sha256 is not None and asked.csr_sha256 != row.csr_sha256:
        raise Conflict("the request came with another CSR than the one that was looked at", reason="csr-changed")
    state = row.state(now)
    if state == "approved":
        return row
    if state != "pending":
        raise _finished(state)
    if row.token_id is not None:
        expire_of_token(c, row.token_id, site_id, now)  # what another approval held in vain is free again
    if row.token_id is not None and not join_tokens.reserve(c, row.token_id):
        raise InvalidState(
            "its join token has no use left: deny the request, or mint another token", reason="token-used-up"
        )
    join_requests.approve(c, row.request_id, by, until, now)
    outbox.add(c, [request_decided(row, "approved", site_id, by, now)], now)
    audit.add(c, entry, now)
    return _get(c, row.request_id, pool_id, asked.tenant_id)


@method("joinRequests", models.RequestDeny, RequestView, None)
async def deny(call: Call[models.RequestDeny]) -> Json:
    """Refuse a join, also one that was approved and whose machine has not come back yet."""
    call = owned(call, Action.JOIN_REVOKE)
    pool = call.its_pool
    entry = call.audit(f"compute-pool/{pool.name}", "allowed", doc={"requestId": call.input.request_id})
    row = await call.store.write(_deny, call.input, pool.name, pool.site, call.who.name, entry, call.now)
    return request_view(row, call.now)


def _deny(
    c: Connection, asked: models.RequestDeny, pool_id: str, site_id: str, by: str, entry: NewAudit, now: Micros
) -> RequestRow:
    members.lock_pool(c, pool_id)
    row = _get(c, asked.request_id, pool_id, asked.tenant_id)
    state = row.state(now)
    if state == "denied":
        return row
    if state not in join_requests.LIVE:
        raise _finished(state)
    deny_request(c, row, site_id, by, asked.reason, now)
    audit.add(c, entry, now)
    return _get(c, row.request_id, pool_id, asked.tenant_id)


def _get(c: Connection, request_id: str, pool_id: str, tenant_id: str) -> RequestRow:
    row = join_requests.get(c, request_id)
    if row is None or (row.pool_id, row.tenant_id) != (pool_id, tenant_id):  # a pool may have had another owner
        raise NotFound
    return row


def _finished(state: str) -> InvalidState:
    return InvalidState(f"the request is {state} already", state=state)


def request_view(row: RequestRow, now: Micros) -> dict[str, Any]:
    return {
        "requestId": row.request_id,
        "tenantId": row.tenant_id,
        "poolId": row.pool_id,
        "tokenId": row.token_id,
        "state": row.state(now),
        "attestor": row.attestor,
        "reason": row.reason,
        "csrSha256": row.csr_sha256,
        "keySha256": row.key_sha256,
        "nodeId": row.node_id,
        "address": row.address,
        "attempts": row.attempts,
        "createdAt": stamp(row.created_at),
        "lastSeenAt": stamp(row.last_seen_at),
        "expiresAt": stamp(row.expires_at),
        "decidedBy": row.decided_by,
        "decidedAt": stamp(row.decided_at),
        "decisionReason": row.decision_reason,
        "evidence": row.evidence,
    }
