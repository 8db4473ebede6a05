"""How two BMCs misbehave during the demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bcmetal_drivers.emulated.rack import Rack, Rule

SLOW: Final = "demo-03"
FORGETFUL: Final = "demo-07"
SLOW_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class PlantedFault:
    bmc: str
    what: str
    rule_id: int


FAULTS: Final = (
    (f"answers {SLOW_S} s late, all the time", Rule(bmc=SLOW, action="delay", seconds=SLOW_S)),
    ("drops its sessions", Rule(bmc=FORGETFUL, method="GET", action="expire_sessions", after=20, times=1)),
    ("drops its sessions again", Rule(bmc=FORGETFUL, method="GET", action="expire_sessions", after=90, times=1)),
    (
        "has no room for a new session, twice",
        Rule(bmc=FORGETFUL, method="POST", path="/Sessions", action="session_table_full", after=1, times=2),
    ),
    (
        "obeys two resets and loses the answers",
        Rule(bmc=FORGETFUL, method="POST", path="ComputerSystem.Reset", action="drop_after", times=2),
    ),
    ("answers 503 for a moment", Rule(bmc=FORGETFUL, method="GET", action="refuse", status=503, after=150, times=2)),
)


def plant(rack: Rack) -> list[PlantedFault]:
    """One BMC is slow all the time; another one drops its sessions and the answers to its resets."""
    return [PlantedFault(rule.bmc, what, rack.rule(rule)) for what, rule in FAULTS]
