"""The test `clock`: the hardware clock against the daemon's, and against the kernel's steady one. No NTP is asked: there may be none."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.hardware_trial import Trial
from bcmetal_agent.tasks.look_files import names, number
from bcmetal_agent.wire_tasks import TestResult

_RTC: Final = "sys/class/rtc"
DRIFT_FROM_S: Final = 60  # below, the whole seconds of the clock are too coarse
_TICK_S: Final = 2.5  # in which the clock's second has to change


def clock(trial: Trial) -> TestResult:
    rtc = next(iter(names(trial.machine.path(_RTC))), None)
    if rtc is None:
        return TestResult("the kernel has no hardware clock")
    server = _server_time(trial)
    first, first_at, first_late = _edge(trial, rtc)
    if first is None:
        return TestResult("the hardware clock stands still, or cannot be read", False)
    figures: dict[str, object] = {"rtc": datetime.fromtimestamp(first, UTC).isoformat()}
    wrong: list[str] = []
    if server is not None:
        skew = first - (server + (first_at - trial.started))
        figures["skew_s"] = round(skew, 1)
        figures["system_skew_s"] = round(time.time() - (server + (time.monotonic() - trial.started)), 1)
        wrong += trial.over("skew_s", abs(round(skew, 1)), f"seconds that the hardware clock is off{_zone(skew)}")
    drift = None
    if trial.duration_s >= DRIFT_FROM_S:
        _wait(trial)
        last, last_at, last_late = _edge(trial, rtc)
        if last is None:
            wrong.append("the hardware clock stopped during the test")
        else:
            drift = round((last - first) / (last_at - first_at) * 1e6 - 1e6)
            unsure = round((first_late + last_late) / (last_at - first_at) * 1e6)
            figures |= {"drift_ppm": drift, "drift_unsure_ppm": unsure}
            surely = max(abs(drift) - unsure, 0)
            wrong += trial.over("drift_ppm", surely, "parts in a million that the hardware clock drifts")
    told = f"the hardware clock says {figures['rtc']}"
    if server is None:
        told += "; the daemon's time was not given to compare it with"
    else:
        told += f", {figures['skew_s']} s off the daemon's"
    if drift is not None:
        told += f", drift {drift} ppm"
    judged = server is not None or drift is not None or bool(wrong)
    return TestResult("; ".join(wrong) or told, not wrong if judged else None, figures)


def _server_time(trial: Trial) -> float | None:
    given = trial.given.get("server_time")
    if given is None:
        return None
    try:
        found = datetime.fromisoformat(given)
    except (TypeError, ValueError):
        raise TaskFailed("bad-limits", "server_time is no time of RFC 3339") from None
    if found.tzinfo is None:
        raise TaskFailed("bad-limits", "server_time has no offset")
    return found.timestamp()


def _edge(trial: Trial, rtc: str) -> tuple[int | None, float, float]:
    """The moment at which the clock's second changes: what it says then, the steady clock, and how late that may have been seen."""
    file = trial.machine.path(_RTC) / rtc / "since_epoch"
    before, seen_at = number(file), time.monotonic()
    until = seen_at + _TICK_S
    while seen_at < until:
        now, at = number(file), time.monotonic()
        if now != before:
            return now, at, at - seen_at
        trial.doing.check()
        seen_at = at
        time.sleep(0.01)
    return None, seen_at, 0.0


def _wait(trial: Trial) -> None:
    while (elapsed := time.monotonic() - trial.started) < trial.duration_s:
        trial.doing.check()
        trial.doing.progress(min(int(elapsed / trial.duration_s * 1000), 990), "watching the hardware clock")
        time.sleep(min(0.5, trial.duration_s - elapsed))


def _zone(skew: float) -> str:
    hours = round(skew / 3600)
    return " (whole hours: it keeps local time)" if hours and abs(hours) <= 14 and abs(skew - hours * 3600) < 60 else ""
