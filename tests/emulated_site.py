"""A whole site in one process: an emulated rack, a real store, the engine and the media listener, on a clock that skips waits.

What is real: the protocols (TLS, HTTP, IPMI packets), the database, the engine and every step. What is simulated: the waiting. `settle()`
runs the engine until nothing is due any more, moving the clock to whatever is due next.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import uvicorn
from pydantic import SecretStr
from sqlalchemy import Connection, select

from bcmetal.boot.media import Ramdisks, media_app, media_config
from bcmetal.boot.policy import fetch_policy
from bcmetal.boot.pxe import beside, pxe_app
from bcmetal.boot.shelf import Shelf
from bcmetal.clock import system_entropy
from bcmetal.decisions import SECOND, Micros, Move, Params, Refusal, Run, decide
from bcmetal.engine import Engine
from bcmetal.line import Lines
from bcmetal.settings import Settings, load
from bcmetal.states import SideVerb, State, Verb
from bcmetal.store import claims, conditions, meta, nodes, operations, sealed, tables, views
from bcmetal.store.engine import OpenStore, open_store
from bcmetal.store.ids import new_id
from bcmetal.store.values import (
    Claim,
    NewAudit,
    NewBmc,
    NewNode,
    NewOperation,
    NodeRow,
    OperationRow,
    Sealed,
    Store,
    Work,
)
from bcmetal.vault import Vault, bmc_binding, load_key, new_key
from bcmetal.workflows import workflow_of
from bcmetal.workflows.asked import asked_of
from bcmetal.workflows.machine import Doors
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack
from bcmetal_drivers.emulated.recorded_front import RecordedBmc
from emulated_site_config import (
    ISO,
    ISO_SHA256,
    POOL,
    RESCUE_ISO,
    RESCUE_SHA256,
    TEMPLATE,
    TENANT,
    with_agent,
    with_places,
)

P = ParamSpec("P")
T = TypeVar("T")
SETTLED_WITHIN_S = 60.0


class SkippingClock:
    """Time that moves by itself, and jumps when nobody has anything to do."""

    def __init__(self) -> None:
        self._skipped_us = 0

    def now(self) -> Micros:
        return Micros(time.time_ns() // 1000 + self._skipped_us)

    def monotonic_s(self) -> float:
        return time.monotonic()

    def seconds(self) -> float:
        return self.now() / SECOND

    def skip_to(self, at: Micros) -> None:
        self._skipped_us += max(0, at - self.now())


class _Iso(http.server.BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        found = self.path.endswith((".iso", ".raw"))
        self.send_response(200 if found else 404)
        body = self.body if found else b"no"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def iso_server(body: bytes) -> Iterator[str]:
    """An HTTP server on loopback that has one image under any path that ends in .iso or .raw; its base address."""
    handler = type("Handler", (_Iso,), {"body": body})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


Turn = Callable[[], Awaitable[None]]
Past = Callable[[str, str], bool]  # whether an operation is to stop before this step


class StepByStep:
    """A store that gives a node back once an operation of it has come to a step: the engine finds its claim gone there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.stops: Past | None = None

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._store.read(fn, *args, **kwargs)

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        done = await self._store.write(fn, *args, **kwargs)
        if self.stops is not None and fn is claims.save:
            claim, _, settled = args[:3]
            if isinstance(claim, Claim) and isinstance(settled, Run) and self.stops(settled.operation_id, settled.step):
                await self._store.write(claims.release, claim)
        return done

    async def close(self) -> None:
        await self._store.close()


