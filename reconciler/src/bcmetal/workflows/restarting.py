"""A start of the machine that is there for its firmware alone: what waits for a boot is taken by it, and then the machine is off again.

It is held in its own setup where the BMC can do that, so that nothing from its disks or its network runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from bcmetal.decisions import Again, Done, Failed
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.steps import clear_boot_override, power_off, power_on
from bcmetal_drivers.capabilities import BootOnce, need, offers
from bcmetal_drivers.errors import NotAsAsked, Refused, Unsupported
from bcmetal_drivers.resources import BootDevice

POLL_S: Final = 5.0
LONGEST_POLL_S: Final = 60.0
PATIENCE_S: Final = 1800.0
BOOT_TAKES_S: Final = 1800  # beside the verb's own budget
Applied = Callable[[], Awaitable[bool]]


def started_s(m: Machine, key: str) -> float | None:
    """Seconds since the start for `key`; None: it was not made yet."""
    return m.since_s(f"{key}_started_at")


def under_way(m: Machine, key: str) -> bool:
    """Whether the start for `key` is being made, or was made: then the machine is to be seen off again."""
    return bool(m.memo.get(f"{key}_armed")) or started_s(m, key) is not None


async def let_a_boot_apply(
    m: Machine, key: str, applied: Applied, what: str, patience_s: float = PATIENCE_S, code: str = "deadline"
) -> Outcome:
    """Start the machine, see `applied`, switch it off. Fails by `code` when it is not seen in time; the machine is off then too."""
    waited = started_s(m, key)
    if waited is None:
        m.take_longer(f"{key}_boot", BOOT_TAKES_S)
        return await _start(m, key)
    late = waited > patience_s
    if not late and not await applied():
        return Again(f"waits for the machine's firmware to take {what}", min(LONGEST_POLL_S, max(POLL_S, waited / 20)))
    ended = await stop(m, key)
    if isinstance(ended, Done) and late:
        return Failed(code, f"the machine was started {waited:.0f} s ago for {what}, and the BMC does not show it")
    return ended


async def stop(m: Machine, key: str) -> Outcome:
    """Off again, with nothing armed."""
    outcome = await power_off(m)
    if isinstance(outcome, Done):
        outcome = await clear_boot_override(m)
    if isinstance(outcome, Done):
        m.remember(**{f"{key}_started_at": None, f"{key}_armed": None})
    return outcome


async def _start(m: Machine, key: str) -> Outcome:
    if not m.memo.get(f"{key}_armed"):
        outcome = await power_off(m)
        if not isinstance(outcome, Done):
            return outcome
        m.remember(**{f"{key}_armed": True})
        return await _hold_in_setup(m)
    outcome = await power_on(m)
    if isinstance(outcome, Done):
        m.remember(**{f"{key}_started_at": m.now})
        return Again("looks what the machine's firmware makes of it", 0.0)
    return outcome


async def _hold_in_setup(m: Machine) -> Outcome:
    """Not every BMC can; then the machine goes on from there to what it boots by itself."""
    if offers(m.bmc, BootOnce):
        try:
            await m.act(need(m.bmc, BootOnce).boot_once, BootDevice.BIOS_SETUP)
        except (Unsupported, Refused, NotAsAsked):
            m.remember(no_setup=True)
    return Again("starts the machine for its firmware", 0.0)
