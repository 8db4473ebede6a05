"""Tasks for a machine's agent: put by its operation, handed out one at a time, reported on until they are done or failed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from bcmetal.decisions import Micros
from bcmetal.store import jsontext
from bcmetal.store.agent_tables import agent_tasks, op_logs
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.upsert import insert as upsert
from bcmetal.store.values import Json
from bcmetal.text import log_text

LOG_LIMIT: Final = 4 * 2**20  # characters kept of one task's log
AGAIN: Final = "[bcmetal: the machine was started again, and this task with it]\n"
State = Literal["waiting", "handed", "running", "done", "failed"]

t = agent_tasks.c


@dataclass(frozen=True, slots=True)
class AgentTaskRow:
    """`params` hold no secret. `file`: on the shelf, the agent may fetch it. `progress` in thousandths. `handed_at`: for the first
    time; `session_id`: of the agent that it was handed to last. `ended_at`: done, failed, or given up."""

    task_id: str
    operation_id: str
    node_id: str
    name: str
    kind: str
    params: Json
    file: str | None
    state: State
    progress: int
    message: str | None
    result: Json | None
    error_code: str | None
    error_message: str | None
    log_read: int
    log_kept: int
    created_at: Micros
    handed_at: Micros | None
    session_id: str | None
    reported_at: Micros | None
    ended_at: Micros | None


@dataclass(frozen=True, slots=True)
class NewReport:
    """What an agent says of its task. `log` as it came; `log_offset`: of its first character in all that the agent has sent."""

    state: Literal["running", "done", "failed"]
    progress: int = 0
    message: str | None = None
    result: Json | None = None
    error_code: str | None = None
    error_message: str | None = None
    log: str = ""
    log_offset: int = 0


_PUT: Final = upsert(agent_tasks).on_conflict_do_nothing(index_elements=[t.operation_id, t.name])
_OF: Final = select(agent_tasks).where(t.operation_id == bindparam("operation_id"), t.name == bindparam("name"))
_OPEN: Final = (
    select(agent_tasks)
    .where(t.operation_id == bindparam("operation_id"), t.ended_at.is_(None))
    .order_by(t.created_at, t.task_id)
    .limit(1)
)
_EVERY: Final = select(agent_tasks).where(t.operation_id == bindparam("operation_id")).order_by(t.created_at, t.task_id)
_NEWEST: Final = (
    select(t.operation_id)
    .where(t.node_id == bindparam("node_id"))
    .order_by(t.created_at.desc(), t.task_id.desc())
    .limit(1)
)
_WAITING: Final = select(t.operation_id).where(t.ended_at.is_(None), t.handed_at.is_(None)).distinct()
_FILES: Final = select(t.file).where(t.ended_at.is_(None), t.file.is_not(None)).distinct().order_by(t.file)
_BY_ID: Final = select(agent_tasks).where(t.task_id == bindparam("task_id"))
_HAND: Final = (
    update(agent_tasks)
    .where(
        t.task_id == bindparam("a_task_id"),
        t.ended_at.is_(None),
        t.session_id.is_distinct_from(bindparam("a_session_id")),
    )
    .values(
        state="handed",
        session_id=bindparam("a_session_id"),
        handed_at=func.coalesce(t.handed_at, bindparam("a_now")),
        progress=0,
        log_read=0,
        log_kept=bindparam("a_log_kept"),
    )
)
_REPORT: Final = (
    update(agent_tasks)
    .where(t.task_id == bindparam("a_task_id"), t.ended_at.is_(None))
    .values(
        state=bindparam("a_state"),
        progress=bindparam("a_progress"),
        message=bindparam("a_message"),
        result=bindparam("a_result"),
        error_code=bindparam("a_error_code"),
        error_message=bindparam("a_error_message"),
        log_read=bindparam("a_log_read"),
        log_kept=bindparam("a_log_kept"),
        reported_at=bindparam("a_now"),
        ended_at=bindparam("a_ended_at"),
    )
)
_END: Final = (
    update(agent_tasks)
    .where(t.operation_id == bindparam("a_operation_id"), t.ended_at.is_(None))
    .values(ended_at=bindparam("a_now"))
)
_LOG: Final = insert(op_logs)
_READ_LOG: Final = (
    select(op_logs.c.text)
    .where(op_logs.c.operation_id == bindparam("operation_id"), op_logs.c.stream == bindparam("stream"))
    .order_by(op_logs.c.start)
)
_PRUNE: Final = delete(agent_tasks).where(t.created_at < bindparam("before"))
_PRUNE_LOGS: Final = delete(op_logs).where(op_logs.c.at < bindparam("before"))


def put(
    c: Connection,
    operation_id: str,
    node_id: str,
    name: str,
    kind: str,
    params: Json,
    now: Micros,
    file: str | None = None,
) -> AgentTaskRow:
    """The operation's task of that name: this one, unless there is one already, which is left as it is."""
    digest = hashlib.sha256(f"{operation_id}\0{name}".encode()).digest()
    c.execute(
        _PUT,
        {
            "task_id": new_id("at", now, digest[:ENTROPY_BYTES]),
            "operation_id": operation_id,
            "node_id": node_id,
            "name": name,
            "kind": kind,
            "params": jsontext.dump(dict(params)),
            "file": file,
            "created_at": now,
        },
    )
    return _row(c.execute(_OF, {"operation_id": operation_id, "name": name}).one())