@dataclass(slots=True)
class Site:
    """`engine` may be thrown away and made anew (`restart`), as a crash would."""

    folder: Path
    rack: Rack
    clock: SkippingClock
    store: OpenStore
    vault: Vault
    settings: Settings
    shelf: Shelf
    lines: Lines = field(init=False)
    engine: Engine = field(init=False)
    steps: StepByStep = field(init=False)
    abandoned: list[Lines] = field(default_factory=list)
    engines_store: Store | None = None  # a wrapper that can die; None: the store itself
    beside: list[Turn] = field(
        default_factory=list
    )  # what else goes on while the engine works, such as machines that run

    def __post_init__(self) -> None:
        self._wire()

    def _wire(self) -> None:
        store = self.steps = StepByStep(self.engines_store or self.store)
        doors = Doors(store, self.clock, system_entropy, lambda: self.settings, self.shelf, self.vault)
        self.lines = Lines(store, self.clock, self.vault, lambda: self.settings)
        self.engine = Engine(doors, self.lines, "test-daemon")

    async def restart(self) -> None:
        """What is left after a crash: the database and the BMCs. Sessions of the dead daemon stay open at the BMCs."""
        self.abandoned.append(self.lines)
        await self.store.write(claims.clear_own, "")
        self._wire()

    async def close(self) -> None:
        for lines in (*self.abandoned, self.lines):
            await lines.close()
        await asyncio.to_thread(self.shelf.close)
        await self.store.close()

    # -------------------------------------------------------- nodes

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self.clock.now(), system_entropy(10))

    async def enroll(
        self,
        bmc: EmulatedBmc | RecordedBmc,
        password: SecretStr | None = None,
        trust: tuple[str, str] | None = None,
        host: str | None = None,
        port: int | None = None,
        scheme: str | None = None,
        system_path: str | None = None,
        name: str | None = None,
        rack: str | None = None,
    ) -> str:
        """A node in state `enrolled`, its BMC's certificate pinned; its id. What is given replaces what is true."""
        node_id, bmc_id = self.new_id("nd"), self.new_id("bm")
        scheme, host = scheme or bmc.address.partition(":")[0], host or bmc.host
        path = bmc.address.partition("/redfish/v1")[1:]
        kind, value = trust or (("fingerprint", bmc.fingerprint or "") if scheme == "redfish" else ("system", ""))
        new = NewNode(
            node_id,
            TENANT,
            "site-a",
            POOL,
            name or bmc.name,
            bmc_id,
            NewBmc("bmc", scheme, host, port or bmc.port, kind, value),
            system_path=system_path or "".join(path) or None,
            location_rack=rack,
        )
        await self.store.write(nodes.insert, new, self.clock.now())
        binding = bmc_binding(host, kind, value)
        row = await self.node(node_id)
        assert row.bmc is not None
        for name, secret in (("username", SecretStr(bmc.username)), ("password", password or bmc.password)):
            secret_row = self.vault.seal("bmc", "bmc", row.bmc.bmc_id, name, secret, bind=binding)
            await self.store.write(sealed.put, [secret_row])
        return node_id

    async def node(self, node_id: str) -> NodeRow:
        row = await self.store.read(nodes.get, node_id)
        assert row is not None
        return row

    async def peek(self, node_id: str) -> Work:
        work = await self.store.read(claims.peek, node_id)
        assert work is not None
        return work

    async def state(self, node_id: str) -> State:
        return (await self.node(node_id)).facts.state

    async def start(
        self,
        node_id: str,
        verb: Verb,
        params: Params | None = None,
        secrets: Mapping[str, SecretStr] | None = None,
        **given: Any,
    ) -> str:
        """Start a verb as the API would; the operation's id. `secrets`: sealed with it."""
        row = await self.node(node_id)
        policy = self.settings.pools[POOL].policy(self.settings)
        move = decide(
            row.facts, verb, params or Params(confirm_erase=row.facts.serial or node_id), policy, self.clock.now()
        )
        assert isinstance(move, Move), move
        assert isinstance(move.verb, Verb)
        operation_id = self.new_id("op")
        steps = tuple(workflow_of(move.verb, asked_of(row, given, self.settings.pools[POOL], self.settings)).steps)
        operation = NewOperation(
            operation_id,
            "workflow",
            move.verb,
            "key:test",
            given,
            steps[0],
            move.budget_s * SECOND,
            sealed=tuple(
                self.vault.seal("operation", "operation", operation_id, name, secret)
                for name, secret in (secrets or {}).items()
            ),
            steps=steps,
        )
        audit = self.audit(verb.value, node_id)
        await self.store.write(operations.start, node_id, row.generation, move, operation, audit, [], self.clock.now())
        return operation.operation_id

    async def queue(self, node_id: str, verb: SideVerb, secrets: Sequence[Sealed] = (), **given: Any) -> str:
        """Queue a side operation as the API would; its id."""
        operation = NewOperation(self.new_id("op"), "side", verb, "key:test", given, sealed=secrets)
        audit = self.audit(verb.value, node_id)
        await self.store.write(operations.queue_side, node_id, operation, audit, [], self.clock.now())
        return operation.operation_id

    async def give_credentials(self, node_id: str, username: str, password: SecretStr) -> str:
        """Store a candidate and queue its trial; the operation's id."""
        node = await self.node(node_id)
        assert node.bmc is not None
        binding = bmc_binding(node.bmc.host, node.bmc.trust_kind, node.bmc.trust_value)
        rows = [
            self.vault.seal("bmc", "bmc", node.bmc.bmc_id, name, secret, bind=binding, slot="candidate")
            for name, secret in (("username", SecretStr(username)), ("password", password))
        ]
        return await self.queue(node_id, SideVerb.SET_BMC_CREDENTIALS, rows)

    def set_pool(self, **changes: Any) -> None:
        """As a reload of the configuration would."""
        pool = self.settings.pools[POOL]
        changed = pool.model_copy(update=changes)
        self.settings = self.settings.model_copy(update={"pools": {POOL: changed}})

    async def set_node(self, node_id: str, **columns: Any) -> None:
        await self.store.write(nodes.update, node_id, columns, self.clock.now())

    async def conditions(self, node_id: str) -> dict[str, tuple[str, str]]:
        """Status and reason of each condition, by its type."""
        found = await self.store.read(conditions.list, node_id)
        return {one.type: (one.status, one.reason) for one in found}

    async def needs_attention(self, node_id: str) -> bool:
        [view] = await self.store.read(views.read, [node_id])
        return bool(view.doc["needsAttention"])

    async def erasure_records(self, node_id: str) -> list[dict[str, Any]]:
        def read(c: Connection) -> list[dict[str, Any]]:
            rows = c.execute(select(tables.erasure_records.c.doc).where(tables.erasure_records.c.node_id == node_id))
            return [json.loads(row.doc) for row in rows]

        return await self.store.read(read)

    def refusal(self, node: NodeRow, verb: Verb, params: Params) -> str | None:
        """Why `decide` refuses, None when it does not."""
        decided = decide(node.facts, verb, params, self.settings.pools[POOL].policy(self.settings), self.clock.now())
        return decided.reason if isinstance(decided, Refusal) else None

    def audit(self, action: str, node_id: str) -> NewAudit:
        name = f"compute:metal:{action}"
        return NewAudit(self.new_id("au"), "key:test", TENANT, "127.0.0.1", name, node_id, "allowed", "t", node_id)

    async def operation(self, operation_id: str) -> OperationRow:
        row = await self.store.read(operations.get, operation_id)
        assert row is not None
        return row

    # -------------------------------------------------------- time

    async def advance(self) -> bool:
        """One round of the engine, after moving the clock to what is due next; False: nothing is."""
        before = self.clock.now()
        for turn in self.beside:
            await turn()
        if await self.engine.tick():
            return True
        due = await self.store.read(claims.next_due, before)
        if due is None:
            return False
        self.clock.skip_to(due)
        await asyncio.sleep(0.001)
        return True

    async def up_to(self, operation_id: str, past: Past) -> OperationRow:
        """Run the engine until the operation ended, or waits at a step that `past` names; as it is then."""
        self.steps.stops = lambda operation, step: operation == operation_id and past(operation, step)
        try:
            for _ in range(2000):
                await self.advance()
                operation = await self.operation(operation_id)
                if operation.ended_at is not None or past(operation_id, operation.step or ""):
                    return operation
            raise AssertionError(f"{operation.step} does not end: it waits for {operation.waiting_for}")
        finally:
            self.steps.stops = None

    async def settle(self) -> None:
        """Run the engine until nothing is due any more."""
        ends_s = time.monotonic() + SETTLED_WITHIN_S
        while time.monotonic() < ends_s:
            if not await self.advance():
                return
        raise AssertionError(f"the engine did not come to rest within {SETTLED_WITHIN_S:.0f} s")

    async def live(self, node_id: str, verb: Verb, params: Params | None = None, **given: Any) -> State:
        """Start a verb and see it to its end."""
        await self.start(node_id, verb, params, **given)
        await self.settle()
        return await self.state(node_id)


