"""Named leases for what only one daemon does at a time: the outbox, expiry, the sweep; and for what has one holder, such as a console."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, delete, or_

from bcmetal.decisions import SECOND
from bcmetal.store.tables import leases
from bcmetal.store.time import db_now
from bcmetal.store.upsert import insert

_put = insert(leases).values(
    name=bindparam("name"), owner=bindparam("owner"), epoch=1, until_at=db_now() + bindparam("ttl_us")
)
_TAKE: Final = _put.on_conflict_do_update(
    index_elements=[leases.c.name],
    set_={"owner": _put.excluded.owner, "epoch": leases.c.epoch + 1, "until_at": _put.excluded.until_at},
    where=or_(leases.c.owner == _put.excluded.owner, leases.c.until_at < db_now()),
)


def take(c: Connection, name: str, owner: str, ttl_s: float) -> bool:
    """Take or renew it; False: somebody else has it still."""
    return bool(c.execute(_TAKE, {"name": name, "owner": owner, "ttl_us": int(ttl_s * SECOND)}).rowcount)


_GIVE_BACK: Final = delete(leases).where(leases.c.name == bindparam("a_name"), leases.c.owner == bindparam("an_owner"))


def give_back(c: Connection, name: str, owner: str) -> None:
    """It is free, if it was still this owner's."""
    c.execute(_GIVE_BACK, {"a_name": name, "an_owner": owner})
