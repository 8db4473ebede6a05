"""Serial consoles through the daemon: one call that goes on answering with what the machine writes, and calls that type.

The answer is lines of JSON: the console's id, then what is read, an empty object now and then where nothing is, and the reason of its end.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from bcmetal import models
from bcmetal.answers import ConsoleLine, ConsoleTyped
from bcmetal.api.access import actions_on_pool
from bcmetal.api.auth import still_proven
from bcmetal.api.calls import Call, Services, method
from bcmetal.api.faults import HEADERS
from bcmetal.api.verbs import decided, event_of, node_of, resource_of
from bcmetal.consoles import Consoles, OpenConsole, Piece
from bcmetal.decisions import Params, PoolMode, decide
from bcmetal.errors import (
    BcmetalError,
    Fault,
    InvalidInput,
    InvalidState,
    NotFound,
    RateLimited,
    Unavailable,
)
from bcmetal.settings_grants import Action
from bcmetal.states import SideVerb
from bcmetal.store import access, claims, nodes
from bcmetal.store.values import Json, NodeRow
from bcmetal_drivers.errors import DriverError, Transient, Unsupported

LINES: Final = "application/x-ndjson"
BEAT_S: Final = 10.0
ROOM_S: Final = 5.0  # how long typed bytes wait for room
LOOK_S: Final = 0.05
NO_CONSOLE: Final = "no-console-here"


@method("metal", models.OpenConsole, ConsoleLine, Action.RESCUE, media=LINES)
async def open_console(call: Call[models.OpenConsole]) -> Response:
    """Open the machine's serial console through its BMC (IPMI serial over LAN), for one holder at a time.

    The answer is lines of JSON (`application/x-ndjson`) for as long as it is open; to hang up ends it. Opening and end are audited, and
    events. INVALID_STATE with `details.reason: no-console-here`: the daemon cannot open it; `console` tells the ways that a person can.
    """
    consoles = _consoles(call.services)
    row = await node_of(call)
    decided(call, row, decide(row.facts, SideVerb.CONSOLE, Params(), call.policy, call.now))
    work = await call.store.read(claims.peek, row.node_id)
    if work is None:
        raise NotFound
    holder = _Holder(call, row, call.new_id("cs"))
    try:
        console = await consoles.open(work, call.its_pool, holder.console_id, holder)
    except (DriverError, BcmetalError) as error:
        await holder.failed(str(error))
        if isinstance(error, DriverError):
            raise _refused(error) from error
        raise
    headers = {**HEADERS, "X-Accel-Buffering": "no"}
    return StreamingResponse(_lines(console), media_type=LINES, headers=headers)


@method("metal", models.TypeConsole, ConsoleTyped, Action.RESCUE)
async def type_console(call: Call[models.TypeConsole]) -> Json:
    """Type into a console that the caller has open. Answered once it is in the queue to the BMC."""
    console = await _own(call, call.input.console_id)
    try:
        data = base64.b64decode(call.input.data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput([Fault("data", "is no base64")]) from None
    loop = asyncio.get_running_loop()
    until = loop.time() + ROOM_S
    while not _taken(console, data, call.input):
        if console.why:
            raise NotFound
        if loop.time() > until:
            raise RateLimited("the BMC does not take so much so fast", retryAfterS=1)
        await asyncio.sleep(LOOK_S)
    return {"consoleId": console.console_id, "typed": len(data)}


def _taken(console: OpenConsole, data: bytes, asked: models.TypeConsole) -> bool:
    try:
        return console.type(data, asked.send_break, asked.offset)
    except ValueError as error:
        raise InvalidInput([Fault("offset", str(error))]) from None


@method("metal", models.CloseConsole, ConsoleTyped, Action.RESCUE)
async def close_console(call: Call[models.CloseConsole]) -> Json:
    """Close a console that the caller has open. Its stream ends with the reason."""
    console = await _own(call, call.input.console_id)
    console.end("its holder closed it")
    return {"consoleId": console.console_id, "typed": 0}


def _consoles(services: Services) -> Consoles:
    if services.consoles is None:
        raise InvalidState("this daemon opens no consoles", reason=NO_CONSOLE)
    return services.consoles


async def _own(call: Call[Any], console_id: str) -> OpenConsole:
    row = await node_of(call)
    found = _consoles(call.services).held(console_id, row.node_id, call.who.name)
    if found is None:
        raise NotFound
    return found


def _refused(error: DriverError) -> BcmetalError:
    if isinstance(error, Transient):
        return Unavailable(str(error), reason=error.code)
    return InvalidState(str(error), reason=NO_CONSOLE if isinstance(error, Unsupported) else error.code)


async def _lines(console: OpenConsole) -> AsyncIterator[str]:
    try:
        yield _line({"consoleId": console.console_id})
        while (piece := await console.read(BEAT_S)) is not None:
            yield _line(_shown(piece))
        yield _line({"ended": console.why})
    finally:
        console.end("its holder hung up")


def _line(doc: Mapping[str, Any]) -> str:
    return json.dumps(doc) + "\n"


def _shown(piece: Piece) -> Json:
    found: dict[str, Any] = {}
    if piece.data:
        found["data"] = base64.b64encode(piece.data).decode()
    if piece.lost:
        found["lost"] = piece.lost
    if piece.untaken:
        found["untaken"] = piece.untaken
    return found


class _Holder:
    """Whoever made the call that opened it."""

    def __init__(self, call: Call[Any], row: NodeRow, console_id: str) -> None:
        self.node_id = row.node_id
        self.by = call.who.name
        self.console_id = console_id
        self._call = call
        self._row = row
        self._on_record = False

    async def opens(self) -> None:
        await self._note({"console": "opened"})
        self._on_record = True

    async def failed(self, why: str) -> None:
        """That the call was refused stands in the audit by itself."""
        if self._on_record:
            await self._note({"console": "closed", "why": why}, audited=False)

    async def ended(self, console: OpenConsole) -> None:
        counted = {
            "seconds": round(console.open_s),
            "typedBytes": console.typed_bytes,
            "readBytes": console.read_bytes,
        }
        await self._note({"console": "closed", "why": console.why, **counted})

    async def why_not(self) -> str:
        services, row = self._call.services, self._row
        settings = services.settings()
        pool = settings.pool(row.pool_id)
        if pool is None or Action.RESCUE not in actions_on_pool(settings, self._call.who, pool):
            return f"{self.by} may not have it any more"
        if not await still_proven(services, self._call.who):
            return f"{self.by} may not have it any more"
        if pool.mode is PoolMode.OBSERVE:
            return f"pool {row.pool_id} only observes"
        now = await services.store.read(nodes.get, row.node_id)
        if now is None or now.bmc is None or row.bmc is None:
            return "the node is gone"
        if (now.bmc.bmc_id, now.bmc.host, now.bmc.port) != (row.bmc.bmc_id, row.bmc.host, row.bmc.port):
            return "the node has another BMC"
        return ""

    async def _note(self, told: Json, audited: bool = True) -> None:
        call, whole = self._call, {"consoleId": self.console_id, **told}
        event = event_of(call, self._row, "security.access.console", {"by": self.by, **whole})
        audit = call.audit(resource_of(self._row), "allowed", self.node_id, whole) if audited else None
        await call.store.write(access.note, audit, event, call.services.clock())
