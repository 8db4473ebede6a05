"""Read the event log: the newest entries of what the BMC noted. The result is kept with the operation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from bcmetal.decisions import Done
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal_drivers.capabilities import EventLog, need

LIMIT: Final = 100


async def run(m: Machine) -> Outcome:
    """As many as were asked for."""
    entries = await m.look(need(m.bmc, EventLog).event_log, int(m.input.get("limit", LIMIT)))
    m.remember(result={"entries": [asdict(entry) for entry in entries]})
    return Done()
