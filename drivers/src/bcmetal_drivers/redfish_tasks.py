"""Redfish Tasks and their monitors (DSP0266, "Asynchronous operations").

A Task that is gone is not a success: makers purge them, some before anybody could look.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import sushy.exceptions

from bcmetal_drivers.door import Door, tolerated
from bcmetal_drivers.errors import DriverError, Malformed, TaskFailed, TimedOut
from bcmetal_drivers.origin import path_alone
from bcmetal_drivers.redfish_document import number, printable, text
from bcmetal_drivers.refusals import retry_after_s
from bcmetal_drivers.resources import Job, JobState
from bcmetal_drivers.wire import Answer

POLL_S: Final = 0.2
POLL_AT_MOST_S: Final = 3.0
WHOLE_LOOKS: Final = 6  # some Tasks never leave Running
GRACE_S: Final = 2.0  # some BMCs answer 404 for a Task that they made just now
GONE: Final = "the BMC does not know this task any more"
MESSAGE_LIMIT: Final = 200

STATES: Final = {
    **dict.fromkeys(("Completed", "RebootCompleted", "Complete", "Success", "Successful", "Finished", "Done"), JobState.DONE),
    **dict.fromkeys(
        (
            "Exception", "Killed", "Cancelled", "CompletedWithErrors", "Failed", "RebootFailed", "Invalid", "Canceled", "Aborted",
            "Error", "Failure",
        ),
        JobState.FAILED,
    ),
    **dict.fromkeys(
        (
            "New", "Starting", "Running", "Suspended", "Interrupted", "Pending", "Stopping", "Service", "Cancelling",
            "Continue", "UserIntervention", "Scheduled", "Scheduling", "ReadyForExecution", "Waiting", "Downloading",
            "Downloaded", "Paused", "PendingActivation", "RebootPending", "InProgress", "Queued",
        ),
        JobState.RUNNING,
    ),
}  # fmt: skip
WORDS: Final = {word.lower(): state for word, state in STATES.items()}
NOT_NOW: Final = (429, 500, 502, 503, 504)  # to a look at a Task
MONITORS: Final = ("TaskMonitor", "Location")  # in the body, where some makers put what belongs into the header
DATE: Final = re.compile(r"(?!0000)\d{4}-\d\d-\d\d")
STATE_KEYS: Final = ("TaskState", "JobState")  # a Task, or a Job: an iDRAC names either where it began one


def reference(answer: Answer) -> str | None:
    """Where the Task of this answer is found again: the Task itself rather than its monitor, which is good for one look only."""
    body = _body(answer)
    own = body.get("@odata.id")
    if isinstance(own, str) and _is_task(body) and (path := path_alone(own)):
        return path
    named = [answer.headers.get("Location"), own, *(body.get(name) for name in MONITORS)]
    return next((path for one in named if isinstance(one, str) and (path := path_alone(one))), None)


def _look_again(door: Door, job: Job) -> Job:
    """A BMC that restarts, or is too busy to tell, has not ended the Task by that."""
    try:
        return read_job(door, job.ref)
    except sushy.exceptions.HTTPError as error:
        if error.status_code not in NOT_NOW:
            raise
        return job


def read_job(door: Door, ref: str) -> Job:
    """How it stands. Raises the door's errors; a Task that is not there is UNKNOWN."""
    try:
        answer = door.get(ref)
    except sushy.exceptions.HTTPError as error:
        if error.status_code in (404, 410):
            return Job(ref, JobState.UNKNOWN, None, GONE)
        raise
    body = _body(answer)
    if _is_task(body):
        return _of(ref, body)
    return Job(ref, JobState.RUNNING if answer.status_code == 202 else JobState.DONE)


def of_accepted(door: Door, ref: str) -> Job:
    """How what a BMC accepted stands. No error of the look leaves: it would say of the action that it was refused. It is looked at again."""
    with tolerated(DriverError):
        return read_job(door, ref)
    return Job(ref, JobState.RUNNING)


def started(door: Door, answer: Answer) -> Job:
    """The job that an accepted action began; seen once, so that a later 404 means that it is gone.

    Raises Malformed for an answer that cannot be read; a look that fails raises nothing.
    """
    if answer.status_code != 202:
        body = _body(answer)
        return _of(reference(answer) or "", body) if _is_task(body) else Job("", JobState.DONE)
    ref = reference(answer)
    if ref is None:
        return Job("", JobState.UNKNOWN, None, "the BMC names no task")
    job = of_accepted(door, ref)
    end = time.monotonic() + GRACE_S
    with tolerated(TimedOut):
        while job.message == GONE and time.monotonic() < end:
            time.sleep(door.left_s(POLL_S))
            job = of_accepted(door, ref)
    return job


