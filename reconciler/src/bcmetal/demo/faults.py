"""How two BMCs misbehave during the demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bcmetal_drivers.emulated.rack import Rack, Rule

SLOW: Final = "demo-03"
FORGETFUL: Final = "demo-07"
SLOW_S: Final = 0.15


@dataclass(frozen=True, slots=True)
class PlantedFault:
    bmc: str
    what: str
    rule_id: int


def plant(rack: Rack) -> list[PlantedFault]:
    """One BMC answers late all the time; another one drops its sessions, and is then full for a while."""
    slow = rack.rule(Rule(bmc=SLOW, method="*", path=".*", action="delay", seconds=SLOW_S))
    planted = [PlantedFault(SLOW, f"answers {SLOW_S} s late", slow)]
    for after in (20, 90):
        rule = Rule(bmc=FORGETFUL, method="GET", path=".*/Systems/.*", action="expire_sessions", after=after, times=1)
        planted.append(PlantedFault(FORGETFUL, "drops its sessions", rack.rule(rule)))
    full = Rule(bmc=FORGETFUL, method="POST", path=".*/Sessions.*", action="session_table_full", after=1, times=2)
    planted.append(PlantedFault(FORGETFUL, "has no room for a session", rack.rule(full)))
    return planted
