"""Tasks of a Redfish BMC: their effect comes when they end, by the rack's clock."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

COMPLETED, WARNED, ERRORS, EXCEPTION, PURGED = "completed", "warned", "errors", "exception", "purged"
AT_BOOT: Final = math.inf  # seconds of a Task that waits for the machine's next boot
PATH: Final = "/redfish/v1/TaskService/Tasks"


@dataclass(slots=True)
class Task:
    id: str
    name: str
    began: float
    due: float
    ends: str
    effect: Callable[[], bool]  # whether it succeeded
    about: str = ""  # the resource that it works on
    state: str = "Running"
    message: str = ""  # why it failed
    shown: bool = True  # among the Tasks; else it is nothing but work under way

    @property
    def path(self) -> str:
        return f"{PATH}/{self.id}"

    @property
    def over(self) -> bool:
        return self.state in ("Completed", "Exception")


class Tasks:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}

    def start(
        self, name: str, seconds: float, effect: Callable[[], bool], ends: str = COMPLETED, about: str = ""
    ) -> Task:
        now = self._clock()
        with self._lock:
            task = Task(str(next(self._ids)), name, now, now + seconds, ends, effect, about)
            self._tasks[task.id] = task
        return task

    def now(self) -> float:
        return self._clock()

    def end_at_boot(self, about: str) -> None:
        """The Tasks on that resource that waited for a boot are due; ended by the next look, whatever locks are held now."""
        with self._lock:
            for task in self._tasks.values():
                if task.about == about and task.due == AT_BOOT:
                    task.due = self._clock()

    def settle(self) -> None:
        """End what is due. An effect runs without the lock: it looks at machines, and machines settle first."""
        now = self._clock()
        with self._lock:
            due = [task for task in self._tasks.values() if task.state == "Running" and now >= task.due]
            for task in due:
                task.state = "Stopping"
        for task in due:
            done = task.ends not in (ERRORS, EXCEPTION) and task.effect()
            with self._lock:
                task.state = "Completed" if done or task.ends == ERRORS else "Exception"
                if task.ends == PURGED:
                    self._tasks.pop(task.id, None)

    def listed(self) -> list[Task]:
        self.settle()
        with self._lock:
            return list(self._tasks.values())

    def find(self, task_id: str) -> Task | None:
        self.settle()
        with self._lock:
            return self._tasks.get(task_id)

    def running_on(self, about: str) -> Task | None:
        return next((task for task in self.listed() if task.about == about and not task.over), None)

    def purge(self, task_id: str) -> bool:
        with self._lock:
            return self._tasks.pop(task_id, None) is not None

    def percent(self, task: Task) -> int:
        if task.over:
            return 100
        length = task.due - task.began
        return 0 if length <= 0 else max(0, min(99, int(100 * (self._clock() - task.began) / length)))

    def document(self, task: Task) -> dict[str, Any]:
        failed = task.state == "Exception" or (task.over and task.ends == ERRORS)
        messages = [] if not task.over else [_message(failed, task.message)]
        return {
            "@odata.id": task.path,
            "@odata.type": "#Task.v1_7_4.Task",
            "Id": task.id,
            "Name": task.name,
            "TaskState": "Running" if task.state == "Stopping" else task.state,
            "TaskStatus": "Critical" if failed else "Warning" if task.over and task.ends == WARNED else "OK",
            "PercentComplete": self.percent(task),
            "TaskMonitor": f"/redfish/v1/TaskService/TaskMonitors/{task.id}",
            "Messages": messages,
        }


def _message(failed: bool, why: str = "") -> dict[str, str]:
    if failed:
        return {
            "MessageId": "Base.1.18.GeneralError",
            "Message": why or "The operation failed.",
            "MessageSeverity": "Critical",
        }
    return {"MessageId": "Base.1.18.Success", "Message": "The request completed successfully.", "MessageSeverity": "OK"}
