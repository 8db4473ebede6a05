"""What names a machine: UUIDs and MACs are exclusive to one live node in the whole database; serials and SKUs are not."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, bindparam, delete, exists, select

from bcmetal.decisions import Micros
from bcmetal.errors import Conflict
from bcmetal.store.tables import identities, node_identifiers
from bcmetal.store.upsert import insert
from bcmetal.store.values import Identifier, SetIdentifiers

EXCLUSIVE: Final = frozenset({"uuid", "mac"})


class IdentityHeld(Conflict):
    """Another node holds this machine's identity."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"another node holds this machine's {kind}", reason="identity-conflict", kind=kind)
        self.kind = kind


_OF_NODE: Final = (
    select(node_identifiers)
    .where(node_identifiers.c.node_id == bindparam("node_id"))
    .order_by(node_identifiers.c.kind, node_identifiers.c.source, node_identifiers.c.value_norm)
)
_DROP: Final = delete(node_identifiers).where(
    node_identifiers.c.node_id == bindparam("a_node_id"), node_identifiers.c.source == bindparam("a_source")
)
_ADD: Final = insert(node_identifiers).on_conflict_do_nothing()
_hold = insert(identities)
_HOLD: Final = _hold.on_conflict_do_update(
    index_elements=[identities.c.kind, identities.c.value_norm],
    set_={"node_id": _hold.excluded.node_id},
    where=identities.c.node_id == _hold.excluded.node_id,
)
_LET_GO: Final = delete(identities).where(
    identities.c.node_id == bindparam("a_node_id"),
    ~exists().where(
        node_identifiers.c.node_id == identities.c.node_id,
        node_identifiers.c.kind == identities.c.kind,
        node_identifiers.c.value_norm == identities.c.value_norm,
        node_identifiers.c.usable,
    ),
)
_HOLDERS: Final = select(identities).where(identities.c.value_norm.in_(bindparam("values", expanding=True)))
_FREE: Final = delete(identities).where(identities.c.node_id == bindparam("a_node_id"))
_FORGET: Final = delete(node_identifiers).where(node_identifiers.c.node_id == bindparam("a_node_id"))


def of_node(c: Connection, node_id: str) -> tuple[Identifier, ...]:
    return tuple(
        Identifier(row.kind, row.value_norm, row.raw, row.source, row.usable)
        for row in c.execute(_OF_NODE, {"node_id": node_id})
    )


def holders(c: Connection, said: Collection[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Kind and live node of the exclusive ones (uuid, mac) among these kinds and normal values."""
    values = sorted({value for _, value in said})
    if not values:
        return ()
    found = c.execute(_HOLDERS, {"values": values})
    return tuple(sorted((row.kind, row.node_id) for row in found if (row.kind, row.value_norm) in said))


def set_from(c: Connection, node_id: str, fact: SetIdentifiers, now: Micros) -> None:
    """Replace what one source said. Raises IdentityHeld, naming the kind and never the other node."""
    c.execute(_DROP, {"a_node_id": node_id, "a_source": fact.source})
    rows = [
        {
            "node_id": node_id,
            "kind": one.kind,
            "value_norm": one.value_norm,
            "source": fact.source,
            "raw": one.raw,
            "usable": one.usable,
            "seen_at": now,
        }
        for one in fact.identifiers
    ]
    if rows:
        c.execute(_ADD, rows)
    held = sorted({(i.kind, i.value_norm) for i in fact.identifiers if i.usable and i.kind in EXCLUSIVE})
    for kind, value in held:  # in one order for everybody, so that two rivals do not deadlock
        if not c.execute(_HOLD, {"kind": kind, "value_norm": value, "node_id": node_id}).rowcount:
            raise IdentityHeld(kind)
    c.execute(_LET_GO, {"a_node_id": node_id})


def free(c: Connection, node_id: str) -> None:
    """A retired node holds its identities no longer; what is known of them stays."""
    c.execute(_FREE, {"a_node_id": node_id})


def forget(c: Connection, node_id: str) -> None:
    c.execute(_FREE, {"a_node_id": node_id})
    c.execute(_FORGET, {"a_node_id": node_id})


def serial_of(found: tuple[Identifier, ...]) -> str | None:
    """A usable serial as the machine spells it."""
    return raw_of("serial", found)


def raw_of(kind: str, found: tuple[Identifier, ...]) -> str | None:
    """A usable identifier of this kind as its source spells it: the BMC's before the agent's before the operator's."""
    order = {"bmc": 0, "agent": 1, "operator": 2}
    usable = [one for one in found if one.kind == kind and one.usable]
    usable.sort(key=lambda one: order.get(one.source, 9))
    return usable[0].raw if usable else None
