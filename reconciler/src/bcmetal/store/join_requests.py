"""Join requests: joins that a person decides upon. Neither the CSR nor a certificate is kept here, only the CSR's SHA-256.

A request whose time is over is expired from that moment, whether or not the tick that writes it down has come by: reads compute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from bcmetal.decisions import Micros
from bcmetal.store import jsontext
from bcmetal.store.join_tables import join_requests
from bcmetal.store.values import Json

r = join_requests.c
LIVE: Final = ("pending", "approved")


@dataclass(frozen=True, slots=True)
class NewRequest:
    """`claim`: what the machine says; `evidence`: what speaks for it."""

    request_id: str
    tenant_id: str
    pool_id: str
    token_id: str | None
    attestor: str
    reason: str
    csr_sha256: str
    key_sha256: str
    claim_sha256: str
    claim: Json
    evidence: Json
    node_id: str | None
    ek_sha256: str | None
    address: str
    expires_at: Micros


@dataclass(frozen=True, slots=True)
class RequestRow(NewRequest):
    """`stored_state` is as it was written last; `state(now)` what it is."""

    stored_state: str
    attempts: int
    created_at: Micros
    last_seen_at: Micros
    decided_by: str | None
    decided_at: Micros | None
    decision_reason: str | None
    ended_at: Micros | None

    def state(self, now: Micros) -> str:
        return "expired" if self.stored_state in LIVE and now >= self.expires_at else self.stored_state


_ADD: Final = insert(join_requests)
_GET: Final = select(join_requests).where(r.request_id == bindparam("request_id"))
_OF_CSR: Final = (
    select(join_requests)
    .where(r.pool_id == bindparam("pool_id"), r.csr_sha256 == bindparam("csr_sha256"))
    .order_by(r.ended_at.is_not(None), r.created_at.desc(), r.request_id.desc())  # a clock may have stepped back since
    .limit(1)
)
_PAGE: Final = (
    select(join_requests)
    .where(r.pool_id == bindparam("pool_id"), r.tenant_id == bindparam("tenant_id"), r.request_id > bindparam("after"))
    .order_by(r.request_id)
    .limit(bindparam("limit"))
)
_live = r.ended_at.is_(None) & (r.expires_at > bindparam("now"))
_LIVE_OF_POOL: Final = select(func.count()).where(r.pool_id == bindparam("pool_id"), _live)
_LIVE_OF_TOKEN: Final = select(func.count()).where(r.token_id == bindparam("token_id"), _live)
_LIVE_OF_NOBODY: Final = select(func.count()).where(r.pool_id == bindparam("pool_id"), r.token_id.is_(None), _live)
_OPEN_OF_TOKEN: Final = select(join_requests).where(r.token_id == bindparam("token_id"), r.ended_at.is_(None))
_OVERDUE: Final = (
    select(join_requests)
    .where(r.ended_at.is_(None), r.expires_at <= bindparam("now"))
    .order_by(r.expires_at)
    .limit(bindparam("limit"))
)
_SEEN: Final = (
    update(join_requests)
    .where(r.request_id == bindparam("a_request_id"))
    .values(attempts=r.attempts + 1, last_seen_at=bindparam("a_now"), address=bindparam("a_address"))
)
_APPROVE: Final = (
    update(join_requests)
    .where(r.request_id == bindparam("a_request_id"), r.state == "pending", r.expires_at > bindparam("a_now"))
    .values(
        state="approved",
        decided_by=bindparam("a_by"),
        decided_at=bindparam("a_now"),
        expires_at=bindparam("a_until"),
    )
)
_END: Final = (
    update(join_requests)
    .where(r.request_id == bindparam("a_request_id"), r.state == bindparam("a_from"))
    .values(
        state=bindparam("a_state"),
        ended_at=bindparam("a_now"),
        decided_by=func.coalesce(bindparam("a_by"), r.decided_by),
        decided_at=func.coalesce(bindparam("a_decided_at"), r.decided_at),
        decision_reason=func.coalesce(bindparam("a_reason"), r.decision_reason),
        node_id=func.coalesce(bindparam("a_node_id"), r.node_id),
    )
)


def add(c: Connection, new: NewRequest, now: Micros) -> None:
    """The caller looked before, in this transaction and under the pool's lock, that no live one has this CSR."""
    c.execute(
        _ADD,
        {
            "request_id": new.request_id,
            "tenant_id": new.tenant_id,
            "pool_id": new.pool_id,
            "token_id": new.token_id,
            "state": "pending",
            "attestor": new.attestor,
            "reason": new.reason,
            "csr_sha256": new.csr_sha256,
            "key_sha256": new.key_sha256,
            "claim_sha256": new.claim_sha256,
            "claim": jsontext.dump(dict(new.claim)),
            "evidence": jsontext.dump(dict(new.evidence)),
            "node_id": new.node_id,
            "ek_sha256": new.ek_sha256,
            "address": new.address,
            "created_at": now,
            "last_seen_at": now,
            "expires_at": new.expires_at,
        },
    )


