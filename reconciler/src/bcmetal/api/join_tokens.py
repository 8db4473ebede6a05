"""joinTokens: who may join a pool, how often, until when. Decided on the pool, by its owner tenant alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from bcmetal import models_joining as models
from bcmetal.answers_joining import TokenList, TokenView
from bcmetal.api.access import actions_on_pool, owned_pool, require
from bcmetal.api.calls import Call, method
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import Conflict, Fault, InvalidInput, InvalidState, NotFound
from bcmetal.join.bearers import SECRET_BYTES, new_bearer, token_id
from bcmetal.join.claims import EXPECTED, expectation
from bcmetal.join.events import token_created, token_revoked
from bcmetal.join.leaving import deny
from bcmetal.settings import Placeholders
from bcmetal.settings_grants import Action
from bcmetal.store import audit, join_requests, join_tokens, members, outbox
from bcmetal.store.join_tokens import NewToken, TokenRow
from bcmetal.store.migrate import deployment_key
from bcmetal.store.values import Json, NewAudit, NewEvent
from bcmetal.store.views import stamp


def owned(call: Call[Any], action: Action) -> Call[Any]:
    """The call with its pool, which is its identity's own tenant's, and on which the action is granted. Raises NotFound, PermissionDenied."""
    pool = owned_pool(call.settings, call.who, call.input.tenant_id, call.input.pool_id)
    require(actions_on_pool(call.settings, call.who, pool), {action}, call.who, f"compute-pool/{pool.name}")
    return replace(call, pool=pool)


@method("joinTokens", models.TokenCreate, TokenView, None)
async def create(call: Call[models.TokenCreate]) -> Json:
    """Mint a token for one pool. The bearer is in this answer alone; a repeated call answers with the record without it.

    `expect` pins it to one machine: a guard against misdelivery, since a machine's identifiers are what its root says.
    """
    asked = call.input
    extra = call.settings.joining.placeholders
    _refuse_placeholders(asked.expect, extra)
    key = await call.store.read(deployment_key)
    id_ = token_id(key, asked.tenant_id, call.who.name, asked.idempotency_key)
    known = await call.store.read(join_tokens.get, id_)
    if known is not None:
        return _same(known, asked, call.now, extra)
    call = owned(call, Action.JOIN_CREATE)
    pool = call.its_pool
    if pool.agent == "none":
        raise InvalidState(
            f'the machines of {pool.name} run no agent that could join: agent = "bcd" in its pool, once reloaded, says that they do',
            reason="no-agent",
        )
    bearer = new_bearer(id_, call.services.entropy(SECRET_BYTES))
    new = NewToken(
        token_id=id_,
        tenant_id=pool.owner,
        pool_id=pool.name,
        secret_sha256=bearer.secret_sha256,
        max_uses=asked.max_uses,
        expires_at=Micros(call.now + asked.ttl_seconds * SECOND),
        expect=asked.expect.said() if asked.expect is not None else None,
        allow_reclaim=asked.allow_reclaim,
        hosted=asked.hosted,
        created_by=call.who.name,
    )
    entry = call.audit(f"compute-pool/{pool.name}", "allowed", doc={"tokenId": id_})
    made = await call.store.write(_create, new, token_created(new, pool.site, call.new_id("ev")), entry, call.now)
    row = await call.store.read(join_tokens.get, id_)
    if row is None:
        raise NotFound
    if not made:  # another call with the same key was faster, and has the bearer
        return _same(row, asked, call.now, extra)
    return token_view(row, call.now) | {"token": bearer.text()}


def _create(c: Connection, new: NewToken, event: NewEvent, entry: NewAudit, now: Micros) -> bool:
    if not join_tokens.add(c, new, now):
        return False
    outbox.add(c, [event], now)
    audit.add(c, entry, now)
    return True


def _same(known: TokenRow, asked: models.TokenCreate, now: Micros, extra: Placeholders) -> Json:
    """The record of the first call. Raises Conflict when the second one asks for something else."""
    before = {} if known.expect is None else expectation(known.expect, extra)
    after = {} if asked.expect is None else expectation(asked.expect.said(), extra)
    differing = [
        name
        for name, one, other in (
            ("poolId", known.pool_id, asked.pool_id),
            ("expect", before, after),
            ("allowReclaim", known.allow_reclaim, asked.allow_reclaim),
            ("hosted", known.hosted, asked.hosted),
        )
        if one != other
    ]
    if differing:
        names = ", ".join(differing)
        raise Conflict(
            f"this idempotencyKey was used for a token with another {names}", reason="idempotency-key", fields=differing
        )
    return token_view(known, now)


def _refuse_placeholders(expect: models.Expect | None, extra: Placeholders) -> None:
    if expect is None:
        return
    found = expectation(expect.said(), extra)
    faults = [
        Fault(
            f"expect.{name}",
            "is a placeholder that many machines share, or an address given by software: it cannot pin one",
        )
        for name, kind in EXPECTED
        if kind in found and not found[kind][1]
    ]
    if faults:
        raise InvalidInput(faults)


@method("joinTokens", models.TokenList, TokenList, None, name="list")
async def list_tokens(call: Call[models.TokenList]) -> Json:
    """A pool's tokens in the order of their ids, by default only live ones: not revoked, with uses left, not expired."""
    call = owned(call, Action.JOIN_READ)
    asked = call.input
    rows, cursor = await call.store.read(
        join_tokens.list_page,
        asked.tenant_id,
        call.its_pool.name,
        asked.limit,
        asked.cursor,
        asked.include_inactive,
        call.now,
    )
    return {"tokens": [token_view(row, call.now) for row in rows], "cursor": cursor}


