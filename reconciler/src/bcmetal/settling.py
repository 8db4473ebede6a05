"""What the outcome of a step does: pure, and the same history always settles in the same way.

No I/O, no clock, no randomness: `now` comes in as microseconds since the epoch, and the jitter of a retry is a hash of the operation,
the step and the attempt. `settle` is total: whatever a step hands back, there is a next run or an end.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NewType

from bcmetal.states import (
    AWAY_UNCOUNTED_S,
    BACKS_ALLOWED,
    CLEANUP_BUDGET_S,
    WORKFLOWS,
    State,
    Verb,
    failure_of,
    success_of,
)

Micros = NewType("Micros", int)
SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Done:
    """The step's goal is there."""


@dataclass(frozen=True, slots=True)
class Again:
    """Not yet: look again after some seconds. `why` is a sentence; operators read it. `progress` from 0 to 1, None unknown."""

    why: str
    after_s: float
    progress: float | None = None


@dataclass(frozen=True, slots=True)
class Back:
    """The ground was lost: go back to a step by its name."""

    step: str
    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot be done. `code` is one of `errors.LAST_ERRORS`."""

    code: str
    why: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A transient error inside the step: try again with backoff. Made by the engine from a driver's Transient."""

    code: str
    why: str
    retry_after_s: float | None = None


Outcome = Done | Again | Back | Failed | Trouble


@dataclass(frozen=True, slots=True)
class LastError:
    code: str
    message: str
    step: str
    at: Micros


@dataclass(frozen=True, slots=True)
class Run:
    """The durable cursor of a workflow: a row of `operations`, and nothing else decides how it goes on.

    `steps` and `cleanup` are the workflow's step names, from its file. While `cleaning`, `step` is one of `cleanup` and `error` is why.
    """

    operation_id: str
    node_id: str
    verb: Verb
    origin: State
    steps: tuple[str, ...]
    cleanup: tuple[str, ...]
    step: str
    budget_us: int
    counted_at: Micros
    attempt: int = 0  # transient errors in this step so far, in a row
    backs: int = 0
    touched: bool = False
    abort: bool = False
    cleaning: bool = False
    error: LastError | None = None  # while it runs: the last transient error; while cleaning: why it failed
    budget_used_us: int = 0
    asked_wait_us: int = 0
    wake_at: Micros = Micros(0)
    waiting_for: str | None = None
    waiting_since: Micros | None = None
    progress: float | None = None
    held: bool = False  # maintenance or freeze, as of now
    away_since: Micros | None = None  # the BMC's breaker is open since


class EndStatus(StrEnum):
    DONE = "done"
    FAILED = "failed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Ended:
    """The workflow is over, and this is the node's state from now on."""

    operation_id: str
    node_id: str
    verb: Verb
    status: EndStatus
    state: State
    touched: bool
    error: LastError | None = None


BACKOFF_FIRST_S: Final = 2.0
BACKOFF_LAST_S: Final = 60.0
UNASKED_S: Final = 60  # what a step's own work may count for when it asked for no wait
CLEANUP_ATTEMPTS: Final = 3
LONGEST_WAIT_S: Final = 3600.0  # whatever a step asks for: the budget is looked at again by then
LONGEST_RETRY_AFTER_S: Final = 600.0
REPEATED_WAIT_S: Final = 1.0  # the least wait when the same answer comes twice: a BMC that lies must not be hammered


def backoff_s(operation_id: str, step: str, attempt: int) -> float:
    """Doubling from two seconds to a minute, times 0.75 to 1.25 by a hash, so that forty machines do not come back at once."""
    digest = hashlib.sha256(f"{operation_id}\0{step}\0{attempt}".encode()).digest()
    jitter = 0.75 + int.from_bytes(digest[:4], "big") / 2**33
    return float(min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(max(attempt - 1, 0), 10)) * jitter)


def counted_us(run: Run, now: Micros) -> int:
    """What this settle adds to the budget: the time since the last one, at most twice the wait that was asked."""
    since = max(0, now - run.counted_at)
    counted = min(since, max(2 * run.asked_wait_us, UNASKED_S * SECOND))
    if run.held:
        return 0
    away = run.away_since is not None and now - run.away_since < AWAY_UNCOUNTED_S * SECOND
    if away and run.touched and not run.cleaning and run.verb is not Verb.INSPECT:
        return 0
    return counted


