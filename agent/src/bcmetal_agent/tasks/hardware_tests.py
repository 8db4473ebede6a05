"""The task `test`: one hardware test, its verdict and its figures. Pass marks are those of `wire_tests.MARKS`.

`passed` None: it could not be run here, and the summary says why; whether that holds a machine back is the daemon's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from bcmetal_agent.tasks import burn, check_clock, check_disks, check_gpus, check_links, sweep_disks
from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.hardware_trial import Trial
from bcmetal_agent.tasks.look_bounds import fitted
from bcmetal_agent.tasks.look_files import Machine
from bcmetal_agent.tasks.tools import ToolMissing
from bcmetal_agent.wire_tasks import TestParams, TestResult
from bcmetal_agent.wire_tests import MARKS

TESTS: Final[Mapping[str, Callable[[Trial], TestResult]]] = MappingProxyType(
    {
        "cpu": burn.cpu,
        "memory": burn.memory,
        "smart": check_disks.smart,
        "disk-read": sweep_disks.read_all,
        "disk-speed": check_disks.speed,
        "network": check_links.links,
        "gpu": check_gpus.gpus,
        "clock": check_clock.clock,
    }
)


def test(params: TestParams, doing: Doing) -> TestResult:
    """Raises TaskFailed for pass marks that the test does not know, and Stopped."""
    return on(Machine(), params, doing)


def on(machine: Machine, params: TestParams, doing: Doing) -> TestResult:
    """The same on a machine whose files are elsewhere."""
    trial = Trial(params.name, params.duration_s, doing, machine, dict(params.limits))
    if params.name not in TESTS or params.name not in MARKS:
        raise TaskFailed("bad-limits", f"there is no test {params.name}")
    trial.known_marks()
    trial.log(f"test {params.name}, {params.duration_s} s, pass marks {_marks(trial)}")
    try:
        found = TESTS[params.name](trial)
    except ToolMissing as missing:
        found = TestResult(f"not run: {missing}")
    verdict = {True: "passed", False: "FAILED", None: "could not be run"}[found.passed]
    trial.log(f"{verdict}: {found.summary}")
    return fitted(replace(found, summary=found.summary[:1000]))


def _marks(trial: Trial) -> str:
    told = {name: trial.given.get(name, usual) for name, usual in MARKS[trial.name].items()}
    return ", ".join(f"{name}={value}" for name, value in told.items() if value is not None) or "none"
