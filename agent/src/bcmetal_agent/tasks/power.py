"""`poweroff` and `reboot`: the task itself only writes everything out; the machine goes once the daemon has heard of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.tools import run
from bcmetal_agent.wire_tasks import Nothing

COMMANDS: Final = ("poweroff", "reboot")
_GENTLY_S: Final = 20.0


def poweroff(params: Nothing, doing: Doing) -> Nothing:
    return _ready(doing)


def reboot(params: Nothing, doing: Doing) -> Nothing:
    return _ready(doing)


def _ready(doing: Doing) -> Nothing:
    doing.log("writing out what is not on the disks yet\n")
    os.sync()
    return Nothing()


def act(command: str, wait: Callable[[float], object]) -> None:
    """One of `COMMANDS`, through init, which ends everything first; past it where nothing came of that. Returns only if the machine stays on.

    Raises TaskFailed.
    """
    os.sync()
    faults = []
    for argv in ([command], [command, "-f"]):
        try:
            run(argv, deadline_s=10)
        except TaskFailed as error:
            faults.append(str(error))
        wait(_GENTLY_S)
    raise TaskFailed("power", f"the machine did not {command}" + "".join(f"; {fault}" for fault in faults))
