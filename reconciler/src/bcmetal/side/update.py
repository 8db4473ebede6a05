"""Update of a BMC's address, trust or system: tried first, and taken only when the same machine answers there.

With `acceptIdentity` another machine is taken too, after its board or its BMC was swapped: what was known of the old one ends.
"""

from __future__ import annotations

from bcmetal.decisions import Done, Failed
from bcmetal.store.values import DropBaseline, MoveSealed, SetBmc, SetIdentifiers, SetNode
from bcmetal.workflows.identity import changed_identity, identifiers_of, identities_shown
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.membership import put_the_old_machine_out
from bcmetal_drivers.address import parse
from bcmetal_drivers.capabilities import Identifies, need
from bcmetal_drivers.connection import BmcAddress, Credential, Trust, TrustKind
from bcmetal_drivers.resources import Identity


async def run(m: Machine) -> Outcome:
    """Log in at the new address with the stored credentials, under the new trust; without one, at the old."""
    if m.node.bmc is None:
        return Failed("bmc-bad-address", "the node has no BMC")
    wanted = m.input.get("bmc")
    if wanted is None:
        seen = await m.look(need(m.bmc, Identifies).identity)
        await _accept(m, seen)
        return Done()
    trust = Trust(TrustKind(wanted["trustKind"]), str(wanted["trustValue"]))
    ref = wanted.get("credentialRef") or m.node.bmc.cred_ref
    named = m.settings.credentials.get(ref or "")
    shared = named is not None and not named.of_one_machine
    if named is not None and (
        str(wanted["network"]) not in named.networks or (shared and trust.kind is TrustKind.NONE)
    ):
        return Failed("credential-not-for-here", f"credential {named.name} may not be sent to the new address")
    address = parse(str(wanted["address"]))
    if not address.scheme:
        address = await m.line.probe(address.host, address.port or None, trust)
    credential = m.line.credential
    if "credentialRef" in wanted:
        if named is None or named.username is None:
            return Failed("credential-not-for-here", f"the configuration has no credential {ref}")
        credential = Credential(named.username, named.password_from(m.doors.vault))
    seen = await m.line.trial(address, credential, trust, lambda there: need(there, Identifies).identity())
    if m.input.get("acceptIdentity"):
        await _accept(m, seen)
    else:
        changed = changed_identity(m.node.identifiers, seen)
        if changed is not None:
            return Failed("identity-changed", f"the new address is not taken: {changed}")
    _take(m, address, trust, str(wanted["network"]), seen)
    if "credentialRef" in wanted:
        m.note(SetBmc({"cred_ref": ref}), MoveSealed(m.node.bmc.bmc_id, accept=False, slot="current"))
        m.tell("security.bmc-credentials.changed", credentialRef=ref)
    return Done()


def _take(m: Machine, address: BmcAddress, trust: Trust, network: str, seen: Identity) -> None:
    m.note(
        SetBmc(
            {
                "network": network,
                "scheme": address.scheme,
                "host": address.host,
                "port": address.port,
                "trust_kind": trust.kind.value,
                "trust_value": trust.value,
                "learned": {},
                "proven_at": m.now,
                "cred_verified_at": m.now,
            }
        ),
        SetNode({"system_path": seen.system_path}),
        *m.line.sealed_for(address.host, trust.kind.value, trust.value),
    )
    m.condition("certificate", "ok")
    m.condition("reachable", "ok")


async def _accept(m: Machine, seen: Identity) -> None:
    """What is there now is this node's machine. Where it is another one, the certificates of the old one are revoked first."""
    m.condition("identity", "ok")
    if changed_identity(m.node.identifiers, seen) is None:
        return
    now = identifiers_of(seen, "bmc")
    reason = f"another machine was accepted: {m.input.get('reason')}"
    await put_the_old_machine_out(m, reason)
    # What its agent said of the old board, and how the old BMC was set up, is not true of the new one.
    m.note(SetIdentifiers("bmc", now), SetIdentifiers("agent", ()), DropBaseline())
    old = [one for one in m.node.identifiers if one.source == "bmc"]
    m.tell(
        "security.node.identity-accepted",
        by=m.operation.by,
        reason=reason,
        old=identities_shown(old),
        new=identities_shown(now),
    )
