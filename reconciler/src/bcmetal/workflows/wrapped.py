"""Steps made of steps: done only where something holds, or a second time under a name of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from bcmetal.decisions import Done
from bcmetal.workflows.machine import Machine, Outcome, Step


def only_where(holds: Callable[[Machine], bool], *steps: Step) -> tuple[Step, ...]:
    """The same steps under their own names, each of them done at once where it does not hold."""
    return tuple(_only_where(holds, step) for step in steps)


def _only_where(holds: Callable[[Machine], bool], step: Step) -> Step:
    @wraps(step)
    async def skipping(m: Machine) -> Outcome:
        return await step(m) if holds(m) else Done()

    return skipping


def once_more(ending: str, *steps: Step) -> tuple[Step, ...]:
    """The same steps, each under a name of its own, for what a workflow does a second time."""
    return tuple(_once_more(ending, step) for step in steps)


def _once_more(ending: str, step: Step) -> Step:
    @wraps(step)
    async def repeated(m: Machine) -> Outcome:
        return await step(m)

    repeated.__name__ = f"{getattr(step, '__name__', 'step')}_{ending}"
    return repeated
