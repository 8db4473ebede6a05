"""What agents in the ramdisk may ask: hello with a boot token, and then, by calls that their key signs, next, report and the image.

Size, rate, proof; nothing of a message is judged before that. A boot token that is none is one 401. A call that is not signed, or by
another key, is that same 401; one that was made before, or overtaken, is a 409, and may be made again under a new number. 403: nobody here
has work for this agent any more.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from fastapi import FastAPI
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from bcmetal.api.agent_images import Images
from bcmetal.api.agent_messages import answered, bearer_digest, decoded, is_signed, public_key, said_in
from bcmetal.api.agent_waits import Waits
from bcmetal.api.auth import Failures
from bcmetal.api.pace import Buckets
from bcmetal.api.requests import address_of, read_body, trace_of
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import Conflict, Fault, InvalidInput, NotFound, PermissionDenied
from bcmetal.join.challenging import Challenged, read_case
from bcmetal.join.claims import claim_of
from bcmetal.join.hello import RESCUED, HelloRefused, Saying, Turned, hello
from bcmetal.join.tpm_structures import TpmRefused
from bcmetal.settings import Settings
from bcmetal.store import agent_tasks, agents, boot_tokens
from bcmetal.store.agent_tasks import AgentTaskRow, NewReport
from bcmetal.store.agents import AgentRow, Session
from bcmetal.store.values import Json, Store
from bcmetal.store.views import stamp
from bcmetal.text import clean
from bcmetal_agent import wire, wire_tasks

log = logging.getLogger(__name__)

Prepare = Callable[[AgentTaskRow, AgentRow], Awaitable[Json]]

SECRET_KINDS: Final = frozenset({"writeConfigDrive", "rescue"})
HELLO_BURST: Final = 120  # of one address, behind which a whole rack may be
HELLO_EACH_S: Final = 5.0
CALL_BURST: Final = 120  # of one session
CALL_EACH_S: Final = 10.0
_SESSION: Final = re.compile(r"as_[0-9a-hjkmnp-tv-z]{26}")
_SEQUENCE: Final = re.compile(r"[1-9][0-9]{0,15}")


class NotYours(PermissionDenied):
    """Nobody here has work for this agent any more: its operation is over, or another agent took its place."""


class Overtaken(Conflict):
    """A call of this session with this number, or a later one, came before: sign the call anew, under the next number."""


@dataclass(frozen=True, slots=True)
class AgentServices:
    """`prepare`: kind of a task → what is handed out instead of its stored params, made anew each time; where secrets come in.

    `images`: the shelf's folder. `wake`: the engine's.
    """

    store: Store
    settings: Callable[[], Settings]
    clock: Callable[[], Micros]
    entropy: Callable[[int], bytes]
    wake: Callable[[str | None], None]
    images: Path | None = None
    prepare: Mapping[str, Prepare] = field(default_factory=dict)
    poll_s: float = wire_tasks.POLL_S


@dataclass(frozen=True, slots=True)
class Call:
    """A call that was proven by its signature."""

    session: Session
    sequence: int
    raw: bytes = field(repr=False)
    address: str
    now: Micros


def add_agent_routes(app: FastAPI, door: AgentDoor) -> None:
    """The agents' calls, on their listener; its faults are shown by whoever built the application."""
    for path, answer in (
        (wire_tasks.HELLO_PATH, door.hello),
        (wire_tasks.NEXT_PATH, door.next),
        (wire_tasks.REPORT_PATH, door.report),
    ):
        app.add_api_route(path, answer, methods=["POST"], response_model=None)
    app.add_api_route(wire_tasks.IMAGE_PATH, door.image, methods=["GET", "HEAD"], response_model=None)


