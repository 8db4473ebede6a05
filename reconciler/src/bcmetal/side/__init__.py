"""Side operations: one file each, named after its verb. They change no state, and run under the node's claim between workflow steps.

Each file has `async def run(m: Machine) -> Outcome`: Done, Failed, or Again, which queues it once more. `side_of(verb)` finds it by name.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

from bcmetal.states import SideVerb
from bcmetal.workflows.machine import Step


@cache
def side_of(verb: SideVerb) -> Step:
    """The `run` of `bcmetal.side.<verb in snake case>`."""
    name = re.sub(r"(?<=[a-z])([A-Z])", lambda found: "_" + found[1].lower(), verb.value)
    step: Step = import_module(f"bcmetal.side.{name}").run
    return step