@contextlib.asynccontextmanager
async def media_listener(app: Any) -> AsyncIterator[str]:
    """The media listener of the daemon on a port of its own; its base address."""
    config = media_config(app)
    config.host, config.port = "127.0.0.1", 0
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


@contextlib.asynccontextmanager
async def a_site(
    folder: Path,
    url: str | None = None,
    erase: str = '["bmc"]',
    extra: Mapping[str, str] | None = None,
    ramdisk: Path | None = None,
    places: Mapping[str, str] | None = None,
) -> AsyncIterator[Site]:
    """A site with an empty rack: add BMCs to `site.rack`, then `site.rack.start()`. `url` of the database: a fresh SQLite one when None.

    With a `ramdisk` folder, machines are offered that one and run its agent; `places`: see `with_places`.
    """
    clock = SkippingClock()
    key_file = folder / "vault.key"
    new_key(key_file)
    vault = Vault([load_key(f"file:{key_file}")])
    database = url or f"sqlite:///{folder}/db"
    store = open_store(database, exclusive=True)
    images = folder / "images"
    with iso_server(ISO) as image_url, iso_server(RESCUE_ISO) as rescue_url:
        read: list[Settings] = []
        media = media_app(store, clock.now, images)
        if ramdisk is not None:
            media = beside(
                media_app(store, clock.now, images, ramdisks=Ramdisks(lambda: ramdisk, vault)),
                pxe_app(store, clock.now, lambda: read[0], vault),
            )
        async with media_listener(media) as media_url:
            values = {
                "database": database,
                "folder": folder,
                "tenant": TENANT,
                "pool": POOL,
                "media_url": media_url,
                "image_url": image_url,
                "rescue_url": rescue_url,
                "iso": ISO_SHA256,
                "rescue": RESCUE_SHA256,
                "erase": erase,
            } | dict(extra or {})
            given = {**({} if ramdisk is None else with_agent(ramdisk)), **(places or {})}
            config = folder / "bcmetal.toml"
            config.write_text(with_places(TEMPLATE.format(**values), given))
            settings = load(config)
            read.append(settings)
            shelf = Shelf(images, lambda: fetch_policy(settings))
            await store.write(meta.put, meta.RECOVERY, vault.key_id)  # as if somebody had exercised it
            site = Site(folder, Rack(seed=1, clock=clock.seconds), clock, store, vault, settings, shelf)
            try:
                yield site
            finally:
                await site.close()
                await asyncio.to_thread(site.rack.stop)


class OnASite(Protocol):
    """Run a scenario on a site of its own."""

    def __call__(self, scenario: Callable[[Site], Awaitable[None]], erase: str = '["bmc"]') -> None: ...