class AgentDoor:
    """The agents' calls, and what is between them: who guesses, who calls too often, who waits. Everything else is in the store."""

    def __init__(self, services: AgentServices) -> None:
        self._services = services
        self._hellos = Buckets(HELLO_BURST, HELLO_EACH_S)
        self._calls = Buckets(CALL_BURST, CALL_EACH_S)
        self._failures = Failures()
        self._waits = Waits(services.store)
        self._images = Images()

    def close(self) -> None:
        """The daemon stops: whoever waits for a task is told that there is none."""
        self._waits.close()

    # -------------------------------------------------------- hello

    async def hello(self, request: Request) -> Response:
        """A session for the key that comes with a live boot token; for the same key the same one again. First a TPM's challenge, where one is known."""
        services = self._services
        trace_of(request, services.entropy)
        raw = await read_body(request, wire.BODY_LIMIT)
        now, address = services.clock(), address_of(request)
        self._hellos.take(address, now)
        sha256 = bearer_digest(request)
        if sha256 is None or await services.store.read(boot_tokens.shown, sha256) is None:
            raise self._failures.add(address, now)
        message = decoded(wire_tasks.Hello, request, raw, wire.BODY_LIMIT)
        key = public_key(message.public_key)
        try:
            case = None if message.tpm is None else read_case(message.tpm, message.challenge)
        except TpmRefused as error:
            raise InvalidInput([Fault("tpm", str(error))]) from error
        claim = claim_of(message.identifiers, None, services.settings().joining.placeholders)
        without = None if message.no_tpm is None else clean(message.no_tpm)
        said = Saying(sha256, key, claim, clean(message.version), address, case, without)
        answer = await services.store.write(hello, said, services.entropy, now)
        if isinstance(answer, Turned):
            level = logging.INFO if answer.reason == RESCUED else logging.WARNING  # that one comes twice a minute
            log.log(level, "a hello from %s for node %s is refused: %s", address, answer.node_id, answer.reason)
            if answer.wake:
                services.wake(answer.node_id)
            raise HelloRefused(answer.message, reason=answer.reason)
        if isinstance(answer, Challenged):
            return answered(answer.message())
        if isinstance(answer, wire_tasks.ShowTpm):
            return answered(answer)
        agent = answer.agent
        log.info("the agent of node %s says hello from %s for operation %s", agent.node_id, address, agent.operation_id)
        services.wake(agent.node_id)
        return answered(wire_tasks.Welcome(agent.session_id, stamp(now) or ""))

    # -------------------------------------------------------- a session's calls

    async def next(self, request: Request) -> Response:
        """The present task, as soon as there is one; idle after a while."""
        services = self._services
        call = await self._signed(request, wire.BODY_LIMIT)
        decoded(wire_tasks.Next, request, call.raw, wire.BODY_LIMIT)
        await services.store.write(_counted, call)
        agent = call.session.agent
        loop = asyncio.get_running_loop()
        until = loop.time() + services.poll_s
        while True:
            session, task = await services.store.read(_look, agent.session_id, call.sequence)
            held_s = self._held_s(session, task)
            if task is not None and held_s <= 0:
                return await self._handed(task, session.agent)
            left_s = until - loop.time()
            if left_s <= 0 or self._waits.closed or await request.is_disconnected():
                return answered(wire_tasks.Idle())
            if task is not None:
                await self._waits.pause(min(left_s, held_s))
            else:
                await self._waits.task_for(agent.operation_id, left_s)

    def _held_s(self, session: Session, task: AgentTaskRow | None) -> float:
        """How long a task with secrets still waits, where somebody else may have read the boot token: time for the machine's own hello."""
        services = self._services
        if task is None or task.kind not in SECRET_KINDS:
            return 0.0
        if session.agent.tpm_proven or not session.in_clear:
            return 0.0
        wait_us = services.settings().daemon.plain_boot_wait_s * SECOND
        return (session.agent.hello_at + wait_us - services.clock()) / SECOND

    async def _handed(self, task: AgentTaskRow, agent: AgentRow) -> Response:
        prepare = self._services.prepare.get(task.kind)
        params = task.params if prepare is None else await prepare(task, agent)
        if not await self._services.store.write(_hand, task, agent, self._services.clock()):
            return answered(wire_tasks.Idle())  # it was given up meanwhile
        return answered(wire_tasks.Task(task.task_id, cast(wire_tasks.Kind, task.kind), dict(params)))

    async def report(self, request: Request) -> Response:
        """What became of a task so far. The same report again changes nothing."""
        services = self._services
        call = await self._signed(request, wire_tasks.REPORT_LIMIT)
        message = decoded(wire_tasks.Report, request, call.raw, wire_tasks.REPORT_LIMIT)
        said = said_in(message)
        heard = await services.store.write(_report, call, message.task_id, said)
        if said.state != "running":
            services.wake(call.session.agent.node_id)
        return answered(wire_tasks.Heard(heard))

    async def image(self, request: Request) -> Response:
        """The image of the task that is under way, whole or a range of it."""
        services = self._services
        call = await self._signed(request, 0)
        task = await services.store.write(_imaged, call)
        if task is None or task.file is None or task.handed_at is None or services.images is None:
            raise NotFound("no task with an image is under way")
        file = services.images / Path(task.file).name
        if not await asyncio.to_thread(file.is_file):
            raise NotFound("the image is not on the shelf any more")
        return self._images.answer(file, call.session.agent.session_id)

    async def _signed(self, request: Request, limit: int) -> Call:
        """A call that its session's key signed; whether it is the first of its number, `_counted` tells.

        Raises Unauthenticated, NotYours, RateLimited.
        """
        services = self._services
        trace_of(request, services.entropy)
        now, address = services.clock(), address_of(request)
        session_id, sequence, signature = (
            request.headers.get(name, "")
            for name in (wire_tasks.SESSION_HEADER, wire_tasks.SEQUENCE_HEADER, wire_tasks.SIGNATURE_HEADER)
        )
        if not _SESSION.fullmatch(session_id) or not _SEQUENCE.fullmatch(sequence):
            raise self._failures.add(address, now)
        session = await services.store.read(agents.session, session_id)
        if session is None:  # before its body is read: a report may be large
            raise self._failures.add(address, now)
        raw, number = await read_body(request, limit), int(sequence)
        statement = wire_tasks.statement(request.method, request.url.path, session_id, number, raw)
        if not is_signed(session.agent.public_key, signature, statement):
            raise self._failures.add(address, now)
        if session.over:
            raise NotYours
        self._calls.take(session_id, now)
        return Call(session, number, raw, address, now)


