"""One task at work in a thread of its own: what it says of itself is gathered here, and whatever becomes of it is an outcome."""

from __future__ import annotations

import errno
import importlib
import re
import threading
import traceback
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final, Literal

from bcmetal_agent import wire
from bcmetal_agent.session import AnyTask
from bcmetal_agent.tasks.doing import ImageDoor, Stopped, TaskFailed
from bcmetal_agent.wire_tasks import LOG_CHUNK, PARAMS, REPORT_LIMIT, Report

PENDING_LIMIT: Final = 2**20  # characters of log that nobody has heard yet
_TRACE_LIMIT: Final = 16 * 1024
_WORD: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LEFT_OUT: Final = "\n[the log went on while nobody could be told of it: {} characters are left out]\n"

Table = Mapping[str, tuple[str, str]]

# Kind: module and function. Imported when it is its turn: a module that cannot be imported is one failed task.
TABLE: Final[Table] = {
    "inventory": ("bcmetal_agent.tasks.inventory", "inventory"),
    "test": ("bcmetal_agent.tasks.hardware_tests", "test"),
    "erase": ("bcmetal_agent.tasks.erase", "erase"),
    "writeImage": ("bcmetal_agent.tasks.write_image", "write_image"),
    "writeConfigDrive": ("bcmetal_agent.tasks.config_partition", "write_config_drive"),
    "setBoot": ("bcmetal_agent.tasks.set_boot", "set_boot"),
    "rescue": ("bcmetal_agent.tasks.rescue", "rescue"),
    "poweroff": ("bcmetal_agent.tasks.power", "poweroff"),
    "reboot": ("bcmetal_agent.tasks.power", "reboot"),
}


@dataclass(frozen=True)
class Outcome:
    """`state` stopped: nobody waits for it, there is nothing to report."""

    state: Literal["done", "failed", "stopped"]
    result: wire.Json | None = None
    code: str | None = None
    message: str | None = None


class Work:
    """A `Doing`. `began_at`: how much of the task's log the daemon has from an earlier run of it."""

    def __init__(self, task: AnyTask, image: ImageDoor, began_at: int = 0, table: Table = TABLE) -> None:
        self.task = task
        self._image, self._table = image, table
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._progress, self._message = 0, ""
        self._said, self._offset, self._left_out = "", began_at, 0
        self._changed = True
        pool = ThreadPoolExecutor(1, "task")
        self._future: Future[wire.Json] = pool.submit(self._perform)
        pool.shutdown(wait=False)  # no more than this one

    # ------------------------------------------------------------ for the task

    def progress(self, thousandths: int, message: str | None = None) -> None:
        with self._lock:
            before = (self._progress, self._message)
            self._progress = min(max(thousandths, 0), 1000)
            self._message = self._message if message is None else _line(message)
            self._changed = self._changed or before != (self._progress, self._message)

    def log(self, text: str) -> None:
        clean = "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)
        with self._lock:
            room = PENDING_LIMIT - len(self._said)
            self._said += clean[:room]
            self._left_out += max(0, len(clean) - room)
            self._changed = True

    def check(self) -> None:
        if self._stop.is_set():
            raise Stopped

    # ------------------------------------------------------------ for the loop

    def stop(self) -> None:
        self._stop.set()

    def ended(self, within_s: float) -> bool:
        return bool(wait([self._future], within_s).done)

    @property
    def changed(self) -> bool:
        """Whether there is something to tell."""
        with self._lock:
            return self._changed

    @property
    def offset(self) -> int:
        """How much of the log was heard."""
        with self._lock:
            return self._offset

    def running(self) -> Report:
        with self._lock:
            if self._left_out and len(self._said) < PENDING_LIMIT - 200:
                self._said += _LEFT_OUT.format(self._left_out)
                self._left_out = 0
            return Report(
                self.task.task_id,
                "running",
                self._progress,
                self._message or None,
                log=self._said[:LOG_CHUNK] or None,
                log_offset=self._offset,
            )

    def heard(self, report: Report) -> None:
        """That report, of `running`, has arrived."""
        with self._lock:
            sent = len(report.log or "")
            self._said, self._offset = self._said[sent:], self._offset + sent
            same = (self._progress, self._message) == (report.progress, report.message or "")
            self._changed = bool(self._said or self._left_out) or not same

    def outcome(self) -> Outcome:
        """Of a task that has ended. What is no TaskFailed is a fault of this agent: its class is told, and in the log where it was."""
        fault = self._future.exception()
        if fault is None:
            return Outcome("done", self._future.result())
        if isinstance(fault, Stopped):
            return Outcome("stopped")
        if isinstance(fault, TaskFailed):
            code = fault.code if _WORD.fullmatch(fault.code) and len(fault.code) <= 64 else "task-failed"
            return Outcome("failed", None, code, _line(str(fault)) or "it gave no reason")
        # Its text may hold anything, a secret of the params too: only its class, and the places in our code.
        trace = "".join(traceback.format_tb(fault.__traceback__))
        self.log(f"{trace[-_TRACE_LIMIT:]}{_name(fault)}\n")
        return Outcome("failed", None, "agent-fault", f"the agent did not expect this: {_name(fault)}")

    def final(self, outcome: Outcome) -> Report:
        """Without log: `running` reports take that first."""
        failed = outcome.state == "failed"
        return Report(
            self.task.task_id,
            "failed" if failed else "done",
            self._progress if failed else 1000,
            self._message or None,
            outcome.result,
            outcome.code,
            outcome.message,
            log_offset=self._offset,
        )

    # ------------------------------------------------------------ in the thread

    def _perform(self) -> wire.Json:
        where = self._table.get(self.task.kind)
        if where is None or self.task.kind not in PARAMS:
            raise TaskFailed("unknown-task", f"this agent does not know the task {_line(self.task.kind)[:64]!r}")
        try:
            params = wire.read_doc(PARAMS[self.task.kind], self.task.params)
        except wire.BadMessage as error:
            raise TaskFailed("bad-params", f"the task's {error}") from None
        function = getattr(importlib.import_module(where[0]), where[1])
        arguments: list[Any] = [params, self]
        if self.task.kind == "writeImage":
            arguments.append(self._image)
        result = function(*arguments)
        self.check()
        doc = wire.to_doc(result)
        try:
            wire.read_doc(type(result), doc)
            too_large = len(wire.encode(Report(self.task.task_id, "done", result=doc))) > REPORT_LIMIT - 8192
        except wire.BadMessage as error:
            raise TaskFailed("agent-fault", f"the result is not of its shape: {error}") from None
        if too_large:
            raise TaskFailed("agent-fault", f"the result is larger than {REPORT_LIMIT} bytes")
        return doc


def _name(fault: BaseException) -> str:
    number = fault.errno if isinstance(fault, OSError) else None
    return type(fault).__name__ + (f" {errno.errorcode.get(number, number)}" if number is not None else "")


def _line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:1000].strip()
