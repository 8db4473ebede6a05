"""Join tokens: how many uses are left, until when, for whom. The secret is known by its SHA-256 alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, func, select, update

from bcmetal.decisions import Micros
from bcmetal.store import jsontext
from bcmetal.store.join_tables import join_tokens
from bcmetal.store.upsert import insert
from bcmetal.store.values import Json

t = join_tokens.c


@dataclass(frozen=True, slots=True)
class TokenRow:
    """`uses` were consumed; `reserved` belong to approved requests whose machine has not come back yet."""

    token_id: str
    tenant_id: str
    pool_id: str
    secret_sha256: bytes
    max_uses: int
    uses: int
    reserved: int
    expires_at: Micros
    expect: Json | None
    allow_reclaim: bool
    hosted: str | None
    node_id: str | None
    created_by: str
    created_at: Micros
    revoked_at: Micros | None

    @property
    def used_up(self) -> bool:
        return self.uses + self.reserved >= self.max_uses

    def is_live(self, now: Micros) -> bool:
        return self.revoked_at is None and not self.used_up and now < self.expires_at


@dataclass(frozen=True, slots=True)
class NewToken:
    token_id: str
    tenant_id: str
    pool_id: str
    secret_sha256: bytes
    max_uses: int
    expires_at: Micros
    expect: Json | None
    allow_reclaim: bool
    hosted: str | None
    created_by: str
    node_id: str | None = None


_ADD: Final = insert(join_tokens).on_conflict_do_nothing()
_GET: Final = select(join_tokens).where(t.token_id == bindparam("token_id"))
_LOCK: Final = (
    update(join_tokens).where(t.token_id == bindparam("a_token_id")).values(uses=t.uses).returning(join_tokens)
)
_LIVE: Final[ColumnElement[bool]] = and_(
    t.revoked_at.is_(None), t.uses + t.reserved < t.max_uses, t.expires_at > bindparam("now")
)
_PAGE: Final = (
    select(join_tokens)
    .where(t.pool_id == bindparam("pool_id"), t.tenant_id == bindparam("tenant_id"), t.token_id > bindparam("after"))
    .order_by(t.token_id)
    .limit(bindparam("limit"))
)
_LIVE_PAGE: Final = _PAGE.where(_LIVE)
_REVOKE: Final = (
    update(join_tokens)
    .where(t.token_id == bindparam("a_token_id"), t.revoked_at.is_(None))
    .values(revoked_at=bindparam("a_now"))
)
_OF_NODE: Final = select(t.token_id).where(
    t.node_id == bindparam("node_id"), t.revoked_at.is_(None), t.uses < t.max_uses
)
_NEWEST: Final = select(func.max(t.created_at)).where(t.pool_id == bindparam("pool_id"))
_room = and_(t.token_id == bindparam("a_token_id"), t.revoked_at.is_(None), t.uses + t.reserved < t.max_uses)
_USE: Final = update(join_tokens).where(_room, t.expires_at > bindparam("a_now")).values(uses=t.uses + 1)
_RESERVE: Final = update(join_tokens).where(_room).values(reserved=t.reserved + 1)
_held = and_(t.token_id == bindparam("a_token_id"), t.reserved > 0)
_USE_RESERVED: Final = (
    update(join_tokens).where(_held, t.revoked_at.is_(None)).values(reserved=t.reserved - 1, uses=t.uses + 1)
)
_GIVE_BACK: Final = update(join_tokens).where(_held).values(reserved=t.reserved - 1)


def add(c: Connection, new: NewToken, now: Micros) -> bool:
    """False: a token of this id is there already."""
    added = c.execute(
        _ADD,
        {
            "token_id": new.token_id,
            "tenant_id": new.tenant_id,
            "pool_id": new.pool_id,
            "role": "node",
            "secret_sha256": new.secret_sha256,
            "max_uses": new.max_uses,
            "expires_at": new.expires_at,
            "expect": None if new.expect is None else jsontext.dump(dict(new.expect)),
            "allow_reclaim": new.allow_reclaim,
            "hosted": new.hosted,
            "node_id": new.node_id,
            "created_by": new.created_by,
            "created_at": now,
        },
    )
    return bool(added.rowcount)


def get(c: Connection, token_id: str) -> TokenRow | None:
    """Also one that is revoked, used up or expired."""
    row = c.execute(_GET, {"token_id": token_id}).one_or_none()
    return None if row is None else _token(row)


def lock(c: Connection, token_id: str) -> TokenRow | None:
    """As `get`, and nobody else changes it before this transaction ends."""
    row = c.execute(_LOCK, {"a_token_id": token_id}).one_or_none()
    return None if row is None else _token(row)


def list_page(
    c: Connection,
    tenant_id: str,
    pool_id: str,
    limit: int,
    cursor: str | None,
    include_inactive: bool,
    now: Micros,
) -> tuple[list[TokenRow], str | None]:
    """In the order of their ids. The cursor is a position: the last id of the page; None: that was the last page."""
    asked: dict[str, Any] = {"tenant_id": tenant_id, "pool_id": pool_id, "after": cursor or "", "limit": limit + 1}
    found = c.execute(_PAGE, asked) if include_inactive else c.execute(_LIVE_PAGE, asked | {"now": now})
    rows = [_token(row) for row in found]
    return rows[:limit], (rows[limit - 1].token_id if len(rows) > limit else None)


def revoke(c: Connection, token_id: str, now: Micros) -> bool:
    """False: it was revoked already."""
    return bool(c.execute(_REVOKE, {"a_token_id": token_id, "a_now": now}).rowcount)


def unused_of_node(c: Connection, node_id: str) -> list[str]:
    """Tokens that were minted for a node, and could still be used but for their expiry."""
    return list(c.execute(_OF_NODE, {"node_id": node_id}).scalars())


def newest_at(c: Connection, pool_id: str) -> Micros | None:
    """When the pool's latest token was minted; None: it has none."""
    found: int | None = c.execute(_NEWEST, {"pool_id": pool_id}).scalar_one()
    return None if found is None else Micros(found)


def use(c: Connection, token_id: str, now: Micros) -> bool:
    """Consume one use. False: there is none left, or the token is revoked or expired."""
    return bool(c.execute(_USE, {"a_token_id": token_id, "a_now": now}).rowcount)


def reserve(c: Connection, token_id: str) -> bool:
    """Set one use apart for an approved request, also of an expired token. False: there is none left, or it is revoked."""
    return bool(c.execute(_RESERVE, {"a_token_id": token_id}).rowcount)


def use_reserved(c: Connection, token_id: str) -> bool:
    """Consume a use that was set apart, also of an expired token. False: the token is revoked."""
    return bool(c.execute(_USE_RESERVED, {"a_token_id": token_id}).rowcount)


def give_back(c: Connection, token_id: str) -> None:
    """A use that was set apart is free again."""
    c.execute(_GIVE_BACK, {"a_token_id": token_id})


def _token(row: Row[Any]) -> TokenRow:
    return TokenRow(
        token_id=row.token_id,
        tenant_id=row.tenant_id,
        pool_id=row.pool_id,
        secret_sha256=bytes(row.secret_sha256),
        max_uses=row.max_uses,
        uses=row.uses,
        reserved=row.reserved,
        expires_at=Micros(row.expires_at),
        expect=jsontext.load_or_none(row.expect),
        allow_reclaim=row.allow_reclaim,
        hosted=row.hosted,
        node_id=row.node_id,
        created_by=row.created_by,
        created_at=Micros(row.created_at),
        revoked_at=row.revoked_at,
    )
