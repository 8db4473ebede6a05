"""A machine's serial that more than one live node reports: a warning on each of them, and no refusal, for blades of one chassis do so."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, bindparam, exists, select

from bcmetal.store.tables import node_identifiers, nodes
from bcmetal.store.values import SetCondition

REASON: Final = "shared-serial"
SHARED: Final = SetCondition(
    "identity",
    "warning",
    "warning",
    REASON,
    "another node reports the same serial: blades of one chassis may, two machines should not",
)
NOT_SHARED: Final = SetCondition("identity", "ok", "info", "", "")

i = node_identifiers.c
_other = node_identifiers.alias("other")
_live: Final = select(nodes.c.node_id).where(nodes.c.state != "retired")
_OF_NODE: Final = select(i.value_norm).where(i.node_id == bindparam("node_id"), i.kind == "serial", i.usable)
_REPORTERS: Final = (
    select(i.node_id)
    .where(
        i.kind == "serial",
        i.value_norm.in_(bindparam("serials", expanding=True)),
        i.usable,
        i.node_id.in_(_live),
    )
    .distinct()
    .order_by(i.node_id)
)
_SHARED: Final = select(
    exists().where(
        i.node_id == bindparam("node_id"),
        i.node_id.in_(_live),
        i.kind == "serial",
        i.usable,
        _other.c.kind == "serial",
        _other.c.usable,
        _other.c.value_norm == i.value_norm,
        _other.c.node_id != i.node_id,
        _other.c.node_id.in_(_live),
    )
)


def of_node(c: Connection, node_id: str) -> frozenset[str]:
    """The usable serials that it reports, normal."""
    return frozenset(c.execute(_OF_NODE, {"node_id": node_id}).scalars())


def reporters(c: Connection, serials: Collection[str]) -> list[str]:
    """Live nodes that report one of these, in order."""
    return list(c.execute(_REPORTERS, {"serials": sorted(serials)}).scalars()) if serials else []


def is_shared(c: Connection, node_id: str) -> bool:
    """Whether this live node and another one report the same serial."""
    return bool(c.execute(_SHARED, {"node_id": node_id}).scalar_one())
