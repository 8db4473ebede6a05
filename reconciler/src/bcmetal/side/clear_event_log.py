"""Clear the event log, and see that what was in it is gone."""

from __future__ import annotations

from bcmetal.decisions import Done
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal_drivers.capabilities import EventLog, need


async def run(m: Machine) -> Outcome:
    """The driver looks; an empty log may be cleared again."""
    await m.act(need(m.bmc, EventLog).clear_event_log)
    return Done()
