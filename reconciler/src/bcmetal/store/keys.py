"""API keys: only the SHA-256 of one is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, or_, select, update
from sqlalchemy import insert as sql_insert

from bcmetal.decisions import SECOND, Micros
from bcmetal.store.tables import api_keys

USED_EVERY_US: Final = 60 * SECOND  # how exact `last_used_at` is: not every call is a write


@dataclass(frozen=True, slots=True)
class KeyRow:
    """`identity` is `key:NAME`."""

    key_id: str
    sha256: bytes
    identity: str
    tenant_id: str
    created_at: Micros
    expires_at: Micros | None = None
    last_used_at: Micros | None = None
    revoked_at: Micros | None = None

    def is_live(self, now: Micros) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


_INSERT: Final = sql_insert(api_keys)
_FIND: Final = select(api_keys).where(api_keys.c.sha256 == bindparam("sha256"))
_BY_ID: Final = select(api_keys).where(api_keys.c.key_id == bindparam("key_id"))
_LIST: Final = select(api_keys).order_by(api_keys.c.identity, api_keys.c.created_at)
_REVOKE: Final = (
    update(api_keys)
    .where(
        or_(api_keys.c.key_id == bindparam("a_key"), api_keys.c.identity == bindparam("a_key")),
        api_keys.c.revoked_at.is_(None),
    )
    .values(revoked_at=bindparam("a_now"))
)
_USED: Final = (
    update(api_keys)
    .where(
        api_keys.c.key_id == bindparam("a_key_id"),
        or_(api_keys.c.last_used_at.is_(None), api_keys.c.last_used_at < bindparam("a_before")),
    )
    .values(last_used_at=bindparam("a_now"))
)


def insert(
    c: Connection,
    key_id: str,
    sha256: bytes,
    identity: str,
    tenant_id: str,
    now: Micros,
    expires_at: Micros | None = None,
) -> None:
    c.execute(
        _INSERT,
        {
            "key_id": key_id,
            "sha256": sha256,
            "identity": identity,
            "tenant_id": tenant_id,
            "created_at": now,
            "expires_at": expires_at,
        },
    )


def find_by_sha256(c: Connection, sha256: bytes) -> KeyRow | None:
    """Also one that is expired or revoked: see `is_live`."""
    row = c.execute(_FIND, {"sha256": sha256}).one_or_none()
    return None if row is None else _row(row)


def by_id(c: Connection, key_id: str) -> KeyRow | None:
    """Also one that is expired or revoked."""
    row = c.execute(_BY_ID, {"key_id": key_id}).one_or_none()
    return None if row is None else _row(row)


def list(c: Connection) -> tuple[KeyRow, ...]:
    return tuple(_row(row) for row in c.execute(_LIST))


def revoke(c: Connection, key: str, now: Micros) -> int:
    """Revoke by key id, or all of an identity; how many."""
    return int(c.execute(_REVOKE, {"a_key": key, "a_now": now}).rowcount)


def touch_used(c: Connection, key_id: str, now: Micros) -> None:
    c.execute(_USED, {"a_key_id": key_id, "a_now": now, "a_before": now - USED_EVERY_US})


def _row(row: Row[Any]) -> KeyRow:
    return KeyRow(
        key_id=row.key_id,
        sha256=bytes(row.sha256),
        identity=row.identity,
        tenant_id=row.tenant_id,
        created_at=Micros(row.created_at),
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )
