"""A restart of the BMC itself, asked for once and seen to its end. The machine is not touched.

1. ask_for_a_restart   an answer that was lost is what a restart looks like
2. seen_back           left alone for a while, for it answers on before it goes; back when it answered several times in a row, for some
                       come back and go once more
"""

from __future__ import annotations

from typing import Final

from bcmetal.decisions import Again, Done, Failed
from bcmetal.workflows.machine import Machine, Outcome, Unsure
from bcmetal_drivers.capabilities import BmcReset, Power, need
from bcmetal_drivers.errors import MaybeSent, Transient

AWAY_S: Final = 30.0
PATIENCE_S: Final = 780.0  # iDRAC and XCC take up to six minutes, some blades' managers ten
POLL_S: Final = 5.0
LONGEST_POLL_S: Final = 30.0
GOOD_READS: Final = 3
_ASKED_AT: Final = "bmc_reset_at"  # in the memo
_GOOD: Final = "bmc_reset_good"


def asked_for(m: Machine) -> bool:
    return m.memo.get(_ASKED_AT) is not None


async def ask_for_a_restart(m: Machine, *, hard: bool = False) -> Unsure | None:
    """Unsure: the daemon died at it, and it is not known whether the BMC was told."""
    try:
        sent = await m.act_once("reset-bmc", need(m.bmc, BmcReset).reset_bmc, hard)
    except MaybeSent:
        sent = None
    m.remember(**{_ASKED_AT: m.now, _GOOD: 0})
    return sent


async def seen_back(m: Machine) -> Outcome:
    waited = m.since_s(_ASKED_AT) or 0.0
    if waited < AWAY_S:
        return Again("waits for the BMC to restart", AWAY_S - waited)
    try:
        await m.look(need(m.bmc, Power).power_state)
    except Transient as error:
        m.remember(**{_GOOD: 0})
        if waited > PATIENCE_S:
            return Failed("bmc-unreachable", f"restarted {waited:.0f} s ago, and it is not back: {error}")
        return Again(f"the BMC is not back yet: {error}", min(LONGEST_POLL_S, max(POLL_S, waited / 10)))
    good = int(m.memo.get(_GOOD, 0)) + 1
    m.remember(**{_GOOD: good})
    return Done() if good >= GOOD_READS else Again("the BMC answers again; looks whether it stays", POLL_S)
