"""Update of a BMC's address, trust or system: tried first, and taken only when the same machine answers there."""

from __future__ import annotations

from bcmetal.decisions import Done, Failed
from bcmetal.store.values import SetBmc, SetNode
from bcmetal.workflows.identity import changed_identity
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal_drivers.address import parse
from bcmetal_drivers.capabilities import Identifies, Trust, TrustKind, need


async def run(m: Machine) -> Outcome:
    """Log in at the new address with the stored credentials, under the new trust."""
    bmc = m.node.bmc
    if bmc is None:
        return Failed("bmc-bad-address", "the node has no BMC")
    wanted = m.input["bmc"]
    trust = Trust(TrustKind(wanted["trustKind"]), str(wanted["trustValue"]))
    address = parse(str(wanted["address"]))
    if not address.scheme:
        address = await m.line.probe(address.host, address.port or None, trust)
    seen = await m.line.trial(address, m.line.credential, trust, lambda there: need(there, Identifies).identity())
    changed = changed_identity(m.node.identifiers, seen)
    if changed is not None:
        return Failed("identity-changed", f"the new address is not taken: {changed}")
    m.note(
        SetBmc(
            {
                "network": str(wanted["network"]),
                "scheme": address.scheme,
                "host": address.host,
                "port": address.port,
                "trust_kind": trust.kind.value,
                "trust_value": trust.value,
                "proven_at": m.now,
                "cred_verified_at": m.now,
            }
        ),
        SetNode({"system_path": seen.system_path}),
        *m.line.sealed_for(address.host, trust.kind.value, trust.value),
    )
    m.condition("certificate", "ok")
    m.condition("reachable", "ok")
    return Done()
