"""Refresh: read the BMC again, and say what is different. The only look at a machine that is available or deployed."""

from __future__ import annotations

from bcmetal.decisions import Done, Failed
from bcmetal.states import Disks
from bcmetal.store import drives
from bcmetal.store.values import SetBmc, SetIdentifiers, SetNode, SetSighting
from bcmetal.workflows.identity import changed_identity, identifiers_of
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.observing import identity_of, look_for_media, note_clock, note_inventory, usable_drives
from bcmetal_drivers.capabilities import Identifies, Inventories, Power, need


async def run(m: Machine) -> Outcome:
    """Identity first: nothing of another machine is taken for this one."""
    seen = await m.look(need(m.bmc, Inventories).inventory)
    info = seen.bmc if seen.sections.get("bmc") == "ok" else await m.look(need(m.bmc, Identifies).bmc_info)
    power = seen.power or await m.look(need(m.bmc, Power).power_state)
    changed = changed_identity(m.node.identifiers, seen.identity)
    if changed is not None:
        m.condition("identity", "error", "identity-changed", changed)
        return Failed("identity-changed", changed)
    m.condition("identity", "ok")
    m.condition("credentials", "ok")
    note_clock(m, info.clock)
    await look_for_media(m)
    known = {row.serial for row in await m.doors.store.read(drives.of_node, m.node.node_id)}
    await note_inventory(m, seen)
    m.note(
        SetIdentifiers("bmc", identifiers_of(identity_of(m, seen), "bmc")),
        SetBmc(
            {
                "maker": info.maker,
                "model": info.model,
                "firmware": info.firmware,
                "cred_verified_at": m.now,
                "proven_at": m.now,
            }
        ),
        SetSighting(power=power, boot_mode=seen.boot_mode, certificate_fp=info.certificate_fp),
    )
    new = sorted(drive.serial for drive in usable_drives(seen) if drive.serial not in known)
    if new and m.node.facts.disks is Disks.CLEAN:
        m.note(SetNode({"disks": Disks.FOREIGN}))
        m.condition("hardware", "warning", "new-drives", f"drives that were not there before: {', '.join(new)}")
    return Done()
