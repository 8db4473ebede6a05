"""Media that BMCs may fetch: each at a path of its own, for one BMC, until its eject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, or_, select, update

from bcmetal.decisions import Micros
from bcmetal.store.tables import media


@dataclass(frozen=True, slots=True)
class MediumRow:
    path: str
    node_id: str
    operation_id: str
    sha256: str
    file: str
    bmc_host: str
    expires_at: Micros | None
    served: int
    token_offset: int | None = None  # where the boot token's file lies on it


_ADD: Final = insert(media)
_LIVE: Final = (media.c.ended_at.is_(None), or_(media.c.expires_at.is_(None), media.c.expires_at > bindparam("now")))
_BY_PATH: Final = select(media).where(media.c.path == bindparam("path"), *_LIVE)
_SERVED: Final = (
    update(media)
    .where(media.c.path == bindparam("a_path"))
    .values(served=media.c.served + 1, served_at=bindparam("a_now"))
)
_COUNT: Final = select(func.coalesce(func.max(media.c.served), 0)).where(media.c.path == bindparam("path"))
_END: Final = (
    update(media)
    .where(media.c.operation_id == bindparam("a_operation_id"), media.c.ended_at.is_(None))
    .values(ended_at=bindparam("a_now"))
)
_END_ONE: Final = (
    update(media)
    .where(media.c.path == bindparam("a_path"), media.c.ended_at.is_(None))
    .values(ended_at=bindparam("a_now"))
)
_END_OF_NODE: Final = (
    update(media)
    .where(media.c.node_id == bindparam("a_node_id"), media.c.ended_at.is_(None))
    .values(ended_at=bindparam("a_now"))
)
_OF_NODE: Final = select(media.c.path).where(media.c.node_id == bindparam("node_id"), *_LIVE).order_by(media.c.path)
_FILES: Final = select(media.c.file).where(*_LIVE).distinct().order_by(media.c.file)
_EXPIRE: Final = delete(media).where(
    or_(media.c.expires_at <= bindparam("now"), media.c.ended_at <= bindparam("kept_until"))
)
ENDED_KEPT_US: Final = 3600 * 1_000_000


def add(
    c: Connection,
    path: str,
    node_id: str,
    operation_id: str,
    sha256: str,
    file: str,
    bmc_host: str,
    expires_at: Micros | None,
    now: Micros,
    token_offset: int | None = None,
) -> None:
    c.execute(
        _ADD,
        {
            "path": path,
            "node_id": node_id,
            "operation_id": operation_id,
            "sha256": sha256,
            "file": file,
            "bmc_host": bmc_host,
            "expires_at": expires_at,
            "token_offset": token_offset,
            "created_at": now,
        },
    )


def end_one(c: Connection, path: str, now: Micros) -> None:
    c.execute(_END_ONE, {"a_path": path, "a_now": now})


def by_path(c: Connection, path: str, now: Micros) -> MediumRow | None:
    """None: there is none, it ended, or its time is over."""
    row = c.execute(_BY_PATH, {"path": path, "now": now}).one_or_none()
    return None if row is None else _row(row)


def served(c: Connection, path: str, now: Micros) -> None:
    """Somebody fetched it to its end."""
    c.execute(_SERVED, {"a_path": path, "a_now": now})


def served_count(c: Connection, path: str) -> int:
    return int(c.execute(_COUNT, {"path": path}).scalar_one())


def end(c: Connection, operation_id: str, now: Micros) -> None:
    c.execute(_END, {"a_operation_id": operation_id, "a_now": now})


def end_of_node(c: Connection, node_id: str, now: Micros) -> None:
    c.execute(_END_OF_NODE, {"a_node_id": node_id, "a_now": now})


def paths_of_node(c: Connection, node_id: str, now: Micros) -> tuple[str, ...]:
    """Paths that are offered to this machine now."""
    return tuple(c.execute(_OF_NODE, {"node_id": node_id, "now": now}).scalars())


def files(c: Connection, now: Micros) -> tuple[str, ...]:
    """Files that some medium still needs."""
    return tuple(c.execute(_FILES, {"now": now}).scalars())


def expire(c: Connection, now: Micros) -> int:
    """Drop what is past its time, and what ended an hour ago."""
    return int(c.execute(_EXPIRE, {"now": now, "kept_until": now - ENDED_KEPT_US}).rowcount)


def _row(row: Row[Any]) -> MediumRow:
    return MediumRow(
        path=row.path,
        node_id=row.node_id,
        operation_id=row.operation_id,
        sha256=row.sha256,
        file=row.file,
        bmc_host=row.bmc_host,
        expires_at=row.expires_at,
        served=row.served,
        token_offset=row.token_offset,
    )
