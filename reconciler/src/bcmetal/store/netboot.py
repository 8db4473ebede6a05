"""What machines may boot from the network: an offer is a row of `media` with a path of its own, for one operation, until that one ends it or
its boot token is over.

A medium is asked for by its BMC; a network boot is asked for by the machine, which is known by its MAC address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, exists, func, insert, or_, select, update

from bcmetal.decisions import Micros
from bcmetal.store.agent_tables import boot_tokens
from bcmetal.store.tables import identities, media, nodes, operations

PREFIX: Final = "/boot/"


@dataclass(frozen=True, slots=True)
class OfferRow:
    """`key`: what the addresses of its kernel and its initrd end in."""

    key: str
    node_id: str
    operation_id: str
    served: int


_ADD: Final = insert(media)
_END: Final = (
    update(media)
    .where(
        media.c.operation_id == bindparam("a_operation_id"),
        media.c.path.startswith(PREFIX),
        media.c.ended_at.is_(None),
    )
    .values(ended_at=bindparam("a_now"))
)
_LIVE: Final = (
    select(media)
    .join(operations, operations.c.operation_id == media.c.operation_id)
    .where(
        media.c.path.startswith(PREFIX),
        media.c.ended_at.is_(None),
        or_(media.c.expires_at.is_(None), media.c.expires_at > bindparam("now")),
        operations.c.ended_at.is_(None),
        exists().where(
            boot_tokens.c.operation_id == media.c.operation_id,
            boot_tokens.c.ended_at.is_(None),
            boot_tokens.c.expires_at > bindparam("now"),
        ),
    )
)
_BY_KEY: Final = _LIVE.where(media.c.path == bindparam("path"))
_BY_MAC: Final = _LIVE.where(
    or_(
        media.c.node_id.in_(
            select(identities.c.node_id).where(identities.c.kind == "mac", identities.c.value_norm == bindparam("mac"))
        ),
        media.c.node_id.in_(select(nodes.c.node_id).where(func.lower(nodes.c.boot_mac) == bindparam("mac"))),
    )
).order_by(media.c.created_at.desc(), media.c.path)
_SERVED: Final = (
    update(media)
    .where(media.c.path == bindparam("a_path"))
    .values(served=media.c.served + 1, served_at=bindparam("a_now"))
)
_COUNT: Final = select(func.coalesce(func.sum(media.c.served), 0)).where(
    media.c.operation_id == bindparam("operation_id"), media.c.path.startswith(PREFIX)
)


def offer(c: Connection, key: str, node_id: str, operation_id: str, expires_at: Micros | None, now: Micros) -> None:
    """The operation's machine may boot from the network, under this key; an earlier offer of the operation ends."""
    end(c, operation_id, now)
    c.execute(
        _ADD,
        {
            "path": PREFIX + key,
            "node_id": node_id,
            "operation_id": operation_id,
            "sha256": "",
            "file": "",
            "bmc_host": "",
            "expires_at": expires_at,
            "created_at": now,
        },
    )


def end(c: Connection, operation_id: str, now: Micros) -> None:
    """`media.end` and `media.end_of_node` end an offer too."""
    c.execute(_END, {"a_operation_id": operation_id, "a_now": now})


def of_mac(c: Connection, mac: str, now: Micros) -> OfferRow | None:
    """The live offer of the machine with this MAC (lower case, colons), by its identity or its `bootMac`.

    None also where two machines are said to have it: neither may be given the other's.
    """
    rows = [_row(row) for row in c.execute(_BY_MAC, {"mac": mac, "now": now})]
    return rows[0] if len({row.node_id for row in rows}) == 1 else None


def by_key(c: Connection, key: str, now: Micros) -> OfferRow | None:
    """None: there is none, it ended, its time is over, or its operation or its boot token is."""
    row = c.execute(_BY_KEY, {"path": PREFIX + key, "now": now}).one_or_none()
    return None if row is None else _row(row)


def served(c: Connection, key: str, now: Micros) -> None:
    """The machine asked for its initrd."""
    c.execute(_SERVED, {"a_path": PREFIX + key, "a_now": now})


def served_count(c: Connection, operation_id: str) -> int:
    """How often the operation's initrd was asked for, over all its offers."""
    return int(c.execute(_COUNT, {"operation_id": operation_id}).scalar_one())


def _row(row: Row[Any]) -> OfferRow:
    return OfferRow(row.path.removeprefix(PREFIX), row.node_id, row.operation_id, row.served)
