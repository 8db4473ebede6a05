"""A server that outlives the agent, and the end of it with everything that its sessions have started.

In a cgroup of its own, so that a program that left its session and its parent is found too; where the kernel has none (a container), what
descends from the server or shares a session with what does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_END_S: Final = 10.0
_ENV: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/"}


@dataclass(frozen=True)
class Process:
    """`started`: in the kernel's ticks, since a number alone may be another process's by now."""

    pid: int
    started: int

    def alive(self) -> bool:
        if self.pid <= 0:  # not started yet
            return False
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        found = _look(self.pid)
        return found is not None and found.started == self.started and found.state != "Z"


@dataclass(frozen=True)
class _Seen:
    pid: int
    state: str
    parent: int
    session: int
    started: int


def start(argv: Sequence[str], cgroup: Path) -> Process:
    """Without a terminal, in a session of its own. Raises OSError."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
        pid = os.posix_spawn(argv[0], list(argv), _ENV, file_actions=actions, setsid=True)
    finally:
        os.close(null)
    with contextlib.suppress(OSError):
        if (cgroup.parent / "cgroup.controllers").exists():
            cgroup.mkdir(exist_ok=True)
            (cgroup / "cgroup.procs").write_text(str(pid))
    found = _look(pid)
    return Process(pid, found.started if found else -1)


def end(server: Process, cgroup: Path) -> None:
    """With SIGKILL, until nothing of it is left or ten seconds have passed."""
    until = time.monotonic() + _END_S
    ours = {server.pid: server.started} if server.alive() else {}
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            (cgroup / "cgroup.kill").write_text("1")
        left = _family(ours)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.alive()  # takes its exit code, where it is this agent's child
        if not left and not _members(cgroup):
            break
        time.sleep(0.05)
    with contextlib.suppress(OSError):
        cgroup.rmdir()


def _family(ours: dict[int, int]) -> list[int]:
    """Those that live of `ours` (number: start), and what came from them, which joins `ours`."""
    there = [one for one in _all() if one.state != "Z"]
    left: set[int] = set()
    while True:
        found = [
            one
            for one in there
            if one.pid not in left
            and (ours.get(one.pid) == one.started or one.parent in left or (one.session in ours and one.pid != 1))
        ]
        if not found:
            return sorted(left)
        left |= {one.pid for one in found}
        ours.update({one.pid: one.started for one in found})


def _members(cgroup: Path) -> str:
    try:
        return (cgroup / "cgroup.procs").read_text()
    except OSError:
        return ""


def _all() -> list[_Seen]:
    found = (_look(int(entry.name)) for entry in os.scandir("/proc") if entry.name.isdigit())
    return [one for one in found if one is not None]


def _look(pid: int) -> _Seen | None:
    """From /proc/PID/stat (proc(5)): the name, in brackets, may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
        return _Seen(pid, words[0], int(words[1]), int(words[3]), int(words[19]))
    except (OSError, ValueError, IndexError):
        return None