def of(c: Connection, operation_id: str, name: str) -> AgentTaskRow | None:
    row = c.execute(_OF, {"operation_id": operation_id, "name": name}).one_or_none()
    return None if row is None else _row(row)


def every(c: Connection, operation_id: str) -> tuple[AgentTaskRow, ...]:
    """All of the operation's, oldest first."""
    return tuple(_row(row) for row in c.execute(_EVERY, {"operation_id": operation_id}))


def newest_operation(c: Connection, node_id: str) -> str | None:
    """The last operation of the node that put a task."""
    found: str | None = c.execute(_NEWEST, {"node_id": node_id}).scalar_one_or_none()
    return found


def present(c: Connection, operation_id: str) -> AgentTaskRow | None:
    """The task that is the agent's now: the oldest that has not ended."""
    row = c.execute(_OPEN, {"operation_id": operation_id}).one_or_none()
    return None if row is None else _row(row)


def waiting(c: Connection) -> frozenset[str]:
    """The operations that have a task which was never handed out."""
    return frozenset(c.execute(_WAITING).scalars())


def files(c: Connection) -> tuple[str, ...]:
    """Files of the shelf that some agent may still fetch."""
    return tuple(c.execute(_FILES).scalars())


def by_id(c: Connection, task_id: str) -> AgentTaskRow | None:
    row = c.execute(_BY_ID, {"task_id": task_id}).one_or_none()
    return None if row is None else _row(row)


def hand(c: Connection, task: AgentTaskRow, session_id: str, now: Micros) -> None:
    """It is handed out. A second time to the same agent changes nothing; another begins it, and its log, anew."""
    anew = AGAIN if 0 < task.log_kept <= LOG_LIMIT else ""
    kept = task.log_kept + len(anew)
    asked = {"a_task_id": task.task_id, "a_session_id": session_id, "a_now": now, "a_log_kept": kept}
    if c.execute(_HAND, asked).rowcount and anew:
        _add_log(c, task, anew, now)


def end(c: Connection, operation_id: str, now: Micros) -> None:
    """Nobody waits for the operation's tasks any more; what has ended stays as it is."""
    c.execute(_END, {"a_operation_id": operation_id, "a_now": now})


def report(c: Connection, task: AgentTaskRow, said: NewReport, now: Micros) -> bool:
    """Write what the agent says. False: the task has ended, and nothing is written.

    The caller holds the agent's row (`agents.calls`), and read the task after that: so no report is between.
    """
    read, kept, text = _more(task, said)
    ended = said.state != "running"
    changed = c.execute(
        _REPORT,
        {
            "a_task_id": task.task_id,
            "a_state": said.state,
            "a_progress": said.progress,
            "a_message": said.message,
            "a_result": jsontext.dump_or_none(said.result),
            "a_error_code": said.error_code,
            "a_error_message": said.error_message,
            "a_log_read": read,
            "a_log_kept": kept,
            "a_now": now,
            "a_ended_at": now if ended else None,
        },
    )
    if not changed.rowcount:
        return False
    if text:
        _add_log(c, task, text, now)
    return True


def _add_log(c: Connection, task: AgentTaskRow, text: str, now: Micros) -> None:
    row = {"operation_id": task.operation_id, "stream": task.name, "start": task.log_kept, "text": text, "at": now}
    c.execute(_LOG, row)


def _more(task: AgentTaskRow, said: NewReport) -> tuple[int, int, str]:
    """How far the log was read and kept after this report, and what is new of it. What came before is not taken again."""
    read = max(task.log_read, said.log_offset + len(said.log))
    missing = max(0, said.log_offset - task.log_read)
    new = said.log[max(0, task.log_read - said.log_offset) :]
    if not new or task.log_kept > LOG_LIMIT:  # beyond it once the line is there that says so
        return (read if new else task.log_read), task.log_kept, ""
    new = log_text(new)
    if missing:
        new = f"\n[bcmetal: {missing} characters of this log never came]\n{new}"
    if task.log_kept + len(new) <= LOG_LIMIT:
        return read, task.log_kept + len(new), new
    cut = f"{new[: LOG_LIMIT - task.log_kept]}\n[bcmetal: the log is cut here, after {LOG_LIMIT} characters]\n"
    return read, task.log_kept + len(cut), cut


def log_of(c: Connection, operation_id: str, name: str) -> str:
    """The task's log, as far as it was kept."""
    return "".join(c.execute(_READ_LOG, {"operation_id": operation_id, "stream": name}).scalars())


def prune(c: Connection, before: Micros) -> int:
    """Forget tasks that were put before that time, and what was logged before it; how many."""
    c.execute(_PRUNE_LOGS, {"before": before})
    return int(c.execute(_PRUNE, {"before": before}).rowcount)


def _row(row: Row[Any]) -> AgentTaskRow:
    return AgentTaskRow(
        task_id=row.task_id,
        operation_id=row.operation_id,
        node_id=row.node_id,
        name=row.name,
        kind=row.kind,
        params=jsontext.load(row.params),
        file=row.file,
        state=row.state,
        progress=row.progress,
        message=row.message,
        result=jsontext.load_or_none(row.result),
        error_code=row.error_code,
        error_message=row.error_message,
        log_read=row.log_read,
        log_kept=row.log_kept,
        created_at=Micros(row.created_at),
        handed_at=row.handed_at,
        session_id=row.session_id,
        reported_at=row.reported_at,
        ended_at=row.ended_at,
    )
