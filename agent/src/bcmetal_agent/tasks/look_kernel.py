"""The kernel's version and what it complained of (Documentation/ABI/testing/dev-kmsg)."""

from __future__ import annotations

import os
import re
from typing import Final

from bcmetal_agent.tasks.look_files import Machine, printable, text

KMSG_LIMIT: Final = 8 * 2**20
COMPLAINTS: Final = 64
_RECORD: Final = re.compile(rb"(\d{1,6}),\d+,(\d+),[^;]*;(.*)")
_KERNEL, _ERR = 0, 3


def version(machine: Machine) -> str | None:
    found = text(machine.path("proc/sys/kernel/osrelease"), 128)
    return found or (os.uname().release if machine.live else None)


def complaints(machine: Machine) -> tuple[str, ...]:
    """What the kernel itself logged at level err and above: the worst first, the same text once with how often it came.

    Raises OSError.
    """
    seen: dict[str, list[int]] = {}  # text → level, when it came first, how often
    for line in _log(machine).split(b"\n"):
        match = _RECORD.fullmatch(line)  # lines of a record's dictionary start with a space
        if match is None or int(match[1]) >> 3 != _KERNEL or int(match[1]) & 7 > _ERR:
            continue
        known = seen.setdefault(printable(match[3])[:900], [int(match[1]) & 7, int(match[2]), 0])
        known[0] = min(known[0], int(match[1]) & 7)
        known[2] += 1
    worst = sorted(seen.items(), key=lambda item: item[1])[:COMPLAINTS]
    return tuple(f"{line} (×{known[2]})" if known[2] > 1 else line for line, known in worst)


def _log(machine: Machine) -> bytes:
    """One read gives one record, and EAGAIN at the end; EPIPE where records were overwritten meanwhile."""
    found = bytearray()
    fd = os.open(machine.path("dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while len(found) < KMSG_LIMIT:
            try:
                record = os.read(fd, 64 * 1024)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue
            if not record:
                break
            found += record
    finally:
        os.close(fd)
    return bytes(found)


def hardware_errors(machine: Machine) -> int:
    """How many lines of hardware errors the kernel's log holds; 0 where it is not to be read."""
    try:
        return _log(machine).count(b"[Hardware Error]")
    except OSError:
        return 0
