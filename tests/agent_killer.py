"""A process of its own in which the agent is killed: `python agent_killer.py`, one JSON line in and one out for each life.

Each life is a fork that imports nothing more. With `killAt` N it sends itself SIGKILL right before the N-th call that
touches the disk or the network, seen by the interpreter's profiling hook: nothing of the agent is replaced.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from agent_machine import Machine

TOUCHES = frozenset(
    [
        "open",
        "write",
        "flush",
        "fsync",
        "replace",
        "symlink",
        "mkdir",
        "unlink",
        "rmdir",
        "chmod",
        "close",
        "connect",
        "do_handshake",
        "send",
        "read",
    ]
)


@dataclass(frozen=True)
class Elsewhere:
    url: str
    node_url: str
    pin: str


def die_before(which: int) -> None:
    seen = 0

    def look(frame: FrameType, event: str, called: Any) -> None:
        nonlocal seen
        if event == "c_call" and getattr(called, "__name__", "") in TOUCHES:
            seen += 1
            if seen == which:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)


def live(order: dict[str, Any]) -> None:
    plane = Elsewhere(order["url"], order["nodeUrl"], order["pin"])
    machine = Machine(plane, Path(order["folder"]), order["token"])
    machine.clock.ahead = timedelta(seconds=order["aheadS"])
    if order["killAt"]:
        die_before(order["killAt"])
    if order["verb"] == "join":
        machine.join()
    else:
        machine.run_for(0)
    sys.setprofile(None)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                live(order)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
