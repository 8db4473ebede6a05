"""Tasks, firmware, BIOS."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour
from bcmetal_drivers.emulated.faults import Rule

BEHAVIOURS: Final = (
    Behaviour(
        name="task-purged",
        about="Writes are answered by a Task that is gone before anybody can ask how it ended.",
        rules=(Rule(action="task", method="POST", path="/Actions/", ends="purged"),),
    ),
    Behaviour(
        name="task-fails",
        about="Writes are answered by a Task that ends with an error, every second time.",
        rules=(Rule(action="task", method="POST", path="Reset$", ends="exception", every=2),),
    ),
)