def settle(run: Run, outcome: Outcome, now: Micros) -> Run | Ended:
    """What the outcome of the run's present step does.

    Time that passes ends every run: a wait counts, a Back is allowed three times, and a cleanup passes over what it cannot do.
    """
    used = run.budget_used_us + counted_us(run, now)
    run = replace(run, budget_used_us=used, counted_at=now, asked_wait_us=0)
    if run.cleaning:
        return _settle_cleanup(run, outcome, now)
    if run.abort and WORKFLOWS[run.verb].abortable:
        return _fail(run, Failed("aborted", "somebody aborted it"), now)
    if isinstance(outcome, Failed):
        return _fail(run, outcome, now)
    if isinstance(outcome, Done):
        return _advance(run, now)
    if used >= run.budget_us:
        minutes = run.budget_us // (60 * SECOND)
        last = outcome.why.rstrip(".")
        return _fail(
            run, Failed("deadline", f"the {minutes} minutes for {run.verb} are used up; it waited: {last}"), now
        )
    if isinstance(outcome, Back):
        return _go_back(run, outcome, now)
    return _wait(run, outcome, now)


def _advance(run: Run, now: Micros) -> Run | Ended:
    if run.step not in run.steps:
        return _fail(run, Failed("internal", f"{run.step} is no step of {run.verb}"), now)
    at = run.steps.index(run.step)
    if at + 1 == len(run.steps):
        row = WORKFLOWS[run.verb]
        return Ended(run.operation_id, run.node_id, run.verb, EndStatus.DONE, success_of(row, run.origin), run.touched)
    return replace(_fresh(run, run.steps[at + 1], now), error=None)


def _fresh(run: Run, step: str, now: Micros) -> Run:
    return replace(run, step=step, attempt=0, wake_at=now, waiting_for=None, waiting_since=None, progress=None)


def _go_back(run: Run, outcome: Back, now: Micros) -> Run | Ended:
    if outcome.step not in run.steps:
        return _fail(run, Failed("internal", f"{run.step} wants to go back to {outcome.step}, which is no step"), now)
    if run.backs >= BACKS_ALLOWED:
        return _fail(run, Failed("ground-lost", f"it went back {run.backs} times already; now: {outcome.why}"), now)
    return replace(_fresh(run, outcome.step, now), backs=run.backs + 1, waiting_for=outcome.why, waiting_since=now)


def _wait(run: Run, outcome: Again | Trouble, now: Micros) -> Run:
    same = run.waiting_for == outcome.why and run.waiting_since is not None
    if isinstance(outcome, Again):
        least_s = REPEATED_WAIT_S if same else 0.0
        wait_us = int(max(_bounded(outcome.after_s, LONGEST_WAIT_S), least_s) * SECOND)
        attempt, error, progress = 0, None, outcome.progress
    else:
        attempt = run.attempt + 1
        after_s = max(
            backoff_s(run.operation_id, run.step, attempt),
            _bounded(outcome.retry_after_s or 0.0, LONGEST_RETRY_AFTER_S),
        )
        wait_us, progress = int(after_s * SECOND), run.progress
        error = LastError(outcome.code, outcome.why, run.step, now)
    return replace(
        run,
        attempt=attempt,
        error=error,
        asked_wait_us=wait_us,
        wake_at=Micros(now + wait_us),
        waiting_for=outcome.why,
        waiting_since=run.waiting_since if same else now,
        progress=progress,
    )


def _bounded(asked_s: float, longest_s: float) -> float:
    """From 0 to the longest; what is no number is 0."""
    return min(max(0.0, asked_s), longest_s)


def _fail(run: Run, failure: Failed, now: Micros) -> Run | Ended:
    error = LastError(failure.code, failure.why, run.step, now)
    run = replace(run, error=error)
    if run.touched and run.cleanup:
        cleaning = _fresh(run, run.cleanup[0], now)
        return replace(cleaning, cleaning=True, budget_used_us=0, budget_us=CLEANUP_BUDGET_S * SECOND)
    return _end(run)


def _settle_cleanup(run: Run, outcome: Outcome, now: Micros) -> Run | Ended:
    """Bounded and best effort: a step waits while the cleanup's own budget lasts, and is passed over when it cannot be done."""
    spent = run.budget_used_us >= run.budget_us
    tries_left = not isinstance(outcome, Trouble) or run.attempt + 1 < CLEANUP_ATTEMPTS
    if not spent and tries_left and isinstance(outcome, Again | Trouble):
        waited = _wait(run, outcome, now)
        attempt = run.attempt if isinstance(outcome, Again) else waited.attempt
        return replace(waited, error=run.error, attempt=attempt)
    at = run.cleanup.index(run.step) if run.step in run.cleanup else len(run.cleanup)
    if at + 1 < len(run.cleanup):
        return _fresh(run, run.cleanup[at + 1], now)
    return _end(run)


def _end(run: Run) -> Ended:
    aborted = run.error is not None and run.error.code == "aborted"
    status = EndStatus.ABORTED if aborted else EndStatus.FAILED
    row = WORKFLOWS[run.verb]
    back = not run.touched and (run.verb is not Verb.INSPECT or aborted)
    state = run.origin if back else failure_of(row, run.origin)
    return Ended(run.operation_id, run.node_id, run.verb, status, state, run.touched, run.error)
