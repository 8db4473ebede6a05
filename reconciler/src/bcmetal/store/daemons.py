"""Daemons that share the database: who lives, and whether they go by the same configuration.

A daemon is alive while its heartbeat is younger than a minute, by the database's clock. Of two configurations the one that was taken
first counts: whoever came with another one does nothing until they agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, case, delete, func, select

from bcmetal.decisions import SECOND
from bcmetal.store.tables import daemons
from bcmetal.store.time import db_now
from bcmetal.store.upsert import insert

STALE_S: Final = 60
BEAT_S: Final = 20
_FORGOTTEN_S: Final = 3600


@dataclass(frozen=True, slots=True)
class Fellow:
    """Another live daemon. `first`: it took its configuration before this one did."""

    daemon_id: str
    code: int
    config_digest: str
    first: bool


d = daemons.c
_put = insert(daemons).values(
    daemon_id=bindparam("daemon_id"),
    code=bindparam("code"),
    config_digest=bindparam("config_digest"),
    config_at=db_now(),
    heartbeat_at=db_now(),
)
_BEAT: Final = _put.on_conflict_do_update(
    index_elements=[d.daemon_id],
    set_={
        "code": _put.excluded.code,
        "config_digest": _put.excluded.config_digest,
        "config_at": case((d.config_digest == _put.excluded.config_digest, d.config_at), else_=_put.excluded.config_at),
        "heartbeat_at": _put.excluded.heartbeat_at,
    },
).returning(d.config_at)
_lives: Final = d.heartbeat_at > db_now() - STALE_S * SECOND
_FELLOWS: Final = select(daemons).where(d.daemon_id != bindparam("daemon_id"), _lives).order_by(d.daemon_id)
_LEAVE: Final = delete(daemons).where(d.daemon_id == bindparam("a_daemon_id"))
_ALONE: Final = delete(daemons)
_FORGET: Final = delete(daemons).where(d.heartbeat_at < db_now() - _FORGOTTEN_S * SECOND)
_me = daemons.alias("me")
_AGREEING: Final = select(func.count()).where(
    _lives,
    d.config_digest == select(_me.c.config_digest).where(_me.c.daemon_id == bindparam("daemon_id")).scalar_subquery(),
)


def beat(c: Connection, daemon_id: str, code: int, config_digest: str) -> tuple[Fellow, ...]:
    """Say that this daemon lives, and by which configuration; the other live ones."""
    asked = {"daemon_id": daemon_id, "code": code, "config_digest": config_digest}
    mine = c.execute(_BEAT, asked).scalar_one()
    c.execute(_FORGET)
    return tuple(
        Fellow(row.daemon_id, row.code, row.config_digest, (row.config_at, row.daemon_id) < (mine, daemon_id))
        for row in c.execute(_FELLOWS, {"daemon_id": daemon_id})
    )


def leave(c: Connection, daemon_id: str) -> None:
    """This daemon stops, and counts no more."""
    c.execute(_LEAVE, {"a_daemon_id": daemon_id})


def forget_all(c: Connection) -> None:
    """For the start of a daemon that is alone: what is there are the dead."""
    c.execute(_ALONE)


def agreeing(c: Connection, daemon_id: str) -> int:
    """How many live daemons go by this one's configuration; itself counts also before its first heartbeat."""
    return max(1, int(c.execute(_AGREEING, {"daemon_id": daemon_id}).scalar_one()))
