"""Tasks and monitors as BMCs serve them: followed to their end, and never taken for a success because nothing can be seen."""

from __future__ import annotations

from typing import Any

import pytest

from bcmetal_drivers.errors import TaskFailed
from bcmetal_drivers.redfish_tasks import read_job, started, wait_for
from bcmetal_drivers.resources import JobState
from raw_bmc import DOCS, RESET, Asked, RawBmc, a_door, a_raw_bmc, answer, documents, error

TASK = "/redfish/v1/TaskService/Tasks/7"
MONITOR = "/redfish/v1/TaskService/TaskMonitors/7"


def a_task(state: Any = "Completed", **more: Any) -> dict[str, Any]:
    return {"@odata.type": "#Task.v1_4_0.Task", "@odata.id": TASK, "Id": "7", "TaskState": state, **more}


RUNNING, DONE = a_task("Running"), a_task()
GONE, RESTARTING = error("Base.1.0.ResourceMissingAtURI", status=404), answer(b"<html>", 502)


def a_script(first: bytes, *looks: bytes) -> Any:
    """The action is answered with `first`, each look at the Task or its monitor with the next, the last one for ever."""
    left = list(looks)

    def script(asked: Asked) -> Any:
        if asked.path == RESET:
            return [first]
        if asked.path in (TASK, MONITOR):
            return [left.pop(0) if len(left) > 1 else left[0]]
        return documents(DOCS)(asked)

    return script


def followed(bmc: RawBmc) -> int:
    """How often the Task was looked at."""
    with a_door(bmc) as door, door.call():
        wait_for(door, door.post(RESET, data={}))
    return len(bmc.seen("GET", "/TaskService/"))


@pytest.mark.parametrize(
    ("first", "looks", "count"),
    [
        (answer(RUNNING, 202, Location=MONITOR), [answer(RUNNING), answer(DONE)], 2),
        (answer(RUNNING, 202), [answer(RUNNING), answer(DONE)], 2),
        (answer(b"Accepted", 202, Location=MONITOR), [answer(None, 202), answer(None, 202), answer(None, 204)], 3),
        (answer(None, 202, Location=MONITOR), [answer(None, 202, Retry_After="0"), answer(DONE)], 2),
        (answer(None, 202, Location=MONITOR), [answer({"Id": "what was made"})], 1),
        (answer(None, 202, Location=TASK), [GONE, GONE, answer(RUNNING), answer(DONE)], 4),
        (answer(None, 202, Location=TASK), [answer(RUNNING), RESTARTING, answer(DONE)], 3),
        (answer(None, 202, Location=TASK), [answer(a_task("Wandering")), answer(DONE)], 2),
        (answer(None, 202, Location=TASK), [answer(a_task("completed"))], 1),
        (answer(None, 202, Location=TASK), [answer(a_task("Wandering", EndTime="2026-01-01T00:00:00Z"))], 1),
        (answer(None, 202, Location=TASK), [answer(a_task("Wandering", PercentComplete=100))], 1),
        (answer(None, 202, Location=TASK), [answer(a_task("in progress")), answer(a_task("Success"))], 2),
        (answer(None, 202, Location=TASK), [answer(a_task("Wandering", EndTime="TIME_NA")), answer(DONE)], 2),
        (answer(None, 202, Location=TASK), [answer(a_task("Running", PercentComplete="100", EndTime="1970-01-01T00:09:00"))], 1),
        (answer(None, 202), [GONE], 0),
        (answer(None, 204), [GONE], 0),
    ],
    ids=[
        *("task-and-monitor", "task-without-location", "prose-and-monitor", "monitor-turns-into-task", "monitor-shows-result"),
        *("not-there-yet", "restarts-meanwhile", "odd-word-goes-on", "lower-case", "odd-word-ended", "odd-word-at-100"),
        *("makers-words", "end-is-not-told-yet", "ended-and-runs"),
        *("nothing-to-look-at", "done-at-once"),
    ],
)  # fmt: skip
def test_a_task_is_followed_to_its_end(first: bytes, looks: list[bytes], count: int) -> None:
    with a_raw_bmc(a_script(first, *looks)) as bmc:
        assert followed(bmc) == count


@pytest.mark.parametrize(
    "end",
    [
        a_task("Exception"),
        a_task("Completed with errors", Messages=[{"Message": "no luck"}]),
        a_task("Completed", TaskStatus="Critical"),
        a_task("Done", TaskStatus="WARNING"),
        a_task("canceled"),
        a_task("Killed", Messages="none"),
    ],
    ids=lambda end: str(end["TaskState"]),
)
def test_a_task_that_ended_badly_is_a_failure(end: dict[str, Any]) -> None:
    with a_raw_bmc(a_script(answer(None, 202, Location=TASK), answer(end))) as bmc, pytest.raises(TaskFailed):
        followed(bmc)


def test_a_task_that_stands_at_its_end_and_runs_is_not_waited_for_until_the_deadline() -> None:
    standing = answer(a_task("Running", PercentComplete=100))
    with a_raw_bmc(a_script(answer(None, 202, Location=TASK), standing)) as bmc:
        assert followed(bmc) == 7


@pytest.mark.parametrize(
    "look",
    [
        GONE,
        answer(a_task(None, Messages=[{"Message": "something happened"}])),
        answer(a_task("Wandering", PercentComplete=100)),
    ],
    ids=["purged", "messages-only", "odd-word"],
)
def test_of_what_cannot_be_told_nothing_is_claimed(look: bytes) -> None:
    with a_raw_bmc(a_script(answer(None, 202, Location=TASK), look)) as bmc, a_door(bmc) as door, door.call():
        assert read_job(door, TASK).state is JobState.UNKNOWN


def test_an_action_that_names_no_task_has_an_unknown_job() -> None:
    with a_raw_bmc(a_script(answer(None, 202), GONE)) as bmc, a_door(bmc) as door, door.call():
        assert started(door, door.post(RESET, data={})).state is JobState.UNKNOWN
