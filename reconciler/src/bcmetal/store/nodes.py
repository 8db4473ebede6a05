"""Nodes: their rows, and the facts that steps find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, or_, select
from sqlalchemy import update as sql_update
from sqlalchemy.exc import IntegrityError

from bcmetal.decisions import Micros
from bcmetal.errors import Conflict, Lost
from bcmetal.store import (
    baselines,
    bmcs,
    conditions,
    drives,
    erasure,
    identifiers,
    inventories,
    jsontext,
    logins,
    outbox,
    rows,
    sealed,
    shared_serials,
    sightings,
    views,
)
from bcmetal.store.node_list import NodeFilter as NodeFilter
from bcmetal.store.node_list import list_page as list_page
from bcmetal.store.tables import baselines as baselines_table
from bcmetal.store.tables import conditions as conditions_table
from bcmetal.store.tables import media as media_table
from bcmetal.store.tables import (
    node_labels,
    node_views,
    nodes,
    operations,
    tombstones,
)
from bcmetal.store.tables import sealed as sealed_table
from bcmetal.store.tables import sightings as sightings_table
from bcmetal.store.upsert import insert as upsert
from bcmetal.store.values import (
    AddErasureRecord,
    DropBaseline,
    DropSealed,
    Emit,
    Fact,
    MarkDrives,
    MoveSealed,
    NewEvent,
    NewNode,
    NodeRow,
    PutSealed,
    SetBmc,
    SetCondition,
    SetDrives,
    SetIdentifiers,
    SetMemo,
    SetNode,
    SetSighting,
    StoreBaseline,
    StoreInventory,
)

# What a caller may write by name. State, generation, claim and due time have functions of their own.
COLUMNS: Final = frozenset(
    {
        *("name", "disks", "system", "desired_power", "not_erased", "profile", "system_path", "fenced_reason"),
        *("maintenance", "maintenance_reason", "maintenance_until", "quiet"),
        *("protected", "protected_until", "protected_reason"),
        *("location_room", "location_rack", "location_unit", "asset_tag", "boot_mac", "root_device", "labels"),
    }
)

_INSERT: Final = upsert(nodes).on_conflict_do_nothing(index_elements=[nodes.c.pool_id, nodes.c.name])
_OWNER: Final = select(nodes.c.tenant_id, nodes.c.pool_id, nodes.c.site_id, nodes.c.bmc_id, nodes.c.state).where(
    nodes.c.node_id == bindparam("node_id")
)
_FIND: Final = (
    select(nodes.c.node_id)
    .where(
        nodes.c.pool_id == bindparam("pool_id"),
        (nodes.c.node_id == bindparam("id_or_name")) | (nodes.c.name == bindparam("id_or_name")),
    )
    .limit(1)
)
_POOLS: Final = select(nodes.c.pool_id, nodes.c.tenant_id).distinct().order_by(nodes.c.pool_id)
_HARDWARE: Final = (
    sql_update(nodes).where(nodes.c.node_id == bindparam("a_node_id")).values(hardware=bindparam("a_hardware"))
)
_DROP_LABELS: Final = delete(node_labels).where(node_labels.c.node_id == bindparam("a_node_id"))
_ADD_LABELS: Final = upsert(node_labels)
_TOMB: Final = upsert(tombstones)
_DELETE: Final = tuple(
    delete(table).where(table.c.node_id == bindparam("a_node_id"))
    for table in (node_views, node_labels, sightings_table, conditions_table, baselines_table, media_table, nodes)
)
_REFUSE_QUEUED: Final = (
    sql_update(operations)
    .where(operations.c.node_id == bindparam("a_node_id"), operations.c.ended_at.is_(None))
    .values(status="refused", ended_at=bindparam("a_now"))
)
_OPERATION_SECRETS: Final = delete(sealed_table).where(
    sealed_table.c.owner_kind == "operation",
    sealed_table.c.owner_id.in_(
        select(operations.c.operation_id).where(operations.c.node_id == bindparam("a_node_id"))
    ),
)
_PROTECTED_PAST: Final = (
    sql_update(nodes)
    .where(nodes.c.protected, nodes.c.protected_until.is_not(None), nodes.c.protected_until <= bindparam("a_now"))
    .values(protected=False, protected_until=None, protected_reason=None, updated_at=bindparam("a_now"))
    .returning(nodes.c.node_id)
)
_TOMBSTONE: Final = select(tombstones).where(tombstones.c.node_id == bindparam("node_id"))


class Owner(NamedTuple):
    """Whose a node is, for its events."""

    tenant_id: str
    pool_id: str
    site_id: str
    bmc_id: str | None
    state: str


def insert(c: Connection, new: NewNode, now: Micros) -> None:
    """A new node, `enrolled`, and its BMC's row, new or shared. Raises Conflict: the name is taken (`field`), or BmcInUse."""
    bmc_id = bmcs.insert_or_share(c, new.bmc_id, new.tenant_id, new.bmc, new.system_path)
    added = c.execute(
        _INSERT,
        {
            "node_id": new.node_id,
            "tenant_id": new.tenant_id,
            "site_id": new.site_id,
            "pool_id": new.pool_id,
            "name": new.name,
            "state": "enrolled",
            "bmc_id": bmc_id,
            "system_path": new.system_path,
            "disks": "foreign",
            "system": "none",
            "location_room": new.location_room,
            "location_rack": new.location_rack,
            "location_unit": new.location_unit,
            "asset_tag": new.asset_tag,
            "boot_mac": new.boot_mac,
            "root_device": jsontext.dump_or_none(new.root_device),
            "created_at": now,
            "updated_at": now,
        },
    )
    if not added.rowcount:
        raise Conflict(f"pool {new.pool_id} has a node named {new.name} already", reason="name-taken", field="name")
    if new.labels:
        set_labels(c, new.node_id, new.labels)
    views.rewrite(c, new.node_id, now)


