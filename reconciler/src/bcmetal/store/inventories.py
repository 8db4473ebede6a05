"""What a machine is made of, each time it was found different."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from bcmetal.decisions import Micros
from bcmetal.store import jsontext
from bcmetal.store.tables import inventories
from bcmetal.store.values import Json, StoreInventory


@dataclass(frozen=True, slots=True)
class InventoryRow:
    inventory_id: str
    source: str
    taken_at: Micros
    digest: str
    sections: Json
    doc: Json


_ADD: Final = insert(inventories)
_LATEST: Final = (
    select(inventories)
    .where(inventories.c.node_id == bindparam("node_id"), inventories.c.source == bindparam("source"))
    .order_by(inventories.c.taken_at.desc(), inventories.c.inventory_id.desc())
    .limit(1)
)
_SINCE: Final = (
    select(inventories)
    .where(inventories.c.node_id == bindparam("node_id"), inventories.c.taken_at >= bindparam("since"))
    .order_by(inventories.c.taken_at.desc(), inventories.c.inventory_id.desc())
    .limit(bindparam("limit"))
)


_RENEW: Final = (
    update(inventories)
    .where(inventories.c.inventory_id == bindparam("a_inventory_id"))
    .values(sections=bindparam("a_sections"), doc=bindparam("a_doc"))
)


def add(c: Connection, node_id: str, fact: StoreInventory, now: Micros) -> bool | None:
    """False: as before, but for what changes with each look. None: the first one. True: it differs from the last."""
    before = c.execute(_LATEST, {"node_id": node_id, "source": fact.source}).one_or_none()
    if before is not None and before.digest == fact.digest:
        sections, doc = jsontext.dump(dict(fact.sections)), jsontext.dump(dict(fact.doc))
        c.execute(_RENEW, {"a_inventory_id": before.inventory_id, "a_sections": sections, "a_doc": doc})
        return False
    c.execute(
        _ADD,
        {
            "inventory_id": fact.inventory_id,
            "node_id": node_id,
            "source": fact.source,
            "taken_at": now,
            "digest": fact.digest,
            "sections": jsontext.dump(dict(fact.sections)),
            "doc": jsontext.dump(dict(fact.doc)),
        },
    )
    return None if before is None else True


def latest(c: Connection, node_id: str, source: str = "bmc") -> InventoryRow | None:
    row = c.execute(_LATEST, {"node_id": node_id, "source": source}).one_or_none()
    return None if row is None else _row(row)


def since(c: Connection, node_id: str, since_at: Micros, limit: int = 50) -> list[InventoryRow]:
    """Newest first, of all sources."""
    return [_row(row) for row in c.execute(_SINCE, {"node_id": node_id, "since": since_at, "limit": limit})]


def hardware(c: Connection, node_id: str) -> dict[str, Any]:
    """What the view shows: as the BMC tells it, and what a BMC does not tell, as the agent saw it."""
    told, seen = latest(c, node_id, "bmc"), latest(c, node_id, "agent")
    shown = summary({} if told is None else told.doc)
    if seen is None:
        return shown
    inside = _seen(seen.doc)
    return {name: value or inside[name] for name, value in shown.items()}


def _seen(doc: Mapping[str, Any]) -> dict[str, Any]:
    """The same of the agent's inventory, which has the names of the wire."""
    board, firmware = doc.get("board") or {}, doc.get("firmware") or {}
    disks = [disk for disk in doc.get("disks") or () if not (disk.get("virtualMedium") or disk.get("removable"))]
    cpus = doc.get("cpus") or ()
    return {
        "manufacturer": board.get("maker"),
        "model": board.get("product"),
        "cpus": len(cpus),
        "cpuModel": next((cpu.get("model") for cpu in cpus if cpu.get("model")), None),
        "memoryBytes": doc.get("memoryBytes"),
        "drives": len(disks),
        "diskBytes": sum(disk.get("sizeBytes") or 0 for disk in disks),
        "nics": len(doc.get("nics") or ()),
        "gpus": len(doc.get("gpus") or ()),
        "tpm": doc.get("tpm") is not None,
        "bootMode": firmware.get("bootMode"),
        "secureBoot": firmware.get("secureBoot"),
    }


def summary(doc: Mapping[str, Any]) -> dict[str, Any]:
    """Of a BMC's inventory: counts and sums, and the machine's own name for itself."""
    identity = doc.get("identity") or {}
    drives = doc.get("drives") or ()
    cpus = doc.get("cpus") or ()
    return {
        "manufacturer": identity.get("manufacturer"),
        "model": identity.get("model"),
        "cpus": len(cpus) or None,  # a machine without any there is none: the BMC tells of none
        "cpuModel": next((cpu.get("model") for cpu in cpus if cpu.get("model")), None),
        "memoryBytes": doc.get("memory_bytes"),
        "drives": len(drives),
        "diskBytes": sum(drive.get("capacity_bytes") or 0 for drive in drives),
        "nics": len(doc.get("nics") or ()),
        "gpus": len(doc.get("gpus") or ()),
        "tpm": bool(doc.get("tpm")),
        "bootMode": doc.get("boot_mode"),
        "secureBoot": doc.get("secure_boot"),
    }


def _row(row: Row[Any]) -> InventoryRow:
    return InventoryRow(
        inventory_id=row.inventory_id,
        source=row.source,
        taken_at=Micros(row.taken_at),
        digest=row.digest,
        sections=jsontext.load(row.sections),
        doc=jsontext.load(row.doc),
    )
