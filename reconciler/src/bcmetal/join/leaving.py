"""How a node stops being a member: evicted by a person, released or retired by its workflow, locked when its key was copied.

Each revokes the certificates in the same transaction; the listeners look at every call, and close what such a node has open.
And how a request ends without a join: denied, or expired.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from bcmetal.decisions import Micros
from bcmetal.join.events import request_decided, token_revoked
from bcmetal.store import certificates, join_requests, join_tokens, members, outbox
from bcmetal.store.join_requests import RequestRow
from bcmetal.store.members import MemberRow
from bcmetal.store.outbox import derived_id
from bcmetal.store.values import NewEvent


def leave(c: Connection, node_id: str, state: str, reason: str, now: Micros) -> MemberRow | None:
    """End a membership; `state`: evicted, released, retired or locked. The member as it was, None when it was none, or ended before.

    It ends no earlier than the pool's newest token: where a clock stepped back, what was minted before is still known to be older.
    """
    member = members.get(c, node_id)
    if member is None:
        return None
    ended_at = max(now, join_tokens.newest_at(c, member.pool_id) or now)
    if not members.end(c, node_id, state, reason, ended_at):
        return None
    certificates.revoke_all(c, node_id, state, now)
    return member


def withdraw_tokens(c: Connection, node_id: str, site_id: str, now: Micros) -> int:
    """Revoke what was minted for a node and not used; how many."""
    found = join_tokens.unused_of_node(c, node_id)
    for token_id in found:
        token = join_tokens.get(c, token_id)
        if token is not None and join_tokens.revoke(c, token_id, now):
            outbox.add(c, [token_revoked(token, site_id, None, now)], now)
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
    outbox.add(c, [request_decided(request, "denied", site_id, by, now)], now)
    return True


def expire(c: Connection, request: RequestRow, site_id: str, now: Micros) -> bool:
    """Write down that a request's time is over; a use that it held is free again. False: it ended before."""
    if not join_requests.end(c, request.request_id, request.stored_state, "expired", now):
        return False
    if request.stored_state == "approved" and request.token_id is not None:
        join_tokens.give_back(c, request.token_id)
    outbox.add(c, [request_decided(request, "expired", site_id, None, now)], now)
    return True


def expire_of_token(c: Connection, token_id: str, site_id: str, now: Micros) -> int:
    """Expire what is overdue of a token, before its uses are counted; how many."""
    overdue = [one for one in join_requests.open_of_token(c, token_id) if one.state(now) == "expired"]
    return sum(expire(c, one, site_id, now) for one in overdue)


def expire_overdue(c: Connection, site_of: Mapping[str, str], limit: int, now: Micros) -> int:
    """Expire up to `limit` requests whose time is over; `site_of`: each pool's. Called by a tick; how many. Again while it is `limit`."""
    found = join_requests.overdue(c, now, limit)
    for one in found:
        expire(c, one, site_of.get(one.pool_id, ""), now)
    return len(found)
