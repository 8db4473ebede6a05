"""What the agent was asked to do in an operation, and what it logged meanwhile. Secrets never stand in a task's row or log."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from bcmetal import models
from bcmetal.answers import LogsAnswer
from bcmetal.api.calls import Call, method
from bcmetal.api.verbs import node_of
from bcmetal.errors import NotFound
from bcmetal.settings_grants import Action
from bcmetal.store import agent_tasks
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.store.values import Json
from bcmetal.store.views import stamp

PIECE: Final = 256 * 1024  # characters of a log in one answer


@method("metal", models.Logs, LogsAnswer, Action.READ)
async def logs(call: Call[models.Logs]) -> Json:
    """The tasks that the agent was given in one operation, and the log of one of them, piece by piece."""
    asked = call.input
    node = await node_of(call)
    operation_id, tasks = await call.store.read(_tasks, node.node_id, asked.operation_id)
    if asked.operation_id is not None and operation_id is None:
        raise NotFound
    text = next_offset = None
    if asked.task is not None:
        if operation_id is None or all(task.name != asked.task for task in tasks):
            raise NotFound
        whole = await call.store.read(agent_tasks.log_of, operation_id, asked.task)
        text = whole[asked.offset : asked.offset + PIECE]
        end = asked.offset + len(text)
        next_offset = end if end < len(whole) else None
    return {
        "operationId": operation_id,
        "tasks": [_shown(task) for task in tasks],
        "text": text,
        "nextOffset": next_offset,
    }


def _tasks(c: Connection, node_id: str, operation_id: str | None) -> tuple[str | None, tuple[AgentTaskRow, ...]]:
    wanted = operation_id or agent_tasks.newest_operation(c, node_id)
    found = () if wanted is None else agent_tasks.every(c, wanted)
    mine = tuple(task for task in found if task.node_id == node_id)
    return (wanted if mine else None), mine


def _shown(task: AgentTaskRow) -> Json:
    return {
        "name": task.name,
        "kind": task.kind,
        "state": task.state if task.ended_at is None or task.state in ("done", "failed") else "given-up",
        "progress": task.progress / 1000,
        "message": task.message,
        "result": task.result,
        "errorCode": task.error_code,
        "errorMessage": task.error_message,
        "handedAt": stamp(task.handed_at),
        "endedAt": stamp(task.ended_at),
        "logCharacters": task.log_kept,
    }
