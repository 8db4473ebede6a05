"""Rotate the BMC's credentials: a new random password, with a working one stored at every moment."""

from __future__ import annotations

from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.rotating import rotate_the_password


async def run(m: Machine) -> Outcome:
    """The same step as in the workflows."""
    return await rotate_the_password(m)
