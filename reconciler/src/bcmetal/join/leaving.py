"""How a node stops being a member: evicted by a person, released or retired by its workflow, locked when its key was copied.

Each revokes the certificates in the same transaction; the listeners look at every call, and close what such a node has open.
"""

from __future__ import annotations

from sqlalchemy import Connection

from bcmetal.decisions import Micros
from bcmetal.store import certificates, join_requests, join_tokens, members, outbox, views
from bcmetal.store.join_requests import RequestRow
from bcmetal.store.members import MemberRow
from bcmetal.store.outbox import derived_id
from bcmetal.store.values import NewEvent


def leave(c: Connection, node_id: str, state: str, reason: str, now: Micros) -> MemberRow | None:
    """End a membership; `state`: evicted, released, retired or locked. The member as it was, None when it was none, or ended before."""
    member = members.get(c, node_id)
    if member is None or not members.end(c, node_id, state, reason, now):
        return None
    certificates.revoke_all(c, node_id, state, now)
    if member.metal_node_id is not None:
        views.rewrite(c, member.metal_node_id, now)
    return member


def withdraw_tokens(c: Connection, node_id: str, site_id: str, now: Micros) -> int:
    """Revoke what was minted for a node and not used; how many."""
    found = join_tokens.unused_of_node(c, node_id)
    for token_id in found:
        token = join_tokens.get(c, token_id)
        if token is not None and join_tokens.revoke(c, token_id, now):
            data = {"tokenId": token_id, "pinned": token.expect is not None}
            id_ = derived_id(now, "revoked", token_id)
            event = NewEvent(id_, node_id, token.tenant_id, token.pool_id, site_id, "security.join-token.revoked", data)
            outbox.add(c, [event], now)
    return len(found)


def lock(c: Connection, member: MemberRow, serial: str, now: Micros) -> None:
    """Two keys claim one identity: neither is believed any more."""
    if leave(c, member.node_id, "locked", "cloned", now) is None:
        return
    data = {"serial": serial}
    id_ = derived_id(now, "cloned", member.node_id, serial)
    event = NewEvent(
        id_, member.node_id, member.tenant_id, member.pool_id, member.site_id, "security.node.cloned", data
    )
    outbox.add(c, [event], now)


def deny(c: Connection, request: RequestRow, site_id: str, by: str, reason: str | None, now: Micros) -> bool:
    """Deny a pending or approved request; a use that it held is free again. False: it is neither."""
    if not join_requests.end(c, request.request_id, request.stored_state, "denied", now, by=by, reason=reason):
        return False
    if request.stored_state == "approved" and request.token_id is not None:
        join_tokens.give_back(c, request.token_id)
    data = {"requestId": request.request_id, "tokenId": request.token_id, "by": by}
    id_ = derived_id(now, "denied", request.request_id)
    event = NewEvent(id_, None, request.tenant_id, request.pool_id, site_id, "security.join-request.denied", data)
    outbox.add(c, [event], now)
    return True
