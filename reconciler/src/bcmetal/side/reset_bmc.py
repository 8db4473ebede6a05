"""Reset the BMC: see that it answers, for one that is away already is not restarted blindly; restart it once; see it back."""

from __future__ import annotations

from bcmetal.decisions import Again, Failed
from bcmetal.workflows.bmc_restart import ask_for_a_restart, asked_for, seen_back
from bcmetal.workflows.machine import Machine, Outcome, Unsure
from bcmetal_drivers.capabilities import BmcReset, Power, need


async def run(m: Machine) -> Outcome:
    """The machine itself is not touched."""
    if asked_for(m):
        return await seen_back(m)
    need(m.bmc, BmcReset)
    await m.look(need(m.bmc, Power).power_state)
    if isinstance(await ask_for_a_restart(m, hard=bool(m.input.get("hard"))), Unsure):
        return Failed("unsure", "it is not known whether the BMC was restarted; look at it before asking again")
    return Again("waits for the BMC to restart", 0.0)
