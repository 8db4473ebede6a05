"""Set the BMC's credentials: try the new ones, and take them only when they work. Until then the old ones stay."""

from __future__ import annotations

from bcmetal.decisions import Done, Failed
from bcmetal.store.values import MoveSealed, SetBmc
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal_drivers.capabilities import Identifies, need
from bcmetal_drivers.connection import Credential
from bcmetal_drivers.errors import RejectedCredentials


async def run(m: Machine) -> Outcome:
    """Log in with the candidate; rejected, it is dropped, and the stored ones are untouched."""
    bmc = m.node.bmc
    if bmc is None:
        return Failed("bmc-bad-address", "the node has no BMC")
    username = m.secret("candidate.username").get_secret_value()
    candidate = Credential(username, m.secret("candidate.password"))
    try:
        await m.line.trial(m.address, candidate, m.trust, lambda there: need(there, Identifies).identity(), person=True)
    except RejectedCredentials as error:
        m.note(MoveSealed(bmc.bmc_id, accept=False))
        m.tell("security.bmc-credentials.rejected", pending=True)
        return Failed("bmc-credentials-rejected", str(error))
    m.note(
        MoveSealed(bmc.bmc_id, accept=True),
        SetBmc({"cred_ref": None, "cred_verified_at": m.now, "proven_at": m.now}),
    )
    m.condition("credentials", "ok")
    m.tell("security.bmc-credentials.changed")
    return Done()
