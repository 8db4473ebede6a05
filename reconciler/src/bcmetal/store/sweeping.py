"""What the sweep reads and writes: which machines are due for a look, and what was seen of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
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
_with_bmc = nodes.join(bmcs, bmcs.c.bmc_id == nodes.c.bmc_id)
_ANSWERING: Final = (
    ~nodes.c.quiet,
    nodes.c.state != "retired",
    bmcs.c.scheme != "",
    or_(bmcs.c.breaker_until_at.is_(None), bmcs.c.breaker_until_at <= bindparam("now")),
    ~_rejecting,
    ~_rotating,
)
_UNCLAIMED: Final = or_(nodes.c.claim_owner.is_(None), nodes.c.claim_until < db_now())
_DUE: Final = (
    select(nodes.c.node_id)
    .select_from(_with_bmc.outerjoin(sightings_table, sightings_table.c.node_id == nodes.c.node_id))
    .where(
        or_(sightings_table.c.swept_at.is_(None), sightings_table.c.swept_at < bindparam("before")),
        *_ANSWERING,
        _UNCLAIMED,
    )
    .order_by(sightings_table.c.swept_at, nodes.c.node_id)
)
_FREE: Final = (
    select(nodes.c.node_id)
    .select_from(_with_bmc)
    .where(nodes.c.node_id.in_(bindparam("node_ids", expanding=True)), *_ANSWERING, _UNCLAIMED)
    .order_by(nodes.c.node_id)
)
_LISTENED: Final = (
    select(nodes.c.node_id, bmcs.c.bmc_id, bmcs.c.network)
    .select_from(_with_bmc)
    .where(
        bmcs.c.network.in_(bindparam("networks", expanding=True)),
        bmcs.c.family == "redfish",
        bmcs.c.breaker_failures == 0,
        *_ANSWERING,
    )
    .order_by(bmcs.c.bmc_id, nodes.c.node_id)
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


@dataclass(frozen=True, slots=True)
class Listened:
    """A BMC whose events may be listened to, and the nodes behind it."""

    bmc_id: str
    network: str
    node_ids: tuple[str, ...]


def due(c: Connection, before: Micros, now: Micros) -> list[str]:
    """Nodes not seen since `before`, the longest unseen first. Left out: claimed, quiet and retired ones; BMCs that are away, that
    were never reached, that reject our password, or whose password is being changed."""
    return list(c.execute(_DUE, {"before": before, "now": now}).scalars())


def free(c: Connection, node_ids: Sequence[str], now: Micros) -> list[str]:
    """Which of these may be looked at now, by the rules of `due`, whenever they were seen last."""
    return list(c.execute(_FREE, {"node_ids": list(node_ids), "now": now}).scalars())


def listened(c: Connection, networks: Sequence[str], now: Micros) -> list[Listened]:
    """BMCs of these networks that may be listened to: by the rules of `due`, claimed or not, and none that is in the slow lane."""
    rows = c.execute(_LISTENED, {"networks": list(networks), "now": now}).all()
    return [
        Listened(bmc_id, network, tuple(row.node_id for row in of_one))
        for (bmc_id, network), of_one in groupby(rows, key=lambda row: (row.bmc_id, row.network))
    ]


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
