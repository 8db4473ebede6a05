"""The tests `smart` and `disk-speed`: what the disks say of themselves, and how fast they give what they hold. Nothing is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from bcmetal_agent.tasks import look_disks, look_smart
from bcmetal_agent.tasks.disks import BlockDevice, devices
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.hardware_trial import Trial
from bcmetal_agent.tasks.look_files import whole
from bcmetal_agent.tasks.tools import ToolMissing, run
from bcmetal_agent.wire_tasks import TestResult
from bcmetal_agent.wire_tests import MARKS

LEAST_S: Final = 2  # for each disk: less tells of its cache alone
_GRACE_S: Final = 60


def own_disks(trial: Trial) -> tuple[BlockDevice, ...]:
    """Not a BMC's media, and not what other machines work on."""
    return tuple(one for one in devices(look_disks.where(trial.machine)) if not one.virtual_medium and not one.shared)


def smart(trial: Trial) -> TestResult:
    """The disks' own verdicts, and their counters against the pass marks. A disk that tells nothing passes, and is named."""
    there = own_disks(trial)
    if not there:
        return TestResult("the machine has no disk of its own")
    asked = look_smart.ask_all([one.name for one in there], trial.doing)
    wrong, silent, figures = [], [], {}
    for one in there:
        health, label = asked[one.name], f"{one.name} ({one.serial})"
        figures[one.serial or one.name] = {**health.figures, "health": health.word}
        trial.log(f"{label}: {health.word} {health.why or ''} {health.figures}")
        if health.word == look_smart.UNKNOWN:
            silent.append(f"{label}: {health.why}")
        wrong += [f"{label}: {why}" for why in [*look_smart.own_verdict(health.figures), *_past_marks(trial, health)]]
    told = f"{len(there) - len(silent)} of {len(there)} disks are well"
    if silent:
        told += f"; not known of {'; '.join(silent[:8])}"
    if wrong:
        return TestResult("; ".join(wrong), False, figures)
    return TestResult(told, True if len(silent) < len(there) else None, figures)


def _past_marks(trial: Trial, health: look_smart.Health) -> list[str]:
    return [
        line for name in MARKS["smart"] for line in trial.over(name, health.figures.get(name), name.replace("_", " "))
    ]


def speed(trial: Trial) -> TestResult:
    """One disk after the other, so that each has the bus to itself; the time is shared among them."""
    there = own_disks(trial)
    if not there:
        return TestResult("the machine has no disk of its own")
    each_s = max(trial.duration_s // len(there), LEAST_S)
    wrong, figures = [], {}
    for n, one in enumerate(there):
        trial.doing.check()
        trial.doing.progress(n * 1000 // len(there), f"reading {one.name}")
        label = f"{one.name} ({one.serial})"
        try:
            found = _read_speed(trial, one, each_s)
        except ToolMissing:
            raise
        except TaskFailed as error:
            wrong.append(f"{label}: {error}")
            continue
        figures[one.serial or one.name] = found
        trial.log(f"{label}: {found['mbps']} MB/s sequential, {found['iops']} random reads a second")
        wrong += trial.under("floor_mbps", found["mbps"], f"{label} MB/s")
        wrong += trial.under("floor_iops", found["iops"], f"{label} random reads a second")
    slowest = min((one["mbps"] for one in figures.values()), default=0)
    told = f"{len(there)} disks, the slowest gives {slowest:g} MB/s"
    return TestResult("; ".join(wrong) or told, not wrong, figures)


def _read_speed(trial: Trial, one: BlockDevice, each_s: int) -> dict[str, float]:
    sequential = _fio(trial, one, max(each_s // 2, 1), "--rw=read", "--bs=1M", "--iodepth=16")
    random = _fio(trial, one, max(each_s // 2, 1), "--rw=randread", "--bs=4k", "--iodepth=32")
    return {"mbps": round((_of(sequential, "bw_bytes") or 0) / 1e6, 1), "iops": round(_of(random, "iops") or 0)}


def _fio(trial: Trial, one: BlockDevice, seconds: int, *how: str) -> Mapping[str, Any]:
    argv = [
        *("fio", f"--name={one.name}", f"--filename=/dev/{one.name}", "--readonly", "--direct=1", "--ioengine=libaio"),
        *("--time_based", f"--runtime={seconds}", "--output-format=json", *how),
    ]
    said = run(argv, deadline_s=seconds + _GRACE_S, doing=trial.doing).text
    try:
        doc = json.loads(said[said.index("{") :])  # warnings may come before
        job = doc["jobs"][0]
        found = job["read"]
        if not isinstance(found, dict):
            raise TypeError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise TaskFailed("tool-failed", "fio's answer is not what it should be") from None
    if whole(job.get("error")):
        raise TaskFailed("tool-failed", f"fio met error {job['error']}")
    return found


def _of(found: Mapping[str, Any], name: str) -> float | None:
    value = found.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