@method("joinTokens", models.TokenRevoke, TokenView, None)
async def revoke(call: Call[models.TokenRevoke]) -> Json:
    """Revoke a token at once, and deny the join requests that came with it. Revoking it again changes nothing."""
    call = owned(call, Action.JOIN_REVOKE)
    entry = call.audit(f"compute-pool/{call.its_pool.name}", "allowed", doc={"tokenId": call.input.token_id})
    row = await call.store.write(
        _revoke, call.input, call.its_pool.name, call.its_pool.site, call.who.name, entry, call.now
    )
    if row is None:
        raise NotFound
    return token_view(row, call.now)


def _revoke(
    c: Connection, asked: models.TokenRevoke, pool_id: str, site_id: str, by: str, entry: NewAudit, now: Micros
) -> TokenRow | None:
    id_ = asked.token_id
    members.lock_pool(c, pool_id)
    row = join_tokens.get(c, id_)
    if row is None or (row.pool_id, row.tenant_id) != (pool_id, asked.tenant_id):  # a pool may have had another owner
        return None
    if join_tokens.revoke(c, id_, now):
        for request in join_requests.open_of_token(c, id_):
            if request.state(now) in join_requests.LIVE:
                deny(c, request, site_id, by, "its token was revoked", now)
        outbox.add(c, [token_revoked(row, site_id, by, now)], now)
        audit.add(c, entry, now)
    return join_tokens.get(c, id_)


def token_view(row: TokenRow, now: Micros) -> dict[str, Any]:
    return {
        "tokenId": row.token_id,
        "tenantId": row.tenant_id,
        "poolId": row.pool_id,
        "role": "node",
        "maxUses": row.max_uses,
        "uses": row.uses,
        "reserved": row.reserved,
        "expiresAt": stamp(row.expires_at),
        "expect": row.expect,
        "allowReclaim": row.allow_reclaim,
        "hosted": row.hosted,
        "nodeId": row.node_id,
        "createdBy": row.created_by,
        "createdAt": stamp(row.created_at),
        "revokedAt": stamp(row.revoked_at),
        "live": row.is_live(now),
    }
