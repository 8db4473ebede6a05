"""What all ways to erase a drive have in common: the drive under way, what it offers, and the words of the standards.

The words are those of NIST SP 800-88 rev. 2, which leaves the techniques to IEEE 2883: a sanitize operation and a cryptographic erase by the
drive itself are a purge; SECURITY ERASE UNIT, Format NVM without a change of keys, and an overwrite by the host are a clear; a discard is
neither, since a drive may keep what was discarded.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from bcmetal_agent.tasks.disks import BlockDevice, Where
from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.tools import Ran, ToolFailed, ToolMissing, run
from bcmetal_agent.wire_tasks import Method

PURGE: Final = "NIST SP 800-88r2 purge"
CLEAR: Final = "NIST SP 800-88r2 clear"
NONE: Final = "none"
ASK_S: Final = 120.0
HOUR_S: Final = 3600.0
STALLED_S: Final = 2 * HOUR_S  # a drive that says for so long that it is no further is taken for dead
_POLL_FIRST_S, _POLL_LAST_S = 0.2, 5.0


Blocked = Literal["frozen", "locked"]


class Refused(Exception):
    """The drive took the command for none of its own: nothing was begun, another way may be tried."""


@dataclass
class Work:
    """One drive under way. `progress` takes a fraction; `again` finds the drive once more by the plan, right before something is destroyed,
    and raises TaskFailed when it is not the one and only any more. `log` collects what the drive said."""

    device: BlockDevice
    where: Where
    doing: Doing
    progress: Callable[[float], None]
    again: Callable[[], BlockDevice]
    sectors: tuple[int, ...] = ()
    pattern: bytes = b""
    begun: bool = False
    said: list[str] = field(default_factory=list)

    def log(self, text: str) -> None:
        self.doing.log(f"{moment()} {self.device.name} ({self.device.serial}): {text}\n")

    def record(self, text: str) -> None:
        """Into the drive's own log, of which the record holds the end."""
        self.said.append(text)
        self.log(text)


@dataclass(frozen=True, slots=True)
class Way:
    """One thing that can be done to this drive, as it is now. `run` raises Refused or TaskFailed."""

    method: Method
    standard: str
    how: str
    run: Callable[[Work], None]
    not_covered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offers:
    """`blocked`: why the drive's own ways are not to be had now, with `message`; `closed`: the host cannot write to it either.
    `hidden`: what is out of the host's reach."""

    ways: tuple[Way, ...] = ()
    blocked: Blocked | None = None
    closed: bool = False
    message: str | None = None
    hidden: tuple[str, ...] = ()


class Elapsed:
    """A `Doing` for a command that neither tells how far it is nor should be broken off: the time it was said to take is its progress."""

    def __init__(self, work: Work, takes_s: float) -> None:
        self._work = work
        self._since_s = time.monotonic()
        self._takes_s = max(takes_s, 1.0)

    def progress(self, thousandths: int, message: str | None = None) -> None:
        self._work.doing.progress(thousandths, message)

    def log(self, text: str) -> None:
        self._work.doing.log(text)

    def check(self) -> None:
        self._work.progress(min(0.95, (time.monotonic() - self._since_s) / self._takes_s))


def ask(argv: list[str], patient: Work | None = None) -> Ran | None:
    """A question to the drive; None when it has no answer, or the ramdisk no such program.

    `patient`: an agent that was killed may have left a command with the drive that takes hours, and only then is it the question's turn.
    """
    deadline_s, doing = (48 * HOUR_S, patient.doing) if patient is not None else (ASK_S, None)
    try:
        return run(argv, deadline_s=deadline_s, limit=64 * 1024, doing=doing)
    except (ToolFailed, ToolMissing):
        return None


def wait(work: Work, look: Callable[[], float | None], at_most_s: float) -> None:
    """Until the drive says that it is ready. `look`: the fraction done, None when ready; raises TaskFailed when the drive failed.

    A stop leaves the drive to itself: it goes on alone, and the next task waits for it.
    """
    began_s = moved_s = time.monotonic()
    last = -1.0
    pause_s = _POLL_FIRST_S
    while (done := look()) is not None:
        work.progress(done)
        now_s = time.monotonic()
        if done != last:
            last, moved_s = done, now_s
        if now_s - moved_s > STALLED_S:
            raise TaskFailed("erase-failed", f"the drive is at {done:.0%} since {(now_s - moved_s) / 60:.0f} minutes")
        if now_s - began_s > at_most_s:
            raise TaskFailed("erase-failed", f"the drive is at {done:.0%} after {at_most_s / HOUR_S:.0f} hours")
        until_s = now_s + pause_s
        while time.monotonic() < until_s:
            work.doing.check()
            time.sleep(min(0.2, pause_s))
        pause_s = min(_POLL_LAST_S, pause_s * 1.5)


def moment() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
