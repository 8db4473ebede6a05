"""What the sweep reads and writes: which machines are due for a look, and what was seen of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, or_, select, update

from bcmetal.decisions import Micros
from bcmetal.store import nodes as node_rows
from bcmetal.store import sightings
from bcmetal.store.logins import ROTATING
from bcmetal.store.tables import bmcs, conditions, nodes, sealed
from bcmetal.store.tables import sightings as sightings_table
from bcmetal.store.time import db_now
from bcmetal.store.values import Fact, SetSighting

_rejecting = (
    select(conditions.c.node_id)
    .where(conditions.c.node_id == nodes.c.node_id, conditions.c.type == "credentials", conditions.c.status == "error")
    .exists()
)
_rotating = (
    select(sealed.c.owner_id)
    .where(sealed.c.owner_kind == "bmc", sealed.c.owner_id == bmcs.c.bmc_id, sealed.c.slot == ROTATING)
    .exists()
)
_DUE: Final = (
    select(nodes.c.node_id)
    .select_from(
        nodes.join(bmcs, bmcs.c.bmc_id == nodes.c.bmc_id).outerjoin(
            sightings_table, sightings_table.c.node_id == nodes.c.node_id
        )
    )
    .where(
        or_(sightings_table.c.swept_at.is_(None), sightings_table.c.swept_at < bindparam("before")),
        ~nodes.c.quiet,
        nodes.c.state != "retired",
        bmcs.c.scheme != "",
        or_(nodes.c.claim_owner.is_(None), nodes.c.claim_until < db_now()),
        or_(bmcs.c.breaker_until_at.is_(None), bmcs.c.breaker_until_at <= bindparam("now")),
        ~_rejecting,
        ~_rotating,
    )
    .order_by(sightings_table.c.swept_at, nodes.c.node_id)
)

_HOLD: Final = (
    update(nodes)
    .where(
        nodes.c.node_id == bindparam("a_node_id"),
        nodes.c.updated_at <= bindparam("a_began"),
        or_(nodes.c.claim_owner.is_(None), nodes.c.claim_until < db_now()),
    )
    .values(node_id=nodes.c.node_id)  # no change: the row's lock is what is wanted
)


def due(c: Connection, before: Micros, now: Micros) -> list[str]:
    """Nodes not seen since `before`, the longest unseen first. Left out: claimed, quiet and retired ones; BMCs that are away, that
    were never reached, that reject our password, or whose password is being changed."""
    return list(c.execute(_DUE, {"before": before, "now": now}).scalars())


def swept(c: Connection, node_id: str, facts: Sequence[Fact], now: Micros, began: Micros | None = None) -> bool:
    """Facts of a look without a claim: sightings, conditions, the breaker.

    False, and nothing was written: the node is claimed or gone, or was worked on since the look `began`, so that the look is older than
    what is stored.
    """
    if not c.execute(_HOLD, {"a_node_id": node_id, "a_began": now if began is None else began}).rowcount:
        return False
    sightings.note(c, node_id, SetSighting(), now)
    node_rows.apply(c, node_id, facts, now)
    return True
