"""Console: ask the BMC which ways there are to the serial console. The result is kept with the operation."""

from __future__ import annotations

from dataclasses import asdict

from bcmetal.decisions import Done
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal_drivers.capabilities import Console, need


async def run(m: Machine) -> Outcome:
    """Nothing is opened: a person goes there with an account of the BMC's."""
    ways = await m.look(need(m.bmc, Console).consoles)
    m.remember(result={"ways": [asdict(way) for way in ways]})
    return Done()
