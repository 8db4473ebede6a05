"""Reset the BMC.

1. See that it answers: a BMC that is away already is not restarted blindly.
2. Ask once for the restart. An answer that was lost is what a restart looks like.
3. Leave it alone for a while: it answers on for some seconds before it goes.
4. It is back when it answered several times in a row: some come back, and go once more.
"""

from __future__ import annotations

from typing import Final

from bcmetal.decisions import Again, Done, Failed
from bcmetal.workflows.machine import Machine, Outcome, Unsure
from bcmetal_drivers.capabilities import BmcReset, Power, need
from bcmetal_drivers.errors import MaybeSent, Transient

AWAY_S: Final = 15.0
PATIENCE_S: Final = 780.0  # iDRAC and XCC take up to six minutes, some blades' managers ten
POLL_S: Final = 5.0
GOOD: Final = 3


async def run(m: Machine) -> Outcome:
    """The machine itself is not touched."""
    since = m.since_s("sent_at")
    if since is None:
        return await _ask(m)
    try:
        await m.look(need(m.bmc, Power).power_state)
    except Transient as error:
        m.remember(good=None)
        if since > PATIENCE_S:
            return Failed("bmc-unreachable", f"restarted {since:.0f} s ago, and it is not back: {error}")
        return Again(f"the BMC is not back yet: {error}", POLL_S)
    good = int(m.memo.get("good", 0)) + 1
    m.remember(good=good)
    return Done() if good >= GOOD else Again("the BMC answers again; looks whether it stays", POLL_S)


async def _ask(m: Machine) -> Outcome:
    bmc = need(m.bmc, BmcReset)
    await m.look(need(m.bmc, Power).power_state)
    try:
        sent = await m.act_once("reset-bmc", bmc.reset_bmc, bool(m.input.get("hard")))
    except MaybeSent:
        sent = None
    if isinstance(sent, Unsure):
        return Failed("unsure", "it is not known whether the BMC was restarted; look at it before asking again")
    m.remember(sent_at=m.now)
    return Again("waits for the BMC to restart", AWAY_S)
