"""Inspect: learn what the machine is, through its BMC. Nothing at the machine is changed.

1. find_the_service      which protocol answers at the address; its certificate is trusted, pinned, or refused
2. log_in                the credentials work; the BMC and system belong to no other node
3. know_who_it_is        UUID, serial, MACs; none of the exclusive ones is held by another live node; and with the same look what it is
                         made of: CPUs, memory, NICs, drives, GPUs, TPM, firmware …, section by section

A BMC with a list of labels for its credential: find_the_label and renew_an_expired_one after 1, claim_the_bmc after 3. This is the one
thing that an inspect changes, and it changes it at the BMC.

Deep, which is the default where the BMC speaks IPMI alone, the agent looks from inside as well:

4. may_start_it          the machine is off, or was seen to be ours to switch; a foreign one that runs is left running
5. power_off, eject_media, offer_the_ramdisk, insert_the_ramdisk, arm_the_ramdisk, start_the_ramdisk, wait_for_the_agent
6. look_from_inside      its inventory is compared with the BMC's, each difference named; its disks are known
7. power_off_at_the_end, eject_media_at_the_end, withdraw_the_medium_at_the_end, clear_boot_override_at_the_end
"""

from __future__ import annotations

from collections.abc import Sequence

from bcmetal.decisions import Done, Failed
from bcmetal.states import Disks
from bcmetal.store import drives
from bcmetal.store.values import (
    SetBmc,
    SetIdentifiers,
    SetNode,
    SetSighting,
)
from bcmetal.workflows.asked import Asked
from bcmetal.workflows.claiming import with_label
from bcmetal.workflows.identity import changed_identity, identifiers_of
from bcmetal.workflows.inside import look_from_inside
from bcmetal.workflows.machine import Machine, Outcome, Step
from bcmetal.workflows.observing import identity_of, note_clock, note_inventory, usable_drives
from bcmetal.workflows.ramdisk import LEAVE, START
from bcmetal.workflows.steps import UNDO, eject_media, power_off
from bcmetal.workflows.wrapped import only_where
from bcmetal_drivers.capabilities import Identifies, Inventories, Power, need
from bcmetal_drivers.connection import Trust, TrustKind
from bcmetal_drivers.resources import PowerState

PIN_FIRST = "pin-first"  # the network's word for: the first certificate that is seen is the one


async def find_the_service(m: Machine) -> Outcome:
    """Find the protocol, and pin the certificate where the network says `pin-first`."""
    bmc = m.node.bmc
    if bmc is None:
        return Failed("bmc-bad-address", "the node has no BMC")
    network = m.network
    scheme, port, kind, value = bmc.scheme, bmc.port, bmc.trust_kind, bmc.trust_value
    if not scheme:
        trust = Trust(TrustKind.NONE if kind == PIN_FIRST else TrustKind(kind), value)
        found = await m.line.probe(bmc.host, port or None, trust)
        scheme, port = found.scheme, found.port
        if scheme == "redfish+http" and not (network and network.plain_http):
            return Failed("bmc-insecure-transport", "only plain HTTP answers there, which its network does not allow")
        m.note(SetBmc({"scheme": scheme, "port": port}))
    if kind == PIN_FIRST and scheme == "redfish":
        if bmc.cred_ref is not None and not m.line.of_one_machine:
            return Failed(
                "bmc-certificate-untrusted",
                f"credential {bmc.cred_ref} is shared by many machines and is sent only to a pinned or verified certificate",
            )
        pin = await m.line.fingerprint(bmc.host, port)
        m.note(SetBmc({"trust_kind": TrustKind.FINGERPRINT.value, "trust_value": pin}))
        m.note(*m.line.sealed_for(bmc.host, TrustKind.FINGERPRINT.value, pin))
    return Done()


async def log_in(m: Machine) -> Outcome:
    """See that the credentials work, and who the BMC is."""
    info = await m.look(need(m.bmc, Identifies).bmc_info)
    m.note(
        SetBmc(
            {
                "maker": info.maker,
                "model": info.model,
                "firmware": info.firmware,
                "proven_at": m.now,
                "cred_verified_at": m.now,
            }
        ),
        SetSighting(certificate_fp=info.certificate_fp),
    )
    note_clock(m, info.clock)
    m.condition("credentials", "ok")
    m.condition("certificate", "ok")
    return Done()


async def know_who_it_is(m: Machine) -> Outcome:
    """Settle the identity, which comes first, and keep what differs from the inventory of the last time."""
    seen = await m.look(need(m.bmc, Inventories).inventory)
    power = seen.power or await m.look(need(m.bmc, Power).power_state)
    if m.node.facts.disks is not Disks.FOREIGN:
        changed = changed_identity(m.node.identifiers, seen.identity)
        if changed is not None:
            m.condition("identity", "error", "identity-changed", changed)
            return Failed("identity-changed", changed)
    m.condition("identity", "ok")
    m.note(SetIdentifiers("bmc", identifiers_of(identity_of(m, seen), "bmc")))
    if seen.identity.system_path and seen.identity.system_path != m.node.system_path:
        m.note(SetNode({"system_path": seen.identity.system_path}))
    await note_inventory(m, seen, accept=True)
    m.note(SetSighting(power=power, boot_mode=seen.boot_mode))
    m.condition("hardware", "ok")
    known = {row.serial for row in await m.doors.store.read(drives.of_node, m.node.node_id)}
    new = [drive.serial for drive in usable_drives(seen) if drive.serial not in known]
    if new and m.node.facts.disks is Disks.CLEAN:
        m.note(SetNode({"disks": Disks.FOREIGN}))
    return Done()


STEPS = (find_the_service, log_in, know_who_it_is)
CLEANUP = UNDO


async def may_start_it(m: Machine) -> Outcome:
    """A foreign machine that was found running may be somebody's: it is not switched off to be looked at."""
    if m.memo.get("deep") is not None:
        return Done()
    power = await m.look(need(m.bmc, Power).power_state)
    if power is PowerState.OFF or m.node.facts.disks is not Disks.FOREIGN:
        m.remember(deep=True)
        return Done()
    why = "it runs, and what it came with was given up by nobody: power it off first, or commission it"
    if m.input.get("deep"):
        return Failed("machine-is-on", why)
    m.remember(deep=False)
    m.condition("agent", "warning", "not-inspected-deep", f"not looked at from inside: {why}")
    return Done()


def _is_deep(m: Machine) -> bool:
    return bool(m.memo.get("deep"))


DEEP = (
    *STEPS,
    may_start_it,
    *only_where(_is_deep, power_off, eject_media, *START, look_from_inside, *LEAVE),
)


def steps_for(asked: Asked) -> Sequence[Step]:
    steps = DEEP if asked.inspects_deep else STEPS
    return with_label(steps, find_the_service, know_who_it_is) if asked.has_label else steps
