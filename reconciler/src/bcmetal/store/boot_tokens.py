"""Boot tokens: each lets one machine's agent say hello, for one operation. Kept as digests; the newest one's text is sealed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, delete, func, insert, or_, select, update

from bcmetal.decisions import Micros
from bcmetal.store.agent_tables import agents, boot_tokens
from bcmetal.store.tables import nodes, operations

t = boot_tokens.c


@dataclass(frozen=True, slots=True)
class BootTokenRow:
    """`n` counts the operation's tokens from 1. `in_clear`: it crosses a wire on which others may read it."""

    operation_id: str
    n: int
    node_id: str
    sha256: bytes
    in_clear: bool
    created_at: Micros
    expires_at: Micros
    ended_at: Micros | None
    conflicts: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A token that somebody showed. `over`: its operation has ended, or its machine is gone."""

    token: BootTokenRow
    over: bool


_NEXT: Final = select(func.coalesce(func.max(t.n), 0) + 1).where(t.operation_id == bindparam("operation_id"))
_ADD: Final = insert(boot_tokens)
_END: Final = (
    update(boot_tokens)
    .where(t.operation_id == bindparam("a_operation_id"), t.ended_at.is_(None))
    .values(ended_at=bindparam("a_now"))
)
_END_AGENTS: Final = (
    update(agents)
    .where(agents.c.operation_id == bindparam("a_operation_id"), agents.c.ended_at.is_(None))
    .values(ended_at=bindparam("a_now"))
)
_CONFLICTS: Final = select(func.coalesce(func.sum(t.conflicts), 0)).where(t.operation_id == bindparam("operation_id"))
_CONFLICT: Final = (
    update(boot_tokens)
    .where(t.operation_id == bindparam("a_operation_id"), t.n == bindparam("a_n"), t.ended_at.is_(None))
    .values(ended_at=bindparam("a_now"), conflicts=t.conflicts + 1)
)
_LIVE: Final = (
    select(boot_tokens)
    .join(operations, operations.c.operation_id == t.operation_id)
    .where(
        t.operation_id == bindparam("operation_id"),
        t.ended_at.is_(None),
        t.expires_at > bindparam("now"),
        operations.c.ended_at.is_(None),
    )
    .order_by(t.n.desc())
    .limit(1)
)
_over = or_(
    nodes.c.node_id.is_(None),
    operations.c.operation_id.is_(None),
    operations.c.ended_at.is_not(None),
    and_(operations.c.kind == "workflow", nodes.c.operation_id.is_distinct_from(operations.c.operation_id)),
)
_SHOWN: Final = (
    select(boot_tokens, _over.label("over"))
    .select_from(
        boot_tokens.outerjoin(operations, operations.c.operation_id == t.operation_id).outerjoin(
            nodes, nodes.c.node_id == t.node_id
        )
    )
    .where(t.sha256 == bindparam("sha256"))
)
_PRUNE: Final = delete(boot_tokens).where(t.expires_at < bindparam("before"))
_PRUNE_AGENTS: Final = delete(agents).where(agents.c.hello_at < bindparam("before"))


def mint(
    c: Connection,
    operation_id: str,
    node_id: str,
    sha256: bytes,
    expires_at: Micros,
    now: Micros,
    *,
    in_clear: bool = True,
) -> int:
    """A new token, whose number it answers; the operation's earlier ones end, and whoever came with them."""
    end(c, operation_id, now)
    n = int(c.execute(_NEXT, {"operation_id": operation_id}).scalar_one())
    c.execute(
        _ADD,
        {
            "operation_id": operation_id,
            "n": n,
            "node_id": node_id,
            "sha256": sha256,
            "in_clear": in_clear,
            "created_at": now,
            "expires_at": expires_at,
        },
    )
    return n


def end(c: Connection, operation_id: str, now: Micros) -> None:
    """Its tokens, and the sessions that began with them."""
    c.execute(_END, {"a_operation_id": operation_id, "a_now": now})
    c.execute(_END_AGENTS, {"a_operation_id": operation_id, "a_now": now})


def conflicts(c: Connection, operation_id: str) -> int:
    """How many of the operation's tokens were used by two keys."""
    return int(c.execute(_CONFLICTS, {"operation_id": operation_id}).scalar_one())


def conflict(c: Connection, token: BootTokenRow, now: Micros) -> bool:
    """A second key came with it: the token ends, and its session. False: it had ended already."""
    if not c.execute(_CONFLICT, {"a_operation_id": token.operation_id, "a_n": token.n, "a_now": now}).rowcount:
        return False
    c.execute(_END_AGENTS, {"a_operation_id": token.operation_id, "a_now": now})
    return True


def live(c: Connection, operation_id: str, now: Micros) -> BootTokenRow | None:
    """The token that the operation's medium holds now; None: it has none, or it is over."""
    row = c.execute(_LIVE, {"operation_id": operation_id, "now": now}).one_or_none()
    return None if row is None else _row(row)


def shown(c: Connection, sha256: bytes, *, lock: bool = False) -> Shown | None:
    """The token of this digest, whatever has become of it. `lock`: for what decides by it, two hellos go one after the other."""
    statement = _SHOWN.with_for_update(of=boot_tokens) if lock else _SHOWN
    row = c.execute(statement, {"sha256": sha256}).one_or_none()
    return None if row is None else Shown(_row(row), bool(row.over))


def prune(c: Connection, before: Micros) -> int:
    """Forget tokens whose time was over, and sessions that began, before that time; how many tokens."""
    c.execute(_PRUNE_AGENTS, {"before": before})
    return int(c.execute(_PRUNE, {"before": before}).rowcount)


def _row(row: Row[Any]) -> BootTokenRow:
    return BootTokenRow(
        operation_id=row.operation_id,
        n=row.n,
        node_id=row.node_id,
        sha256=bytes(row.sha256),
        in_clear=row.in_clear,
        created_at=Micros(row.created_at),
        expires_at=Micros(row.expires_at),
        ended_at=row.ended_at,
        conflicts=row.conflicts,
    )
