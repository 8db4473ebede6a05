"""One file a verb: a runbook of named steps. `workflow_of(verb)` finds it by the verb's name; nothing else lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from bcmetal.states import Verb
from bcmetal.workflows.machine import Step


@dataclass(frozen=True, slots=True)
class Workflow:
    """`steps` in their order, `cleanup` for a failure after the first effect; both by name."""

    verb: Verb
    steps: Mapping[str, Step]
    cleanup: Mapping[str, Step]


def _named(steps: Sequence[Step]) -> dict[str, Step]:
    return {getattr(step, "__name__", repr(step)): step for step in steps}


@cache
def workflow_of(verb: Verb) -> Workflow:
    """The workflow in `bcmetal.workflows.<verb>`: its `STEPS`, and its `CLEANUP`."""
    module = import_module(f"bcmetal.workflows.{verb.value}")
    return Workflow(verb, _named(module.STEPS), _named(module.CLEANUP))