# ---------------------------------------------------------------- transactions


def _counted(c: Connection, call: Call) -> Session:
    """The session as it is now, if this is the first call with its number. Raises Overtaken, NotYours.

    It holds the agent's row: calls of one agent write one after the other.
    """
    counted = agents.calls(c, call.session.agent.session_id, call.sequence, call.address, call.now)
    session = agents.session(c, call.session.agent.session_id)
    if session is None or session.over:
        raise NotYours
    if not counted:
        raise Overtaken(reason="sequence")
    return session


def _look(c: Connection, session_id: str, sequence: int) -> tuple[Session, AgentTaskRow | None]:
    """Raises NotYours. Raises Overtaken: the agent has called again, and nobody waits for the answer to this call."""
    session = agents.session(c, session_id)
    if session is None or session.over:
        raise NotYours
    if session.agent.sequence != sequence:
        raise Overtaken(reason="sequence")
    return session, None if session.stop else agent_tasks.present(c, session.agent.operation_id)


def _hand(c: Connection, task: AgentTaskRow, agent: AgentRow, now: Micros) -> bool:
    """In the transaction that hands out, session and task are looked at once more. Raises NotYours, Overtaken."""
    if not agents.is_last_call(c, agent.session_id, agent.sequence):
        raise Overtaken(reason="sequence")
    _, present = _look(c, agent.session_id, agent.sequence)
    if present is None or present.task_id != task.task_id:
        return False
    agent_tasks.hand(c, present, agent.session_id, now)
    return True


def _report(c: Connection, call: Call, task_id: str, said: NewReport) -> bool:
    """Whether the agent should go on."""
    session = _counted(c, call)
    agent = session.agent
    task = agent_tasks.by_id(c, task_id)
    if task is None or task.operation_id != agent.operation_id:
        return False
    if task.ended_at is not None or not agent_tasks.report(c, task, said, call.now):
        return task.state == said.state and said.state != "running"  # its answer was lost
    if said.state != "running":
        agents.wake(c, agent.node_id, agent.operation_id, call.now)
    return not session.stop


def _imaged(c: Connection, call: Call) -> AgentTaskRow | None:
    return agent_tasks.present(c, _counted(c, call).agent.operation_id)
