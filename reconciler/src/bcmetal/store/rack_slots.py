"""Power-ons staggered by rack, over all daemons: at most so many in any window."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, func, select, text, update

from bcmetal.decisions import SECOND, Micros
from bcmetal.store.tables import rack_slots
from bcmetal.store.upsert import insert

t = rack_slots.c
_ADD: Final = insert(rack_slots).on_conflict_do_nothing()
_here: Final = (t.site_id == bindparam("a_site"), t.rack == bindparam("a_rack"), t.slot < bindparam("a_per"))
_oldest: Final = (
    select(t.slot)
    .where(*_here, t.taken_at <= bindparam("a_before"))
    .order_by(t.taken_at, t.slot)
    .limit(1)
    .scalar_subquery()
)
_TAKE: Final = (
    update(rack_slots)
    .where(
        t.site_id == bindparam("a_site"),
        t.rack == bindparam("a_rack"),
        t.slot == _oldest,
        t.taken_at <= bindparam("a_before"),
    )
    .values(taken_at=bindparam("a_now"))
)
_LOCK: Final = text("SELECT pg_advisory_xact_lock(1651076464, hashtext(:rack))")
_NEXT: Final = select(func.min(t.taken_at), func.count()).where(*_here)


def take(c: Connection, site: str, rack: str, now: Micros, per: int = 4, window_s: float = 10) -> Micros:
    """`now`: the place is taken, power on. A later time: nothing was taken, ask again then."""
    window = int(window_s * SECOND)
    if c.dialect.name == "postgresql":  # one at a time for a rack: SQLite has one writer anyway
        c.execute(_LOCK, {"rack": f"{site}/{rack}"})
    where = {"a_site": site, "a_rack": rack, "a_per": per}
    _, slots = c.execute(_NEXT, where).one()
    if slots < per:
        never = now - window
        rows = [{"site_id": site, "rack": rack, "slot": slot, "taken_at": never} for slot in range(per)]
        c.execute(_ADD, rows)
    if c.execute(_TAKE, {**where, "a_now": now, "a_before": now - window}).rowcount:
        return now
    first, _ = c.execute(_NEXT, where).one()
    return Micros(max(now + 1, first + window))
