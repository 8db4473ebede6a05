"""Single values of the whole database by name."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, select, update

from bcmetal.store.tables import bmcs, meta
from bcmetal.store.upsert import insert

RECOVERY: Final = "vault-recovery"  # the id of the vault's key whose recovery was exercised
_put = insert(meta)
_PUT: Final = _put.on_conflict_do_update(index_elements=[meta.c.name], set_={"value": _put.excluded.value})
_ADD: Final = insert(meta).on_conflict_do_nothing()
_GET: Final = select(meta.c.value).where(meta.c.name == bindparam("a_name"))
_HELD: Final = select(bmcs.c.bmc_id)
_TAKE_OVER: Final = (
    update(meta)
    .where(meta.c.name == bindparam("a_name"), meta.c.value.not_in(_HELD))
    .values(value=bindparam("a_value"))
)


def get(c: Connection, name: str) -> str | None:
    found: str | None = c.execute(_GET, {"a_name": name}).scalar_one_or_none()
    return found


def put(c: Connection, name: str, value: str) -> None:
    c.execute(_PUT, {"name": name, "value": value})


def hold(c: Connection, name: str, bmc_id: str) -> bool:
    """Whether this BMC has what only one may have; a BMC that is forgotten has nothing any more."""
    c.execute(_ADD, {"name": name, "value": bmc_id})
    c.execute(_TAKE_OVER, {"a_name": name, "a_value": bmc_id})
    return get(c, name) == bmc_id
