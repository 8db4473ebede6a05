"""A step's way to have the agent do something: put the task, follow it to its end, notice an agent that is gone.

A task has one row for each operation and name: a step that runs again after a crash, or after another start of the ramdisk, finds the same
row, and a task that is done is not done twice.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from bcmetal.decisions import SECOND, Again, Failed
from bcmetal.errors import LAST_ERRORS
from bcmetal.store import agent_tasks, agents
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.ramdisk import boot_anew, token_lost
from bcmetal_agent import wire
from bcmetal_agent.wire_tasks import Kind
from bcmetal_drivers.capabilities import Power, need
from bcmetal_drivers.resources import PowerState

T = TypeVar("T")
SILENT_S: Final = 120.0  # its polls come every 20 s, its reports every few
LISTENED_S: Final = (
    60.0  # and then so long with the daemon there to hear it: while that was away, nobody could be heard
)
POLL_S: Final = 5.0  # a report that ends the task wakes the operation at once


async def task(m: Machine, name: str, kind: Kind, params: Any, *, file: str | None = None) -> AgentTaskRow | Outcome:
    """The row of the task once it is done; until then what the step has to answer. `file`: what the agent may fetch, on the shelf.

    `params` is the kind's message, without a secret.
    """
    operation_id = m.operation.operation_id
    row = await m.doors.store.read(agent_tasks.of, operation_id, name)
    if row is not None and row.state == "done":
        return row
    if row is not None and row.state == "failed":
        code = row.error_code if row.error_code in LAST_ERRORS else None
        message = row.error_message or "the agent gave no reason"
        return Failed(code or "agent-task-failed", message if code else f"{row.error_code or kind}: {message}")
    agent = await m.doors.store.read(agents.current, operation_id)
    if agent is None:
        return await token_lost(m, f"the agent is gone before {name} was done")
    silent_s = (m.now - agent.seen_at) / SECOND
    if silent_s > SILENT_S:
        return await _listen(m, name, silent_s)
    if row is None:
        await m.ready_to_act()
        doc = wire.to_doc(params)
        row = await m.doors.store.write(
            agent_tasks.put, operation_id, m.node.node_id, name, kind, doc, m.now, file=file
        )
    return Again(row.message or f"the agent does {name}", POLL_S, row.progress / 1000)


async def _listen(m: Machine, name: str, silent_s: float) -> Outcome:
    """An agent that is not heard of, by a daemon that listens, is gone."""
    since, looked_at = m.memo.get("agent_missed") or (m.now, m.now)
    if m.now - looked_at > LISTENED_S * SECOND:
        since = m.now  # a silence of another time
    power = await m.look(need(m.bmc, Power).power_state)
    why = None
    if power is PowerState.OFF:
        why = f"somebody switched the machine off before {name} was done"
    elif m.now - since >= LISTENED_S * SECOND:
        why = f"the agent was not heard of for {silent_s:.0f} s before {name} was done"
    if why is not None:
        m.remember(agent_missed=None)
        return boot_anew(m, why)
    m.remember(agent_missed=[since, m.now])
    return Again(f"listens for the agent, which was not heard of for {silent_s:.0f} s", POLL_S)


def result_of(row: AgentTaskRow, shape: type[T]) -> T | Failed:
    """What the agent answered, read strictly: it comes from a machine that somebody may own."""
    try:
        return wire.read_doc(shape, row.result or {})
    except wire.BadMessage as error:
        return Failed("agent-malformed-answer", f"the agent's answer to {row.name} is not what it should be: {error}")
