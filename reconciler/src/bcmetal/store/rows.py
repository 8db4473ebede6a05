"""Reading whole rows: a node with its BMC, an operation, and the facts that `decide` wants."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, exists, or_, select

from bcmetal.decisions import Micros, NodeFacts
from bcmetal.states import FAILED, Disks, State, System, Verb
from bcmetal.store import bmcs, identifiers, jsontext
from bcmetal.store.tables import bmcs as bmcs_table
from bcmetal.store.tables import drive_reports, drives, nodes
from bcmetal.store.values import NodeRow, OperationRow

# `serial_of` and this feed the facts; both are also kept beside the stored view.
_anothers: Final = and_(
    drives.c.may_hold_data, drives.c.holder_tenant.is_not(None), drives.c.holder_tenant != nodes.c.tenant_id
)
held_by_other: Final = or_(
    exists().where(drives.c.node_id == nodes.c.node_id, _anothers).correlate(nodes),
    exists()
    .where(
        drive_reports.c.node_id == nodes.c.node_id,
        drive_reports.c.model_norm == drives.c.model_norm,
        drive_reports.c.serial_norm == drives.c.serial_norm,
        _anothers,
    )
    .correlate(nodes),
).label("held_by_other")
NODE: Final = (
    select(nodes, held_by_other, *bmcs.prefixed())
    .select_from(nodes.outerjoin(bmcs_table, nodes.c.bmc_id == bmcs_table.c.bmc_id))
    .where(nodes.c.node_id == bindparam("node_id"))
)


def facts_from(row: Row[Any], serial: str | None, scheme: str | None, held_by_another: bool) -> NodeFacts:
    state = State(row.state)
    failed = state in FAILED
    return NodeFacts(
        node_id=row.node_id,
        state=state,
        disks=Disks(row.disks),
        system=System(row.system),
        serial=serial,
        bmc_scheme=scheme or None,
        maintenance=row.maintenance,
        quiet=row.quiet,
        protected=row.protected,
        protected_until=row.protected_until,
        protected_reason=row.protected_reason,
        fenced_reason=row.fenced_reason,
        not_erased=row.not_erased,
        held_by_another_tenant=bool(held_by_another),
        failed_verb=Verb(row.failed_verb) if failed and row.failed_verb else None,
        failed_origin=State(row.failed_origin) if failed and row.failed_origin else None,
    )


def node(c: Connection, node_id: str) -> NodeRow | None:
    row = c.execute(NODE, {"node_id": node_id}).one_or_none()
    return None if row is None else node_from(c, row)


def node_from(c: Connection, row: Row[Any]) -> NodeRow:
    found = identifiers.of_node(c, row.node_id)
    bmc = bmcs.from_row(row, "b_") if row.b_bmc_id is not None else None
    return NodeRow(
        facts=facts_from(row, identifiers.serial_of(found), bmc.scheme if bmc else None, row.held_by_other),
        tenant_id=row.tenant_id,
        site_id=row.site_id,
        pool_id=row.pool_id,
        name=row.name,
        generation=row.generation,
        bmc=bmc,
        system_path=row.system_path,
        desired_power=row.desired_power,
        location_room=row.location_room,
        location_rack=row.location_rack,
        location_unit=row.location_unit,
        asset_tag=row.asset_tag,
        boot_mac=row.boot_mac,
        root_device=jsontext.load_or_none(row.root_device),
        labels=jsontext.load(row.labels),
        identifiers=found,
        operation_id=row.operation_id,
        last_error=jsontext.load_or_none(row.last_error),
        maintenance_reason=row.maintenance_reason,
        maintenance_until=row.maintenance_until,
        profile=row.profile,
        created_at=Micros(row.created_at),
        updated_at=Micros(row.updated_at),
    )


def operation_from(row: Row[Any]) -> OperationRow:
    return OperationRow(
        operation_id=row.operation_id,
        node_id=row.node_id,
        tenant_id=row.tenant_id,
        kind=row.kind,
        verb=row.verb,
        status=row.status,
        origin_state=row.origin_state,
        input=jsontext.load(row.input),
        by=row.by,
        step=row.step,
        step_attempt=row.step_attempt,
        backs=row.backs,
        touched=row.touched,
        abort=row.abort_at is not None,
        cleaning=row.cleaning,
        wake_at=row.wake_at,
        asked_wait_us=row.asked_wait_us,
        counted_at=row.counted_at,
        budget_us=row.budget_us,
        budget_used_us=row.budget_used_us,
        waiting_for=row.waiting_for,
        waiting_since=row.waiting_since_at,
        progress=row.progress,
        error=jsontext.load_or_none(row.error),
        memo=jsontext.load(row.memo),
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
