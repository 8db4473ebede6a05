"""Read sensors: all that the BMC measures now, and what the machine draws. The result is kept with the operation."""

from __future__ import annotations

from dataclasses import asdict

from bcmetal.decisions import Done
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal_drivers.capabilities import Sensors, need


async def run(m: Machine) -> Outcome:
    """Two looks at the BMC."""
    bmc = need(m.bmc, Sensors)
    found = await m.look(bmc.sensors)
    drawn = await m.look(bmc.power_draw_w)
    listed = [{**asdict(sensor), "thresholds": dict(sensor.thresholds)} for sensor in found]
    m.remember(result={"sensors": listed, "powerDrawW": drawn})
    return Done()
