"""Cleanup: undo what an operation left that was aborted while nothing could be done (maintenance, a freeze). Queued by the daemon alone.

The aborted operation's memo is the input: only what that operation did is undone.
"""

from __future__ import annotations

from bcmetal.decisions import Done
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.steps import UNDO


async def run(m: Machine) -> Outcome:
    """The workflow's cleanup steps, one after another; each looks first."""
    left = m.input.get("memo") or {}
    m.remember(**{key: left[key] for key in ("took_down", "media_path") if key in left})
    for step in UNDO:
        outcome = await step(m)
        if not isinstance(outcome, Done):
            return outcome
    return Done()
