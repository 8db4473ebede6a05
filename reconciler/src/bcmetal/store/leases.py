"""Named leases for what only one daemon does at a time: the outbox, expiry, the sweep."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, or_

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
