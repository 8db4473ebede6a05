"""What was last seen of a machine: hot rows, kept out of `nodes`, so that a sweep moves no generation and no claim."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, select

from bcmetal.decisions import Micros
from bcmetal.store.tables import sightings
from bcmetal.store.upsert import insert
from bcmetal.store.values import SetSighting

_put = insert(sightings)
_new = _put.excluded
_PUT: Final = _put.on_conflict_do_update(
    index_elements=[sightings.c.node_id],
    set_={
        **{
            name: func.coalesce(_new[name], sightings.c[name])
            for name in ("power", "power_at", "boot_mode", "health", "certificate_fp", "clock_skew_ms")
        },
        "swept_at": _new.swept_at,
    },
)
_GET: Final = select(sightings).where(sightings.c.node_id == bindparam("node_id"))


def note(c: Connection, node_id: str, fact: SetSighting, now: Micros) -> None:
    """What is None was not looked at, and stays as it was."""
    c.execute(
        _PUT,
        {
            "node_id": node_id,
            "power": None if fact.power is None else str(fact.power),
            "power_at": None if fact.power is None else now,
            "boot_mode": None if fact.boot_mode is None else str(fact.boot_mode),
            "health": fact.health,
            "certificate_fp": fact.certificate_fp,
            "clock_skew_ms": fact.clock_skew_ms,
            "swept_at": now,
        },
    )


def get(c: Connection, node_id: str) -> dict[str, Any] | None:
    row = c.execute(_GET, {"node_id": node_id}).one_or_none()
    if row is None:
        return None
    return {name: value for name, value in row._mapping.items() if name != "node_id"}
