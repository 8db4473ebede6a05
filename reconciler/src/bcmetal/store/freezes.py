"""Freezes of a site, pool or rack: every mutating step there is held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, and_, bindparam, delete, or_, select

from bcmetal.decisions import Micros
from bcmetal.store.tables import freezes, nodes
from bcmetal.store.upsert import insert


@dataclass(frozen=True, slots=True)
class FreezeRow:
    """`scope_kind` site, pool or rack; a rack's id is `SITE/RACK`."""

    scope_kind: str
    scope_id: str
    reason: str
    by: str
    at: Micros


_put = insert(freezes)
_PUT: Final = _put.on_conflict_do_update(
    index_elements=[freezes.c.scope_kind, freezes.c.scope_id],
    set_={name: _put.excluded[name] for name in ("reason", "by", "at")},
)
_LIFT: Final = delete(freezes).where(
    freezes.c.scope_kind == bindparam("a_kind"), freezes.c.scope_id == bindparam("a_id")
)
_LIST: Final = select(freezes).order_by(freezes.c.scope_kind, freezes.c.scope_id)
_COVERING: Final = (
    select(freezes.c.reason)
    .where(
        or_(
            and_(freezes.c.scope_kind == "site", freezes.c.scope_id == bindparam("site")),
            and_(freezes.c.scope_kind == "pool", freezes.c.scope_id == bindparam("pool")),
            and_(freezes.c.scope_kind == "rack", freezes.c.scope_id == bindparam("rack")),
        )
    )
    .order_by(freezes.c.at)
    .limit(1)
)
covering_node: Final = (
    select(freezes.c.reason)
    .where(
        or_(
            and_(freezes.c.scope_kind == "site", freezes.c.scope_id == nodes.c.site_id),
            and_(freezes.c.scope_kind == "pool", freezes.c.scope_id == nodes.c.pool_id),
            and_(freezes.c.scope_kind == "rack", freezes.c.scope_id == nodes.c.site_id + "/" + nodes.c.location_rack),
        )
    )
    .order_by(freezes.c.at)
    .limit(1)
    .correlate(nodes)
    .scalar_subquery()
)


def rack_scope(site_id: str, rack: str) -> str:
    return f"{site_id}/{rack}"


def set(c: Connection, scope_kind: str, scope_id: str, reason: str, by: str, now: Micros) -> None:
    c.execute(_PUT, {"scope_kind": scope_kind, "scope_id": scope_id, "reason": reason, "by": by, "at": now})


def lift(c: Connection, scope_kind: str, scope_id: str) -> bool:
    """Whether there was one."""
    return bool(c.execute(_LIFT, {"a_kind": scope_kind, "a_id": scope_id}).rowcount)


def list(c: Connection) -> tuple[FreezeRow, ...]:
    return tuple(
        FreezeRow(row.scope_kind, row.scope_id, row.reason, row.by, Micros(row.at)) for row in c.execute(_LIST)
    )


def covering(c: Connection, site: str, pool: str, rack: str | None) -> str | None:
    """The reason of the oldest freeze that covers such a node; None: nothing is frozen there."""
    scope = None if rack is None else rack_scope(site, rack)
    reason: str | None = c.execute(_COVERING, {"site": site, "pool": pool, "rack": scope}).scalar_one_or_none()
    return reason
