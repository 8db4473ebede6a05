"""The two views of a machine as plain documents: the BMC's read back from the store, and of the agent's what stays the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from bcmetal_agent import wire
from bcmetal_agent.wire_inventory import Inventory as AgentInventory
from bcmetal_drivers.capabilities import BmcInfo, BootMode, Drive, Identity, Inventory

T = TypeVar("T")


def bmc_inventory(doc: Mapping[str, Any]) -> Inventory:
    """From the document that `inspect` stored (`asdict` of the driver's inventory). Fields of another version are left out."""
    known = _picked(Inventory, doc)
    known["identity"] = Identity(**_picked(Identity, doc.get("identity") or {}, tuples=("macs",)))
    known["bmc"] = BmcInfo(**_picked(BmcInfo, doc.get("bmc") or {}))
    known["drives"] = tuple(Drive(**_picked(Drive, one)) for one in doc.get("drives") or ())
    known["boot_mode"] = BootMode(doc["boot_mode"]) if doc.get("boot_mode") else None
    for name in ("cpus", "dimms", "nics", "gpus", "capabilities"):
        known[name] = tuple(doc.get(name) or ())
    return Inventory(**known)


def _picked(kind: type[T], doc: Mapping[str, Any], tuples: tuple[str, ...] = ()) -> dict[str, Any]:
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return {name: tuple(value) if name in tuples else value for name, value in doc.items() if name in names}


def stable(found: AgentInventory) -> wire.Json:
    """What of an inventory is the machine's, and not of this boot: two of them differ where something was changed, added or broken."""
    disks = tuple(replace(one, name="", health_detail={}) for one in found.disks)
    nics = tuple(
        replace(one, name="", mac=None, speed_mbps=None, carrier=None, addresses=(), neighbour=None)
        for one in found.nics
    )
    cpus = tuple(replace(one, flags=()) for one in found.cpus)
    pci = tuple(replace(one, driver=None, link_speed=None) for one in found.pci)
    numa = tuple(replace(one, memory_bytes=None) for one in found.numa)
    memory = None if found.memory_bytes is None else round(found.memory_bytes / 2**28) * 2**28
    return wire.to_doc(
        replace(
            found,
            disks=tuple(sorted(disks, key=lambda one: (one.serial or "", one.wwn or "", one.by_path or ""))),
            nics=tuple(sorted(nics, key=lambda one: (one.permanent_mac or "", one.pci or ""))),
            cpus=cpus,
            pci=pci,
            numa=numa,
            memory_bytes=memory,
            kernel=None,
            complaints=(),
            notes={},
        )
    )
