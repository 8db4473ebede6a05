"""Lists of nodes, page by page, by what an admin remembers of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select, and_, exists, func, or_, select

from bcmetal.states import State
from bcmetal.store.tables import bmcs, conditions, node_identifiers, node_labels, nodes


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """`pool_ids` are those that the caller may see. `query` is part of a name, or a serial, MAC or BMC address as it begins."""

    pool_ids: Sequence[str]
    state: State | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    query: str | None = None
    condition: str | None = None
    needs_attention: bool | None = None


def list_page(c: Connection, wanted: NodeFilter, limit: int, cursor: str | None = None) -> tuple[list[str], str | None]:
    """Node ids in the order of their making, and the next page's cursor; None: that was the last page."""
    found = select(nodes.c.node_id).where(nodes.c.pool_id.in_(list(wanted.pool_ids)))
    if cursor is not None:
        found = found.where(nodes.c.node_id > cursor)
    found = _filtered(found, wanted).order_by(nodes.c.node_id).limit(limit + 1)
    ids = list(c.execute(found).scalars())
    return ids[:limit], (ids[limit - 1] if len(ids) > limit else None)


def _filtered(found: Select[Any], wanted: NodeFilter) -> Select[Any]:
    if wanted.state is not None:
        found = found.where(nodes.c.state == wanted.state.value)
    for key, value in sorted(wanted.labels.items()):
        found = found.where(
            exists().where(
                node_labels.c.node_id == nodes.c.node_id, node_labels.c.key == key, node_labels.c.value == value
            )
        )
    if wanted.condition is not None:
        found = found.where(
            exists().where(conditions.c.node_id == nodes.c.node_id, conditions.c.type == wanted.condition)
        )
    if wanted.needs_attention is not None:
        found = found.where(nodes.c.needs_attention.is_(wanted.needs_attention))
    if wanted.query:
        found = found.where(_matches(wanted.query.strip()))
    return found


def _matches(query: str) -> Any:
    """A MAC may be typed with dashes or dots, or with none at all."""
    low = query.casefold()
    bare = "".join(char for char in low if char.isalnum())
    value = node_identifiers.c.value_norm
    identified = or_(
        func.lower(value).startswith(low, autoescape=True),
        func.replace(func.lower(value), ":", "").startswith(bare, autoescape=True) if bare else value == low,
    )
    return or_(
        nodes.c.node_id == query,
        nodes.c.name.contains(low, autoescape=True),
        and_(nodes.c.boot_mac.is_not(None), func.lower(nodes.c.boot_mac) == low),
        exists().where(
            node_identifiers.c.node_id == nodes.c.node_id,
            node_identifiers.c.usable,
            identified,
        ),
        exists().where(
            bmcs.c.bmc_id == nodes.c.bmc_id,
            func.lower(bmcs.c.host).startswith(low.strip("[]"), autoescape=True),
        ),
    )