def wait_for(door: Door, answer: Answer) -> Answer:
    """Follow the Task of an answer 202 to its end, within the call's deadline; another answer passes as it is.

    Raises TaskFailed, TimedOut when it does not end. One that vanishes, or stands at 100 % and runs, passes: the caller reads the state back.
    """
    if answer.status_code != 202:
        return answer
    wait = retry_after_s(answer) or POLL_S
    if reference(answer) is None:
        time.sleep(door.left_s(min(wait, POLL_AT_MOST_S)))  # nothing to look at but the state, when the BMC says so
        return answer
    job = started(door, answer)
    whole = 0  # looks at a Task that shows all of it done, and runs
    while job.state is JobState.RUNNING and whole < WHOLE_LOOKS:
        time.sleep(door.left_s(min(max(wait, POLL_S), POLL_AT_MOST_S)))
        wait *= 1.5
        job = _look_again(door, job)
        whole = whole + 1 if job.progress == 1 else 0
    if job.state is JobState.FAILED:
        raise TaskFailed(f"{answer.url}: the BMC took it, and its task failed: {job.message or 'no reason given'}")
    return answer


def until(door: Door, answer: Answer, missing: Callable[[], list[str]]) -> list[str]:
    """What is still missing once nothing is, or once the Task that the answer began has ended. Raises TaskFailed.

    For writes that are done before their Task is: one that waits for a boot ends at no other time.
    """
    job = started(door, answer)
    left = missing()
    while left and job.state is JobState.RUNNING:
        time.sleep(door.left_s(POLL_S))
        job = _look_again(door, job)
        left = missing()
    if job.state is JobState.FAILED:
        raise TaskFailed(f"{answer.url}: the BMC took it, and its task failed: {job.message or 'no reason given'}")
    return left


def _body(answer: Answer) -> Mapping[str, Any]:
    if not answer.content:
        return {}
    try:
        return answer.json()
    except Malformed:
        if answer.status_code == 202:
            return {}  # some say "Accepted" in prose; the Location counts
        raise


def _is_task(body: Mapping[str, Any]) -> bool:
    kind = body.get("@odata.type")
    return any(isinstance(body.get(key), str) for key in STATE_KEYS) or (
        isinstance(kind, str) and kind.startswith("#Task.")
    )


def _of(ref: str, body: Mapping[str, Any]) -> Job:
    word = next((body[key] for key in STATE_KEYS if isinstance(body.get(key), str)), "")
    state = WORDS.get(word.replace(" ", "").lower()) or _of_another_word(body)
    status = text(body, "TaskStatus") or text(body, "JobStatus") or ""
    if state is JobState.DONE and status.lower() in ("warning", "critical"):
        state = JobState.FAILED  # completed, with errors
    percent = number(body, "PercentComplete")
    if state is JobState.RUNNING and percent == 100 and _has_ended(body):
        state = JobState.UNKNOWN
    return Job(ref, state, percent / 100 if percent is not None and 0 <= percent <= 100 else None, _message(body))


def _of_another_word(body: Mapping[str, Any]) -> JobState:
    """Of a word that nobody knows, or none: it runs until the Task says that it is at its end, and then nobody knows how it ended."""
    ended = _has_ended(body) or number(body, "PercentComplete") == 100
    return JobState.UNKNOWN if ended or not any(body.get(key) for key in STATE_KEYS) else JobState.RUNNING


def _has_ended(body: Mapping[str, Any]) -> bool:
    """Whether it tells when it ended. An iDRAC writes TIME_NA there until then, others a date of zeros."""
    return any(DATE.match(text(body, name) or "") for name in ("EndTime", "CompletionTime"))


def _message(body: Mapping[str, Any]) -> str:
    messages = body.get("Messages", [{"Message": body.get("Message")}])
    texts = [
        str(message.get("Message") or message.get("MessageId") or "")
        for message in (messages if isinstance(messages, list) else [])
        if isinstance(message, Mapping)
    ]
    said = " · ".join(dict.fromkeys(text for text in texts if text))
    return printable(said)[:MESSAGE_LIMIT]
