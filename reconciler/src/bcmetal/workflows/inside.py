"""Steps that look at a machine from inside, by the agent: its inventory kept, its identity and its BMC's view compared, its disks known."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bcmetal.comparing.differences import differences
from bcmetal.comparing.judging import own_disks
from bcmetal.comparing.views import stable
from bcmetal.decisions import Done, Failed
from bcmetal.placeholders import normal_serial, usable_serial
from bcmetal.states import Disks
from bcmetal.store import drives
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.store.values import DriveSeen, SetDrives, SetIdentifiers, SetNode, StoreInventory
from bcmetal.workflows.identity import changed_identity, identifiers_of
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.observing import digest_of, note_inventory, usable_drives
from bcmetal.workflows.tasks import result_of, task
from bcmetal_agent import wire
from bcmetal_agent.wire_inventory import Disk, Inventory
from bcmetal_agent.wire_tasks import DiskRef, InventoryParams
from bcmetal_drivers.capabilities import Inventories, need, offers
from bcmetal_drivers.resources import Identity
from bcmetal_drivers.resources import Inventory as SeenInventory

LOOK: Final = "look"
SHOWN: Final = 12  # differences named in a condition


async def look_from_inside(m: Machine) -> Outcome:
    """Have the agent's inventory: kept, compared with who the machine is, and with what its BMC shows; its disks are known from here on."""
    row = await task(m, LOOK, "inventory", InventoryParams())
    if not isinstance(row, AgentTaskRow):
        return row
    seen = result_of(row, Inventory)
    if isinstance(seen, Failed):
        return seen
    said = Identity(
        product_uuid=seen.identifiers.product_uuid,
        serial=seen.identifiers.serial,
        macs=seen.identifiers.macs,
    )
    changed = changed_identity(m.node.identifiers, said)
    if changed is not None:
        m.condition("identity", "error", "identity-changed", changed)
        return Failed("identity-changed", f"from inside, the machine is another one: {changed}")
    m.note(SetIdentifiers("agent", identifiers_of(said, "agent")))
    doc = wire.to_doc(seen)
    m.note(StoreInventory(m.new_id("iv"), "agent", digest_of(stable(seen)), dict(seen.notes), doc))
    shown = await _shown(m)
    _compare(m, seen, shown)
    await _know_the_disks(m, seen, shown)
    return Done()


async def _shown(m: Machine) -> SeenInventory | None:
    """The BMC's view of this very moment, in which the machine runs; None: this BMC has none."""
    if not offers(m.bmc, Inventories):
        return None
    shown = await m.look(need(m.bmc, Inventories).inventory)
    await note_inventory(m, shown)
    return shown


def _compare(m: Machine, seen: Inventory, shown: SeenInventory | None) -> None:
    """Each difference from the BMC's view is named; none of them is a failure by itself."""
    found = differences(seen, shown) if shown is not None else ()
    if not found:
        m.condition("hardware", "ok")
        return
    told = "; ".join(str(one) for one in found[:SHOWN]) + (
        f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    )
    m.condition("hardware", "warning", "views-differ", f"from inside it is not what its BMC shows: {told}"[:2000])


async def _know_the_disks(m: Machine, seen: Inventory, shown: SeenInventory | None) -> None:
    """What the agent sees, and what the BMC shows beside it: a drive behind a controller is the machine's too."""
    found = {normal_serial(disk.serial or ""): drive_of(disk) for disk in named_disks(seen)}
    for drive in usable_drives(shown) if shown is not None else ():
        same = found.get(normal_serial(drive.serial))
        found[normal_serial(drive.serial)] = drive if same is None else replace(same, model=drive.model or same.model)
    known = {normal_serial(row.serial) for row in await m.doors.store.read(drives.of_node, m.node.node_id)}
    m.facts = [fact for fact in m.facts if not isinstance(fact, SetDrives)]  # the BMC's view alone
    m.note(SetDrives(tuple(found.values())))
    if set(found) - known and m.node.facts.disks is Disks.CLEAN:
        m.note(SetNode({"disks": Disks.FOREIGN}))


def named_disks(seen: Inventory) -> list[Disk]:
    """The machine's own disks that can be told apart by a serial of their own."""
    return [disk for disk in own_disks(seen) if usable_serial(normal_serial(disk.serial or ""))]


def drive_of(disk: Disk) -> DriveSeen:
    return DriveSeen(disk.serial or "", disk.model, disk.wwn, disk.size_bytes)


async def seen_inside(m: Machine) -> Inventory | Failed:
    """The agent's inventory of this operation."""
    row = await task(m, LOOK, "inventory", InventoryParams())
    if not isinstance(row, AgentTaskRow):
        return Failed("internal", "the agent's inventory was not taken before it was needed")
    return result_of(row, Inventory)


def ref_of(disk: Disk) -> DiskRef:
    """What the agent has to find again before it writes."""
    return DiskRef(serial=disk.serial or "", size_bytes=disk.size_bytes, model=disk.model, wwn=disk.wwn)