def get(c: Connection, node_id: str) -> NodeRow | None:
    return rows.node(c, node_id)


def find(c: Connection, pool_id: str, id_or_name: str) -> str | None:
    """The node's id, by its id or its name in this pool."""
    node_id: str | None = c.execute(_FIND, {"pool_id": pool_id, "id_or_name": id_or_name}).scalar_one_or_none()
    return node_id


def pools_in_use(c: Connection) -> dict[str, str]:
    """Pools that have nodes, with the tenant that owns these."""
    return {row.pool_id: row.tenant_id for row in c.execute(_POOLS)}


def owner(c: Connection, node_id: str) -> Owner | None:
    row = c.execute(_OWNER, {"node_id": node_id}).one_or_none()
    return None if row is None else Owner(row.tenant_id, row.pool_id, row.site_id, row.bmc_id, row.state)


def values_of(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns as the table holds them. Raises KeyError for what a caller may not write."""
    unknown = columns.keys() - COLUMNS
    if unknown:
        raise KeyError(f"no column that may be set: {', '.join(sorted(unknown))}")
    values = dict(columns)
    if "root_device" in values:
        values["root_device"] = jsontext.dump_or_none(values["root_device"])
    if "labels" in values:
        values["labels"] = jsontext.dump(dict(values["labels"]))
    return values


def update_columns(
    c: Connection,
    node_id: str,
    columns: Mapping[str, Any],
    now: Micros,
    *,
    extra: Mapping[str, Any] | None = None,
    where: Sequence[Any] = (),
) -> None:
    """One conditional UPDATE; the view is the caller's to rewrite. Raises Lost, Conflict for a taken name, BmcInUse for a taken system."""
    statement = sql_update(nodes).where(nodes.c.node_id == bindparam("a_node_id"), *where)
    values = {**values_of(columns), **(extra or {}), "updated_at": now}
    try:
        changed = c.execute(statement.values(values), {"a_node_id": node_id}).rowcount
    except IntegrityError as error:
        if "system_path" in columns and "name" not in columns:
            raise bmcs.BmcInUse("another node has this BMC and system", reason="bmc-in-use") from error
        raise Conflict("the pool has a node of that name already", reason="name-taken", field="name") from error
    if not changed:
        raise Lost
    if "labels" in columns:
        _index_labels(c, node_id, columns["labels"])


def update(c: Connection, node_id: str, columns: Mapping[str, Any], now: Micros) -> None:
    """Write columns and the view. A change of what an operator specifies goes through `operations.record_instant`."""
    update_columns(c, node_id, columns, now)
    views.rewrite(c, node_id, now)


def named(c: Connection, id_or_name: str) -> list[str]:
    """The ids of all nodes that are called so, in whatever pool."""
    asked = or_(nodes.c.node_id == bindparam("called"), nodes.c.name == bindparam("called"))
    return list(c.execute(select(nodes.c.node_id).where(asked), {"called": id_or_name}).scalars())


def set_labels(c: Connection, node_id: str, labels: Mapping[str, str]) -> None:
    """All labels at once; the view is the caller's to rewrite."""
    c.execute(
        sql_update(nodes).where(nodes.c.node_id == bindparam("a_node_id")).values(labels=jsontext.dump(dict(labels))),
        {"a_node_id": node_id},
    )
    _index_labels(c, node_id, labels)


def _index_labels(c: Connection, node_id: str, labels: Mapping[str, str]) -> None:
    c.execute(_DROP_LABELS, {"a_node_id": node_id})
    if labels:
        c.execute(_ADD_LABELS, [{"node_id": node_id, "key": key, "value": labels[key]} for key in sorted(labels)])


# ---------------------------------------------------------------- facts


def apply(c: Connection, node_id: str, facts: Sequence[Fact], now: Micros) -> None:
    """Write what a step found. Raises identifiers.IdentityHeld, bmcs.BmcInUse; the caller's transaction is then to be rolled back.

    `SetMemo` belongs to an operation, and is written by `claims.save` and `claims.save_side`.
    """
    if not facts:
        return
    owned = owner(c, node_id)
    if owned is None:
        raise Lost
    shown = False
    columns = {key: value for fact in facts if isinstance(fact, SetNode) for key, value in fact.columns.items()}
    if columns:
        update_columns(c, node_id, columns, now)
        shown = True
    for fact in facts:
        if not isinstance(fact, SetNode):
            shown = _APPLY[type(fact)](c, node_id, owned, fact, now) or shown
    if shown:
        _rewrite(c, node_id, owned, facts, now)


def _rewrite(c: Connection, node_id: str, owned: Owner, facts: Iterable[Fact], now: Micros) -> None:
    """The view of the node, and of its neighbours behind the same BMC when that changed."""
    behind = [node_id]
    if owned.bmc_id is not None and any(
        isinstance(fact, SetBmc | MoveSealed | PutSealed | DropSealed) for fact in facts
    ):
        behind = sorted({node_id, *bmcs.nodes_behind(c, owned.bmc_id)})
    for one in behind:
        views.rewrite(c, one, now)


def _apply_bmc(c: Connection, node_id: str, owned: Owner, fact: SetBmc, now: Micros) -> bool:
    if owned.bmc_id is not None:
        bmcs.change(c, owned.bmc_id, fact)
        if fact.columns.get("cred_verified_at") is not None:
            _accepted_for_all(c, owned.bmc_id, now)
    return True


def _accepted_for_all(c: Connection, bmc_id: str, now: Micros) -> None:
    """A password that the BMC accepted is the password of every node behind it."""
    for node_id in bmcs.nodes_behind(c, bmc_id):
        owned = owner(c, node_id)
        if owned is not None:
            _apply_condition(c, node_id, owned, SetCondition("credentials", "ok", "info", "", ""), now)


def _apply_identifiers(c: Connection, node_id: str, owned: Owner, fact: SetIdentifiers, now: Micros) -> bool:
    before = shared_serials.of_node(c, node_id)
    identifiers.set_from(c, node_id, fact, now)
    _settle_serials(c, node_id, before | shared_serials.of_node(c, node_id), now)
    return True


def _settle_serials(c: Connection, node_id: str, serials: frozenset[str], now: Micros) -> None:
    """Warn this node and all that report one of the serials, or let them be; an identity that changed stays what it is."""
    for one in sorted({node_id, *shared_serials.reporters(c, serials)}):
        owned = owner(c, one)
        known = next((found for found in conditions.list(c, one) if found.type == "identity"), None)
        if owned is None or (known is not None and known.status == "error"):
            continue
        if shared_serials.is_shared(c, one):
            changed = _apply_condition(c, one, owned, shared_serials.SHARED, now)
        else:
            changed = known is not None and _apply_condition(c, one, owned, shared_serials.NOT_SHARED, now)
        if changed and one != node_id:
            views.rewrite(c, one, now)


def _apply_inventory(c: Connection, node_id: str, owned: Owner, fact: StoreInventory, now: Micros) -> bool:
    changed = inventories.add(c, node_id, fact, now)
    if changed is not False:
        c.execute(_HARDWARE, {"a_node_id": node_id, "a_hardware": jsontext.dump(inventories.hardware(c, node_id))})
    if changed:
        data: dict[str, Any] = {"inventoryId": fact.inventory_id, "source": fact.source}
        if fact.changes:
            data |= {"changes": list(fact.changes), "more": fact.more}
        _found(c, node_id, owned, "metal.inventory.changed", data, now)
    return changed is not False


def _apply_drives(c: Connection, node_id: str, owned: Owner, fact: SetDrives, now: Micros) -> bool:
    drives.see(c, node_id, fact, now)
    return True


def _apply_marks(c: Connection, node_id: str, owned: Owner, fact: MarkDrives, now: Micros) -> bool:
    drives.mark(c, node_id, fact)
    return True


def _apply_baseline(c: Connection, node_id: str, owned: Owner, fact: StoreBaseline, now: Micros) -> bool:
    baselines.put(c, node_id, fact, now)
    return False


def _apply_no_baseline(c: Connection, node_id: str, owned: Owner, fact: DropBaseline, now: Micros) -> bool:
    baselines.drop(c, node_id)
    return False


def _apply_erasure(c: Connection, node_id: str, owned: Owner, fact: AddErasureRecord, now: Micros) -> bool:
    erasure.add(c, node_id, owned.tenant_id, owned.pool_id, fact, now)
    return False


def _apply_condition(c: Connection, node_id: str, owned: Owner, fact: SetCondition, now: Micros) -> bool:
    if fact == shared_serials.NOT_SHARED and shared_serials.is_shared(c, node_id):
        fact = shared_serials.SHARED  # it is the machine that it was, and its serial is still another's too
    if not conditions.set(c, node_id, fact, now):
        return False
    data = {"type": fact.type, "status": fact.status, "reason": fact.reason, "message": fact.message}
    _found(c, node_id, owned, "metal.condition.changed", data, now)
    return True


def _apply_sighting(c: Connection, node_id: str, owned: Owner, fact: SetSighting, now: Micros) -> bool:
    sightings.note(c, node_id, fact, now)
    return False


def _apply_move(c: Connection, node_id: str, owned: Owner, fact: MoveSealed, now: Micros) -> bool:
    sealed.move(c, fact)
    if fact.accept and fact.slot == logins.ROTATING and fact.to == "current":
        logins.note(c, fact.owner_id, node_id, logins.ROTATED, now, "engine")
    return True


def _apply_put(c: Connection, node_id: str, owned: Owner, fact: PutSealed, now: Micros) -> bool:
    sealed.put(c, [fact.sealed])
    return True


def _apply_drop(c: Connection, node_id: str, owned: Owner, fact: DropSealed, now: Micros) -> bool:
    if fact.owner_id != owned.bmc_id or not bmcs.has_other_live_node(c, fact.owner_id, node_id):
        sealed.drop(c, fact.owner_id)
    return True


def _apply_memo(c: Connection, node_id: str, owned: Owner, fact: SetMemo, now: Micros) -> bool:
    return False


def _apply_emit(c: Connection, node_id: str, owned: Owner, fact: Emit, now: Micros) -> bool:
    outbox.add(c, [_event(node_id, owned, fact.event_id, fact.type, fact.data)], now)
    return False


_APPLY: Final[Mapping[type, Callable[[Connection, str, Owner, Any, Micros], bool]]] = {
    SetBmc: _apply_bmc,
    SetIdentifiers: _apply_identifiers,
    StoreInventory: _apply_inventory,
    SetDrives: _apply_drives,
    MarkDrives: _apply_marks,
    StoreBaseline: _apply_baseline,
    DropBaseline: _apply_no_baseline,
    AddErasureRecord: _apply_erasure,
    SetCondition: _apply_condition,
    SetSighting: _apply_sighting,
    MoveSealed: _apply_move,
    PutSealed: _apply_put,
    DropSealed: _apply_drop,
    SetMemo: _apply_memo,
    Emit: _apply_emit,
}


def _found(c: Connection, node_id: str, owned: Owner, type_: str, data: Mapping[str, Any], now: Micros) -> None:
    """An event about what only the store can see: that a fact differs from the one before."""
    event_id = outbox.derived_id(now, node_id, type_, jsontext.dump(dict(data)))
    outbox.add(c, [_event(node_id, owned, event_id, type_, data)], now)


def _event(node_id: str, owned: Owner, event_id: str, type_: str, data: Mapping[str, Any]) -> NewEvent:
    return NewEvent(event_id, node_id, owned.tenant_id, owned.pool_id, owned.site_id, type_, data)


# ---------------------------------------------------------------- what time does, and the end


def expire_protection(c: Connection, now: Micros) -> list[str]:
    """Protection whose time has come is lifted; the nodes it was on."""
    found = sorted(c.execute(_PROTECTED_PAST, {"a_now": now}).scalars())
    for node_id in found:
        views.rewrite(c, node_id, now)
    return found


def recompute_attention(c: Connection, now: Micros) -> tuple[str, ...]:
    """`needsAttention` of the nodes for which time changed it."""
    found = conditions.wrongly_marked(c, now)
    for node_id in found:
        views.rewrite(c, node_id, now)
    return found


def retired(c: Connection, node_id: str, now: Micros) -> None:
    """A retired node holds neither its identities, its drives nor its BMC's address against anybody."""
    identifiers.free(c, node_id)
    drives.stop_reporting(c, node_id)
    _settle_serials(c, node_id, shared_serials.of_node(c, node_id), now)
    bmc_id = bmcs.of_node(c, node_id)
    if bmc_id is not None:
        bmcs.free(c, bmc_id)


def tombstone_and_delete(c: Connection, node_id: str, reason: str, now: Micros) -> None:
    """The row goes, with what belongs to it alone; history, drives and erasure records stay. Raises Lost when it is gone already."""
    row = rows.node(c, node_id)
    if row is None:
        raise Lost
    c.execute(
        _TOMB,
        {
            "node_id": node_id,
            "tenant_id": row.tenant_id,
            "pool_id": row.pool_id,
            "name": row.name,
            "reason": reason,
            "doc": jsontext.dump(views.read(c, [node_id])[0].doc),
            "at": now,
        },
    )
    serials = shared_serials.of_node(c, node_id)
    identifiers.forget(c, node_id)
    drives.leave(c, node_id)
    c.execute(_OPERATION_SECRETS, {"a_node_id": node_id})
    c.execute(_REFUSE_QUEUED, {"a_node_id": node_id, "a_now": now})
    for statement in _DELETE:
        c.execute(statement, {"a_node_id": node_id})
    _settle_serials(c, node_id, serials, now)
    if row.bmc is not None:
        bmcs.free(c, row.bmc.bmc_id)
        bmcs.drop_unused(c, row.bmc.bmc_id)


def tombstone(c: Connection, node_id: str) -> dict[str, Any] | None:
    """What is left of a removed node: tenant_id, pool_id, name, reason, at, and its last view under `doc`."""
    row = c.execute(_TOMBSTONE, {"node_id": node_id}).one_or_none()
    return None if row is None else {**row._mapping, "doc": jsontext.load(row.doc)}
