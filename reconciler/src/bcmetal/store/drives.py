"""Drives by their own serials: what may hold data, and whose, outlives the node's row. Only a verified erase clears it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, exists, func, select, update

from bcmetal.decisions import Micros
from bcmetal.store.tables import drives
from bcmetal.store.upsert import insert
from bcmetal.store.values import DriveSeen, MarkDrives, SetDrives


@dataclass(frozen=True, slots=True)
class DriveRow:
    serial: str
    model: str | None
    wwn: str | None
    may_hold_data: bool
    holder_tenant: str | None
    shared: bool


_seen = insert(drives)
_SEEN: Final = _seen.on_conflict_do_update(
    index_elements=[drives.c.model_norm, drives.c.serial_norm],
    set_={name: _seen.excluded[name] for name in ("serial", "model", "wwn", "capacity_bytes", "node_id", "last_at")},
)
_GONE: Final = (
    update(drives)
    .where(drives.c.node_id == bindparam("a_node_id"), drives.c.last_at < bindparam("a_now"), ~drives.c.may_hold_data)
    .values(node_id=None)
)
# A WWN that two nodes report is shared storage, which is never written: neither by the one that was looked at later, nor by the other.
_twin = drives.alias("twin")
_SHARED: Final = (
    update(drives)
    .where(
        drives.c.wwn.in_(select(_twin.c.wwn).where(_twin.c.node_id == bindparam("a_node_id"))),
        exists().where(
            _twin.c.wwn == drives.c.wwn,
            _twin.c.node_id.is_not(None),
            _twin.c.node_id != drives.c.node_id,
        ),
    )
    .values(shared=True)
)
_MARK: Final = (
    update(drives)
    .where(drives.c.node_id == bindparam("a_node_id"), drives.c.serial_norm == bindparam("a_serial"))
    .values(
        may_hold_data=bindparam("a_may_hold_data"),
        holder_tenant=func.coalesce(bindparam("a_holder"), drives.c.holder_tenant),
    )
)
_OF_NODE: Final = (
    select(drives).where(drives.c.node_id == bindparam("node_id")).order_by(drives.c.serial_norm, drives.c.model_norm)
)
_LEAVE: Final = update(drives).where(drives.c.node_id == bindparam("a_node_id")).values(node_id=None)


def normal(text: str | None) -> str:
    return " ".join((text or "").split()).casefold()


def see(c: Connection, node_id: str, fact: SetDrives, now: Micros) -> None:
    """The drives now in the machine. One that is new to us may hold data; one that is missing and may hold data stays on record here."""
    for drive in sorted(fact.drives, key=lambda one: (normal(one.model), normal(one.serial))):
        c.execute(_SEEN, _values(node_id, drive, now))
    c.execute(_GONE, {"a_node_id": node_id, "a_now": now})
    c.execute(_SHARED, {"a_node_id": node_id})


def _values(node_id: str, drive: DriveSeen, now: Micros) -> dict[str, Any]:
    return {
        "model_norm": normal(drive.model),
        "serial_norm": normal(drive.serial),
        "serial": drive.serial,
        "model": drive.model,
        "wwn": drive.wwn,
        "capacity_bytes": drive.capacity_bytes,
        "node_id": node_id,
        "may_hold_data": True,
        "shared": False,
        "first_at": now,
        "last_at": now,
    }


def mark(c: Connection, node_id: str, fact: MarkDrives) -> None:
    for serial in sorted(fact.serials):
        c.execute(
            _MARK,
            {
                "a_node_id": node_id,
                "a_serial": normal(serial),
                "a_may_hold_data": fact.may_hold_data,
                "a_holder": fact.holder_tenant,
            },
        )


def of_node(c: Connection, node_id: str) -> tuple[DriveRow, ...]:
    return tuple(
        DriveRow(row.serial, row.model, row.wwn, row.may_hold_data, row.holder_tenant, row.shared)
        for row in c.execute(_OF_NODE, {"node_id": node_id})
    )


def leave(c: Connection, node_id: str) -> None:
    """The node's row goes; what its drives may hold stays known."""
    c.execute(_LEAVE, {"a_node_id": node_id})
