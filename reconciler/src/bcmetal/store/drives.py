"""Drives by their own serials: what may hold data, and whose, outlives the node's row. Only a verified erase clears it.

A drive has one row, and its `node_id` is the node that saw it last. Which nodes see it now is in `drive_reports`: a drive that more than
one live node reports, by its model and serial or by its WWN, is shared storage, and never written by any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, delete, distinct, exists, func, or_, select, tuple_, update

from bcmetal.decisions import Micros
from bcmetal.store.tables import drive_reports, drives, nodes
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


d = drives.c
Key = tuple[str, str]  # model and serial, normal

_seen = insert(drives)
_SEEN: Final = _seen.on_conflict_do_update(
    index_elements=[d.model_norm, d.serial_norm],
    set_={name: _seen.excluded[name] for name in ("serial", "model", "wwn", "capacity_bytes", "node_id", "last_at")},
)
_GONE: Final = (
    update(drives).where(d.node_id == bindparam("a_node_id"), d.last_at < bindparam("a_now"), ~d.may_hold_data)
).values(node_id=None)
_reported: Final = drive_reports.alias("reported")
_live: Final = select(nodes.c.node_id).where(nodes.c.state != "retired")
_own: Final = drive_reports.alias("own")
_by_key: Final = (
    select(func.count(distinct(_reported.c.node_id)))
    .where(
        _reported.c.model_norm == d.model_norm, _reported.c.serial_norm == d.serial_norm, _reported.c.node_id.in_(_live)
    )
    .correlate(drives)
    .scalar_subquery()
)
_by_wwn: Final = (
    select(func.count(distinct(_reported.c.node_id)))
    .where(
        _reported.c.wwn_norm.in_(
            select(_own.c.wwn_norm)
            .where(_own.c.model_norm == d.model_norm, _own.c.serial_norm == d.serial_norm, _own.c.wwn_norm.is_not(None))
            .correlate(drives)
        ),
        _reported.c.node_id.in_(_live),
    )
    .correlate(drives)
    .scalar_subquery()
)
_is_shared: Final = or_(_by_key > 1, _by_wwn > 1)
_this: Final = and_(d.model_norm == bindparam("a_model"), d.serial_norm == bindparam("a_serial"))
_SHARE: Final = update(drives).where(_this, d.shared != _is_shared).values(shared=_is_shared)
_TWINS: Final = select(_own.c.model_norm, _own.c.serial_norm).where(_own.c.wwn_norm == bindparam("a_wwn"))
_LEFT_TO: Final = (  # what this node sees no more, and another does, is the other's
    update(drives)
    .where(_this, d.node_id == bindparam("a_node_id"))
    .values(
        node_id=func.coalesce(
            select(func.min(_reported.c.node_id))
            .where(
                _reported.c.model_norm == d.model_norm,
                _reported.c.serial_norm == d.serial_norm,
                _reported.c.node_id.in_(_live),
            )
            .correlate(drives)
            .scalar_subquery(),
            d.node_id,
        )
    )
)
_REPORTS: Final = select(drive_reports).where(drive_reports.c.node_id == bindparam("node_id"))
_DROP_REPORTS: Final = delete(drive_reports).where(drive_reports.c.node_id == bindparam("a_node_id"))
_REPORT: Final = insert(drive_reports).on_conflict_do_nothing()
_ELSEWHERE: Final = select(
    exists().where(
        or_(
            and_(_reported.c.model_norm == bindparam("model"), _reported.c.serial_norm == bindparam("serial")),
            _reported.c.wwn_norm == bindparam("wwn"),
        ),
        _reported.c.node_id != bindparam("node_id"),
        _reported.c.node_id.in_(_live),
    )
)
_keys_of_node: Final = (
    select(d.model_norm, d.serial_norm)
    .where(d.node_id == bindparam("a_node_id"))
    .union(
        select(drive_reports.c.model_norm, drive_reports.c.serial_norm).where(
            drive_reports.c.node_id == bindparam("a_node_id")
        )
    )
    .subquery("keys_of_node")
)
_of_node: Final = tuple_(d.model_norm, d.serial_norm).in_(
    select(_keys_of_node.c.model_norm, _keys_of_node.c.serial_norm)
)
_MARK: Final = (
    update(drives)
    .where(d.serial_norm == bindparam("a_serial"), _of_node)
    .values(
        may_hold_data=bindparam("a_may_hold_data"),
        holder_tenant=func.coalesce(bindparam("a_holder"), d.holder_tenant),
    )
)
_OF_NODE: Final = select(drives).where(_of_node).order_by(d.serial_norm, d.model_norm)
_LEAVE: Final = update(drives).where(d.node_id == bindparam("a_node_id")).values(node_id=None)


def normal(text: str | None) -> str:
    return " ".join((text or "").split()).casefold()


def normal_wwn(text: str | None) -> str | None:
    """A WWN as it is compared; None where it tells nothing, such as all zeros."""
    digits = "".join(char for char in (text or "").casefold() if char.isalnum())
    for prefix in ("naa", "eui", "0x"):
        digits = digits.removeprefix(prefix)
    return digits if len(set(digits)) > 1 else None


def see(c: Connection, node_id: str, fact: SetDrives, now: Micros) -> None:
    """The drives now in the machine. One that is new to us may hold data; one that is missing and may hold data stays on record here."""
    before = _reports(c, node_id)
    seen = sorted(fact.drives, key=lambda one: (normal(one.model), normal(one.serial)))
    c.execute(_DROP_REPORTS, {"a_node_id": node_id})
    if seen:
        c.execute(_REPORT, [_report(node_id, drive) for drive in seen])
    for drive in seen:  # its row's lock lets the later of two nodes see the report of the earlier one
        c.execute(_SEEN, _values(node_id, drive, now))
    c.execute(_GONE, {"a_node_id": node_id, "a_now": now})
    _settle(c, node_id, before, _reports(c, node_id))


def stop_reporting(c: Connection, node_id: str) -> None:
    """A node that retired or goes shares its drives with nobody any more."""
    before = _reports(c, node_id)
    c.execute(_DROP_REPORTS, {"a_node_id": node_id})
    _settle(c, node_id, before, {})


def _settle(c: Connection, node_id: str, before: dict[Key, str | None], after: dict[Key, str | None]) -> None:
    """Whose a drive is that this node sees no more, and what is shared: of all drives that it saw or sees, and of their twins by WWN."""
    lost = [{"a_node_id": node_id, "a_model": model, "a_serial": serial} for model, serial in before.keys() - after]
    keys = {*before, *after}
    for wwn in sorted({wwn for wwn in (*before.values(), *after.values()) if wwn is not None}):
        keys.update((row.model_norm, row.serial_norm) for row in c.execute(_TWINS, {"a_wwn": wwn}))
    for one in sorted(lost, key=lambda one: (one["a_model"], one["a_serial"])):
        c.execute(_LEFT_TO, one)
    for model, serial in sorted(keys):
        c.execute(_SHARE, {"a_model": model, "a_serial": serial})


def _reports(c: Connection, node_id: str) -> dict[Key, str | None]:
    return {(row.model_norm, row.serial_norm): row.wwn_norm for row in c.execute(_REPORTS, {"node_id": node_id})}


def _report(node_id: str, drive: DriveSeen) -> dict[str, str | None]:
    return {
        "node_id": node_id,
        "model_norm": normal(drive.model),
        "serial_norm": normal(drive.serial),
        "wwn_norm": normal_wwn(drive.wwn),
    }


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
    """Those that it reports, also where another node saw them later, and those that were last seen in it."""
    return tuple(
        DriveRow(row.serial, row.model, row.wwn, row.may_hold_data, row.holder_tenant, row.shared)
        for row in c.execute(_OF_NODE, {"a_node_id": node_id})
    )


def seen_elsewhere(c: Connection, node_id: str, shown: Sequence[DriveSeen]) -> tuple[str, ...]:
    """Serials of those drives that another live node reports too, by model and serial or by WWN."""
    return tuple(
        drive.serial
        for drive in shown
        if c.execute(
            _ELSEWHERE,
            {
                "node_id": node_id,
                "model": normal(drive.model),
                "serial": normal(drive.serial),
                "wwn": normal_wwn(drive.wwn),
            },
        ).scalar_one()
    )


def leave(c: Connection, node_id: str) -> None:
    """The node's row goes; what its drives may hold stays known."""
    stop_reporting(c, node_id)
    c.execute(_LEAVE, {"a_node_id": node_id})
