"""The tests `cpu` and `memory`: stress-ng, which checks what it computes and what it reads back, with the hardware's own error counters."""

from __future__ import annotations

import os
import re
from typing import Final

from bcmetal_agent.tasks import hardware_counters
from bcmetal_agent.tasks.hardware_counters import Counters
from bcmetal_agent.tasks.hardware_trial import Trial
from bcmetal_agent.tasks.look_files import raw
from bcmetal_agent.tasks.tools import Ran, run
from bcmetal_agent.wire_tasks import TestResult

GRACE_S: Final = 120  # stress-ng ends its workers after its time; freeing terabytes takes a while
RESERVE: Final = 256 * 2**20  # of memory that is never asked for, however much is free
_NOT_RUN: Final = (3, 4)  # no resources, not implemented (stress-ng(1), exit status)
_SAID: Final = 256 * 1024


def cpu(trial: Trial) -> TestResult:
    """All cores by all methods."""
    hottest: list[int] = []

    def sample() -> None:
        now = hardware_counters.celsius(trial.machine)
        if now is not None:
            hottest.append(now)

    before = hardware_counters.read(trial.machine)
    with trial.ticking("computing on all cores", sample):
        ran = _stress(trial, "--cpu", "0", "--cpu-method", "all")
    if ran.code in _NOT_RUN:
        return TestResult(f"stress-ng could not run: {_first_fault(ran)}")
    counted = hardware_counters.read(trial.machine).since(before)
    celsius = max(hottest, default=None)
    wrong = [
        *_wrong(trial, ran, counted),
        *trial.over("throttled", counted.throttled, "cores slowed by heat"),
        *trial.over("max_celsius", celsius, "degrees Celsius"),
    ]
    figures = _figures(counted) | {"celsius": celsius, "bogo_ops": _bogo_ops(ran.err or ran.out)}
    told = f"all cores for {trial.duration_s} s"
    if counted.throttled:
        told += f", slowed by heat {counted.throttled} times"
    return TestResult("; ".join(wrong) or told, not wrong, figures)


def memory(trial: Trial) -> TestResult:
    """Patterns over most of the free memory, written and read back."""
    free = available(trial)
    share = min(max(trial.mark("share_percent") or 0, 1), 95)
    size = min(int(free * share / 100), free - RESERVE)
    if size < 2**20:
        return TestResult(f"only {free // 2**20} MiB of memory are free: too little to test")
    before = hardware_counters.read(trial.machine)
    watched = hardware_counters.watched(trial.machine)
    with trial.ticking(f"patterns over {size // 2**20} MiB"):
        ran = _stress(trial, "--vm", str(_workers(size)), "--vm-bytes", str(size), "--vm-keep", "--vm-populate")
    if ran.code in _NOT_RUN:
        return TestResult(f"stress-ng could not run: {_first_fault(ran)}")
    counted = hardware_counters.read(trial.machine).since(before)
    wrong = _wrong(trial, ran, counted)
    told = f"{size // 2**20} MiB under patterns for {trial.duration_s} s"
    if not watched:
        told += "; the kernel has no driver that counts this memory controller's corrected errors"
    return TestResult("; ".join(wrong) or told, not wrong, _figures(counted) | {"bytes": size, "edac": watched})


def available(trial: Trial) -> int:
    match = re.search(rb"^MemAvailable: +(\d{1,15}) kB", raw(trial.machine.path("proc/meminfo")) or b"", re.M)
    return int(match[1]) * 1024 if match else 0


def _workers(size: int) -> int:
    return max(min(os.cpu_count() or 1, size // (64 * 2**20)), 1)


def _stress(trial: Trial, *what: str) -> Ran:
    argv = ["stress-ng", *what, "--verify", "--oomable", "--metrics-brief", "--timeout", f"{max(trial.duration_s, 1)}s"]
    ran = run(argv, deadline_s=trial.duration_s + GRACE_S, expect=None, limit=_SAID, doing=trial.doing)
    trial.doing.log(_readable(ran))
    return ran


def _readable(ran: Ran) -> str:
    lines = (ran.err + ran.out).decode("utf-8", "replace").splitlines()
    return "".join(f"{line.strip()[:500]}\n" for line in lines if line.strip())


def _first_fault(ran: Ran) -> str:
    said = _readable(ran).splitlines()
    return next((line for line in said if re.search(r"\bfail|\berror", line)), said[-1] if said else "it said nothing")[
        :300
    ]


def _wrong(trial: Trial, ran: Ran, counted: Counters) -> list[str]:
    wrong = []
    if ran.code:
        wrong.append(f"it found something wrong (code {ran.code}): {_first_fault(ran)}")
    if counted.uncorrected or counted.machine_checks:
        wrong.append(f"{counted.uncorrected} uncorrected errors and {counted.machine_checks} machine checks")
    corrected = max(counted.corrected, counted.reported)
    return [*wrong, *trial.over("corrected_errors", corrected, "errors that the hardware corrected or reported")]


def _figures(counted: Counters) -> dict[str, object]:
    return {
        "corrected": counted.corrected,
        "uncorrected": counted.uncorrected,
        "machine_checks": counted.machine_checks,
        "reported": counted.reported,
        "throttled": counted.throttled,
    }


def _bogo_ops(said: bytes) -> int | None:
    match = re.search(rb"metrc: \[\d+\] cpu +(\d{1,15}) ", said)
    return int(match[1]) if match else None
