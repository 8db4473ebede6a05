"""One file a verb: a runbook of named steps. `workflow_of(verb, asked)` finds it by the verb's name; nothing else lists them.

Where a verb has more than one way (by the BMC alone, or with the agent), its module has `steps_for(asked)`, which names the steps of this run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from bcmetal.states import Verb
from bcmetal.workflows.asked import Asked
from bcmetal.workflows.machine import Step

__all__ = ["Asked", "Workflow", "workflow_of"]


@dataclass(frozen=True, slots=True)
class Workflow:
    """`steps` in their order, `cleanup` for a failure after the first effect; both by name."""

    verb: Verb
    steps: Mapping[str, Step]
    cleanup: Mapping[str, Step]


def _named(steps: Sequence[Step]) -> dict[str, Step]:
    return {getattr(step, "__name__", repr(step)): step for step in steps}


def workflow_of(verb: Verb, asked: Asked | None = None) -> Workflow:
    """The workflow in `bcmetal.workflows.<verb>`: its steps for what was asked, and its `CLEANUP`. `asked` None: by the BMC alone."""
    module = import_module(f"bcmetal.workflows.{verb.value}")
    chosen = getattr(module, "steps_for", None)
    steps = module.STEPS if asked is None or chosen is None else chosen(asked)
    return Workflow(verb, _named(steps), _named(module.CLEANUP))
