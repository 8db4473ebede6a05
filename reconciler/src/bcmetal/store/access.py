"""Access to a machine that is no operation of its own, such as an open console: its line in the audit and its event, in one transaction."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, update

from bcmetal.decisions import Micros
from bcmetal.store import audit as audit_rows
from bcmetal.store import outbox
from bcmetal.store.tables import nodes
from bcmetal.store.values import NewAudit, NewEvent

_IN_TURN: Final = (
    update(nodes).where(nodes.c.node_id == bindparam("a_node_id")).values(node_id=nodes.c.node_id)
)  # the row's lock alone, which puts the events of a node in order


def note(c: Connection, audit: NewAudit | None, event: NewEvent, now: Micros) -> None:
    """`audit` None: the refusal of the call stands there already."""
    c.execute(_IN_TURN, {"a_node_id": event.node_id})
    if audit is not None:
        audit_rows.add(c, audit, now)
    outbox.add(c, [event], now)