def get(c: Connection, request_id: str) -> RequestRow | None:
    row = c.execute(_GET, {"request_id": request_id}).one_or_none()
    return None if row is None else _request(row)


def of_csr(c: Connection, pool_id: str, csr_sha256: str) -> RequestRow | None:
    """The open request of a pool that came with this CSR, else the newest one."""
    row = c.execute(_OF_CSR, {"pool_id": pool_id, "csr_sha256": csr_sha256}).one_or_none()
    return None if row is None else _request(row)


def list_page(
    c: Connection,
    tenant_id: str,
    pool_id: str,
    limit: int,
    cursor: str | None,
    state: str | None,
    include_inactive: bool,
    now: Micros,
) -> tuple[list[RequestRow], str | None]:
    """In the order in which they came. Expiry counts as of `now`. The cursor: the last id of the page; None: that was the last page."""
    found: list[RequestRow] = []
    after = cursor or ""
    while True:
        asked = {"tenant_id": tenant_id, "pool_id": pool_id, "after": after, "limit": limit + 1}
        rows = [_request(row) for row in c.execute(_PAGE, asked)]
        for row in rows:
            is_now = row.state(now)
            if (is_now == state) if state is not None else (include_inactive or is_now in LIVE):
                found.append(row)
        if len(found) > limit or len(rows) <= limit:
            return found[:limit], (found[limit - 1].request_id if len(found) > limit else None)
        after = rows[-1].request_id


def count_live(c: Connection, pool_id: str, token_id: str | None, now: Micros) -> tuple[int, int]:
    """How many are live in the pool, and of the token; `token_id` None: in the pool without a token."""
    of_pool = c.execute(_LIVE_OF_POOL, {"pool_id": pool_id, "now": now}).scalar_one()
    if token_id is None:
        of_token = c.execute(_LIVE_OF_NOBODY, {"pool_id": pool_id, "now": now}).scalar_one()
    else:
        of_token = c.execute(_LIVE_OF_TOKEN, {"token_id": token_id, "now": now}).scalar_one()
    return int(of_pool), int(of_token)


def open_of_token(c: Connection, token_id: str) -> list[RequestRow]:
    """Those that are not ended, overdue ones among them."""
    return [_request(row) for row in c.execute(_OPEN_OF_TOKEN, {"token_id": token_id})]


def overdue(c: Connection, now: Micros, limit: int) -> Sequence[RequestRow]:
    """Those whose time is over and whose end is not written down yet."""
    return [_request(row) for row in c.execute(_OVERDUE, {"now": now, "limit": limit})]


def seen(c: Connection, request_id: str, address: str, now: Micros) -> None:
    """Its machine asked again."""
    c.execute(_SEEN, {"a_request_id": request_id, "a_now": now, "a_address": address})


def approve(c: Connection, request_id: str, by: str, until: Micros, now: Micros) -> bool:
    """False: it is not pending any more."""
    asked = {"a_request_id": request_id, "a_by": by, "a_until": until, "a_now": now}
    return bool(c.execute(_APPROVE, asked).rowcount)


def end(
    c: Connection,
    request_id: str,
    from_state: str,
    state: str,
    now: Micros,
    by: str | None = None,
    reason: str | None = None,
    node_id: str | None = None,
) -> bool:
    """To denied, consumed or expired. False: it is no longer in `from_state`."""
    changed = c.execute(
        _END,
        {
            "a_request_id": request_id,
            "a_from": from_state,
            "a_state": state,
            "a_now": now,
            "a_by": by,
            "a_decided_at": now if by is not None else None,
            "a_reason": reason,
            "a_node_id": node_id,
        },
    )
    return bool(changed.rowcount)


def _request(row: Row[Any]) -> RequestRow:
    return RequestRow(
        request_id=row.request_id,
        tenant_id=row.tenant_id,
        pool_id=row.pool_id,
        token_id=row.token_id,
        stored_state=row.state,
        attestor=row.attestor,
        reason=row.reason,
        csr_sha256=row.csr_sha256,
        key_sha256=row.key_sha256,
        claim_sha256=row.claim_sha256,
        claim=jsontext.load(row.claim),
        evidence=jsontext.load(row.evidence),
        node_id=row.node_id,
        ek_sha256=row.ek_sha256,
        address=row.address,
        attempts=row.attempts,
        created_at=Micros(row.created_at),
        last_seen_at=Micros(row.last_seen_at),
        expires_at=Micros(row.expires_at),
        decided_by=row.decided_by,
        decided_at=row.decided_at,
        decision_reason=row.decision_reason,
        ended_at=row.ended_at,
    )
