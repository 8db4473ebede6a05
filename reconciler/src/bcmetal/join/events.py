"""What the feed is told of tokens and of join requests: each event in one shape, whatever brought it about."""

from __future__ import annotations

from typing import Any

from bcmetal.decisions import Micros
from bcmetal.store.join_requests import RequestRow
from bcmetal.store.join_tokens import NewToken, TokenRow
from bcmetal.store.outbox import derived_id
from bcmetal.store.values import NewEvent
from bcmetal.store.views import stamp


def token_created(new: NewToken, site_id: str, event_id: str) -> NewEvent:
    """`pinned`: whether it has an `expect`; a token that is for one node says so by the event's node."""
    data: dict[str, Any] = {
        "tokenId": new.token_id,
        "pinned": new.expect is not None,
        "maxUses": new.max_uses,
        "expiresAt": stamp(new.expires_at),
        "by": new.created_by,
    }
    if new.hosted is not None:
        data["hosted"] = new.hosted
    return NewEvent(event_id, new.node_id, new.tenant_id, new.pool_id, site_id, "security.join-token.created", data)


def token_revoked(token: TokenRow, site_id: str, by: str | None, now: Micros) -> NewEvent:
    """`by` None: its node's workflow did, and not a person."""
    data: dict[str, Any] = {"tokenId": token.token_id, "pinned": token.expect is not None}
    if by is not None:
        data["by"] = by
    event_id = derived_id(now, "revoked", token.token_id)
    type_ = "security.join-token.revoked"
    return NewEvent(event_id, token.node_id, token.tenant_id, token.pool_id, site_id, type_, data)


def request_decided(request: RequestRow, state: str, site_id: str, by: str | None, now: Micros) -> NewEvent:
    """`state`: approved, denied or expired; `by` None: time did. Its node, where it is known whose join it is."""
    data: dict[str, Any] = {"requestId": request.request_id, "tokenId": request.token_id}
    if by is not None:
        data["by"] = by
    event_id = derived_id(now, state, request.request_id)
    type_ = f"security.join-request.{state}"
    return NewEvent(event_id, request.node_id, request.tenant_id, request.pool_id, site_id, type_, data)
