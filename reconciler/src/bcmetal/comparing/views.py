"""What of the agent's view of a machine stays the same from one boot to the next."""

from __future__ import annotations

from dataclasses import replace

from bcmetal_agent import wire
from bcmetal_agent.wire_inventory import Inventory as AgentInventory


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
