"""Identify: switch the machine's light on or off, and see it so."""

from __future__ import annotations

from bcmetal.decisions import Done
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal_drivers.capabilities import Indicator, need


async def run(m: Machine) -> Outcome:
    """The driver reads it back; twice is the same as once."""
    await m.act(need(m.bmc, Indicator).identify, bool(m.input.get("on", True)))
    return Done()
