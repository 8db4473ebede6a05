"""What the agent does in the ramdisk: say hello, take one task after the other, and tell how each goes.

1. Take the boot token; without one, or with one that the daemon takes no more, wait and look for another.
2. Say hello until the daemon answers.
3. Ask for a task, do it in a thread, tell of it every two seconds, tell its end until that is heard. A task that was under way when the
   agent was killed is handed out again, and begun again.

Whatever goes wrong is said in plain words, which the ramdisk's scripts put on the console, and tried again with longer and longer breaks.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from bcmetal_agent import boot_token
from bcmetal_agent.boot_token import BadBootToken
from bcmetal_agent.calls import RetryLater
from bcmetal_agent.client import Refused
from bcmetal_agent.pace import Clock, Pace, SystemClock
from bcmetal_agent.session import AnyTask, Session, Site
from bcmetal_agent.state import StateError, write_file
from bcmetal_agent.tasks import power, rescue
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.tools import run as run_tool
from bcmetal_agent.wire_tasks import Heard, Idle, Report
from bcmetal_agent.working import TABLE, Outcome, Table, Work

TOKEN_FILE: Final = Path("/run/bcmetal/boot-token")
SITE_FILE: Final = Path("/etc/bcmetal/site.json")
FOLDER: Final = Path("/run/bcmetal/agent")
FINDER: Final = Path("/usr/lib/bcmetal/find-token")

TELL_S: Final = 2.0  # how often a task's progress is told
ALIVE_S: Final = 6.0  # how often where nothing has changed, so that a stop is heard
TEND_S: Final = 2.0  # how often the end of a rescue is looked for
LONGEST_S: Final = 30.0
OVER_S: Final = 30.0  # between two looks for a token that the daemon takes
_SAY_S: Final = 30.0  # how often the same words go to the console
log = logging.getLogger("bcmetal_agent")


class Over(Exception):
    """The daemon takes this boot token no more; the text is why."""


@dataclass(frozen=True)
class Places:
    token_file: Path = TOKEN_FILE
    site_file: Path = SITE_FILE
    folder: Path = FOLDER
    finder: Path | None = FINDER  # a program that looks for a newer token


@dataclass
class Ramdisk:
    """The loop. `open_session`: of a site, a token and a folder."""

    places: Places
    random: Callable[[], float]
    clock: Clock = field(default_factory=SystemClock)
    open_session: Callable[[Site, str, Path], Session] = Session
    tell_s: float = TELL_S
    alive_s: float = ALIVE_S
    over_s: float = OVER_S
    power_off: Callable[[str, Callable[[float], object]], None] = power.act
    table: Table = field(default_factory=lambda: TABLE)
    rescue_places: rescue.Places = field(default_factory=rescue.Places)
    _said: tuple[str, float] = ("", 0.0)

    def run(self) -> NoReturn:
        """For ever. Raises BadSite, StateError, OSError (of its own folder)."""
        site = Site.read(self.places.site_file)
        with self._alone():
            threading.Thread(target=self._end_rescues, daemon=True).start()
            while True:
                session = self.open_session(site, self._token(), self.places.folder)
                try:
                    self._serve(session)
                except Over as over:
                    self._look_anew(str(over))

    # ------------------------------------------------------------ the token

    def _token(self) -> str:
        while True:
            try:
                with self.places.token_file.open("rb") as file:
                    return boot_token.parse(file.read(boot_token.SIZE + 1))
            except (BadBootToken, OSError) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                self._look_anew(f"there is no boot token that can be used: {why}")

    def _look_anew(self, why: str) -> None:
        self._say(f"{why}; looking for another", every_s=600)
        self.clock.sleep(self.over_s)
        if self.places.finder is not None and self.places.finder.exists():
            try:
                run_tool([str(self.places.finder), "--anew"], deadline_s=90, expect=None)
            except TaskFailed as error:
                log.warning("%s", error)

    # ------------------------------------------------------------ the session

    def _serve(self, session: Session) -> NoReturn:
        """Raises Over."""
        self._hello(session)
        pace, refusals = self._pace(), self._pace()
        while True:
            asked_s = self.clock.monotonic()
            answer = session.next()
            if isinstance(answer, RetryLater):
                self._rest(answer, pace)
                continue
            pace.reset()
            if isinstance(answer, Refused):
                self._rest(RetryLater(f"the daemon refused to give a task: {answer.message}"), refusals)
                self._hello(session)
                continue
            refusals.reset()
            if isinstance(answer, Idle):
                # A daemon that answers at once, instead of when there is something to do, is not asked without a break.
                left_s = max(float(answer.after_s), 1.0 - (self.clock.monotonic() - asked_s))
                self.clock.sleep(min(max(left_s, 0.0), 300.0))
            else:
                self._do(session, answer)

    def _hello(self, session: Session) -> None:
        """Until welcome. Raises Over."""
        pace = self._pace()
        while True:
            answer = session.hello()
            if isinstance(answer, RetryLater):
                self._rest(answer, pace)
            elif isinstance(answer, Refused):
                raise Over(f"the daemon does not take this boot token ({answer.status}): {answer.message}")
            else:
                self._say(f"{session.site.server} ({session.site.name}) has heard this machine")
                return

    # ------------------------------------------------------------ a task

    def _do(self, session: Session, task: AnyTask) -> None:
        """Raises Over, once the task has stopped."""
        log.info("task %s (%s)", task.kind, task.task_id)
        began_at = self._heard_before(task)
        work = Work(task, session.image, began_at, self.table)
        if began_at:
            work.log("[the agent was started again, and has begun this task again]\n")
        try:
            wanted = self._accompany(session, work)
            if not wanted:
                work.stop()
                self._await_end(work)
                log.warning("task %s: nobody waits for it any more: stopped", task.kind)
                return
            outcome = work.outcome()
            if outcome.state != "stopped":
                self._finish(session, work, outcome)
        except BaseException:
            work.stop()
            raise
        finally:
            self._await_end(work)

    def _accompany(self, session: Session, work: Work) -> bool:
        """Until it has ended; False: as soon as nobody waits for it any more."""
        pace, due_s, heard_s = self._pace(), 0.0, 0.0
        while not work.ended(self.tell_s):
            now_s = self.clock.monotonic()
            if now_s < due_s or not (work.changed or now_s - heard_s >= self.alive_s):
                continue
            report = work.running()
            answer = session.report(report)
            if isinstance(answer, Refused):
                self._hello(session)
                answer = RetryLater(f"the daemon refused a report: {answer.message}")
            if isinstance(answer, RetryLater):
                due_s = self.clock.monotonic() + pace.after(answer.after_s)
                self._say(answer.reason)
                continue
            pace.reset()
            heard_s = self.clock.monotonic()
            self._note(work, report)
            if not answer.go_on:
                return False
        return True

    def _finish(self, session: Session, work: Work, outcome: Outcome) -> None:
        while (report := work.running()).log:
            if not self._insist(session, report):
                return
            self._note(work, report)
        kind = work.task.kind
        if not self._insist(session, work.final(outcome)):
            log.warning("task %s has ended, but nobody waits for it any more", kind)
            return
        if outcome.state == "failed":
            log.error("task %s failed: %s: %s", kind, outcome.code, outcome.message)
            return
        log.info("task %s is done", kind)
        if kind in power.COMMANDS:
            log.warning("%s now, as the daemon asked", kind)
            try:
                self.power_off(kind, self.clock.sleep)
            except TaskFailed as error:
                log.error("%s", error)

    def _insist(self, session: Session, report: Report) -> bool:
        """Until it is heard; False: the daemon does not take it, or waits for this task no more. Raises Over."""
        pace, refused = self._pace(), 0
        while True:
            answer = session.report(report)
            if isinstance(answer, Heard):
                return answer.go_on
            if isinstance(answer, Refused):
                self._hello(session)
                refused += 1
                if refused > 1:
                    log.error("the daemon does not take the report of task %s: %s", report.task_id, answer.message)
                    return False
                answer = RetryLater(f"the daemon refused a report: {answer.message}")
            self._rest(answer, pace)

    def _await_end(self, work: Work) -> None:
        while not work.ended(_SAY_S):
            log.warning("waiting for task %s to stop", work.task.kind)

    # ------------------------------------------------------------ what is kept of a task, for an agent that is killed

    def _heard_before(self, task: AnyTask) -> int:
        try:
            doc = json.loads((self.places.folder / "task.json").read_text())
            return int(doc["offset"]) if doc["taskId"] == task.task_id else 0
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def _note(self, work: Work, report: Report) -> None:
        work.heard(report)
        if report.log:
            doc = {"taskId": work.task.task_id, "offset": work.offset}
            write_file(self.places.folder / "task.json", json.dumps(doc))

    def _end_rescues(self) -> NoReturn:
        """Also one that was opened before this agent was started, and while the daemon is not heard."""
        while True:
            try:
                ended = rescue.tend(self.rescue_places)
            except OSError as error:
                log.error("a rescue whose time is over cannot be ended: %s", error.strerror)
            else:
                if ended:
                    log.warning("%s", ended)
            time.sleep(TEND_S)

    # ------------------------------------------------------------ words and breaks

    def _pace(self) -> Pace:
        return Pace(self.random, longest_s=LONGEST_S)

    def _rest(self, answer: RetryLater, pace: Pace) -> None:
        seconds = pace.after(answer.after_s)
        self._say(f"{answer.reason}; trying again")
        self.clock.sleep(seconds)

    def _say(self, text: str, every_s: float = _SAY_S) -> None:
        """Not the same again so soon: the console is also for the ramdisk's other words."""
        now_s = self.clock.monotonic()
        if text != self._said[0] or now_s - self._said[1] >= every_s:
            self._said = (text, now_s)
            log.warning("%s", text)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self.places.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.places.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise StateError(f"another agent works in {self.places.folder}") from None
        try:
            yield
        finally:
            os.close(lock)
