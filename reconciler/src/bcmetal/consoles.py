"""Serial consoles that people hold open. The BMC's credentials stay with the daemon: what is typed and what is read goes through it.

A console has a session at its BMC and a thread here of its own, so that no step waits for it. It has one holder at a time, whichever
daemon was asked (a named lease). It ends when its holder leaves it, reads nothing any more, types nothing for a while, or may no longer
have it. What goes through it is kept nowhere.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from bcmetal.errors import BcmetalError, Conflict, RateLimited, Unavailable
from bcmetal.line import Lines
from bcmetal.settings import Pool
from bcmetal.store import leases
from bcmetal.store.values import Store, Work
from bcmetal.workflows.machine import Clock
from bcmetal_drivers.capabilities import ConsoleStream, ConsoleStreams, need
from bcmetal_drivers.errors import BadAddress, DriverError, TimedOut

log = logging.getLogger(__name__)

AT_ONCE: Final = 16  # of one daemon: each has a thread
HEARD_LIMIT: Final = 256 * 1024  # bytes that wait for the holder; beyond it the oldest go
TYPED_LIMIT: Final = 4096  # bytes that wait for the BMC
READ_S: Final = 0.05  # how long something typed may wait for its turn
LOOK_EVERY_S: Final = 10.0
LEASE_S: Final = 60
UNREAD_S: Final = 45.0
IDLE_S: Final = 1800.0


class Holder(Protocol):
    """Who wants it, as the API knows them. `node_id` and `by` tell whose it is."""

    node_id: str
    by: str

    async def opens(self) -> None:
        """It is free, and the BMC is asked next: what must be on record before."""
        ...

    async def why_not(self) -> str:
        """Asked again and again: why they may have it no longer; "" where they may."""
        ...

    async def ended(self, console: OpenConsole) -> None:
        """It is closed at the BMC."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """What came since the last one. `lost`: bytes that went because nobody read them; `untaken`: typed ones that the BMC did not take."""

    data: bytes = b""
    lost: int = 0
    untaken: int = 0


class OpenConsole:
    """`why` is empty until it ends. Counters are of its whole life."""

    def __init__(self, console_id: str, holder: Holder, stream: ConsoleStream, clock: Clock) -> None:
        self.console_id = console_id
        self.holder = holder
        self.typed_bytes = self.read_bytes = 0
        self.why = ""
        self._stream = stream
        self._clock = clock
        self._began_s = self._typed_at_s = self._asked_at_s = clock.monotonic_s()
        self._lock = threading.Lock()
        self._typed = bytearray()
        self._taken = 0
        self._break = False
        self._heard = bytearray()
        self._lost = self._untaken = 0
        self._over = False
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    # -------------------------------------------------------- for its holder, on the loop

    async def read(self, timeout_s: float) -> Piece | None:
        """What came; an empty piece when nothing did for so long, None once it is over."""
        self._asked_at_s = self._clock.monotonic_s()
        if not self._waiting():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), timeout_s)
        self._asked_at_s = self._clock.monotonic_s()
        with self._lock:
            self._news.clear()
            piece = Piece(bytes(self._heard), self._lost, self._untaken)
            self._heard.clear()
            self._lost = self._untaken = 0
            over = self._over
        if over and piece == Piece():
            return None
        return piece

    def type(self, data: bytes, send_break: bool = False, offset: int | None = None) -> bool:
        """False when so much waits for the BMC already that this was not taken.

        `offset`: how much was taken before this, a break counting as one byte; what was taken already is left out. Raises ValueError
        where something before it is missing.
        """
        self._typed_at_s = self._clock.monotonic_s()
        with self._lock:
            again = 0 if offset is None else self._taken - offset
            if again < 0:
                raise ValueError(f"{-again} typed bytes before these never came")
            new = data[max(0, again - send_break) :]
            if len(self._typed) + len(new) > TYPED_LIMIT:
                return False
            self._typed += new
            if send_break and not again:
                self._break = True
                self._taken += 1
            self._taken += len(new)
            return True

    def end(self, why: str) -> None:
        """Its thread closes it soon. The first reason stays."""
        with self._lock:
            self.why = self.why or why

    def unattended(self) -> str:
        """Why it should end: nobody is at it."""
        now_s = self._clock.monotonic_s()
        if now_s - self._asked_at_s > UNREAD_S:
            return "nobody reads it any more"
        if now_s - self._typed_at_s > IDLE_S:
            return f"nothing was typed for {IDLE_S / 60:.0f} minutes"
        return ""

    @property
    def open_s(self) -> float:
        return self._clock.monotonic_s() - self._began_s

    # -------------------------------------------------------- its thread

    def pump(self) -> None:
        """Between the BMC and the buffers, until it ends."""
        try:
            while not self.why:
                self._pass_on()
                self._hear(self._stream.read(READ_S))
        except DriverError as error:
            self.end(str(error))
        finally:
            self.end("a fault of bcmetal itself")
            self._stream.close()
            with self._lock:
                self._over = True
            self._tell()

    def _pass_on(self) -> None:
        with self._lock:
            typed, send_break, self._break = bytes(self._typed), self._break, False
        try:
            if send_break:
                self._stream.send_break()
            if typed:
                self._stream.write(typed)
        except TimedOut:  # the machine may be off: what it writes when it is on again is still to be read
            with self._lock:
                self._untaken += len(typed)
            self._tell()
        with self._lock:  # not before: what is on its way still counts as waiting
            del self._typed[: len(typed)]
            self.typed_bytes += len(typed)

    def _hear(self, data: bytes) -> None:
        if not data:
            return
        with self._lock:
            self._heard += data
            beyond = max(0, len(self._heard) - HEARD_LIMIT)
            del self._heard[:beyond]
            self._lost += beyond
            self.read_bytes += len(data)
        self._tell()

    def _waiting(self) -> bool:
        with self._lock:
            return bool(self._heard or self._lost or self._untaken or self._over)

    def _tell(self) -> None:
        self._loop.call_soon_threadsafe(self._news.set)


class Consoles:
    """All consoles that are open through one daemon."""

    def __init__(self, store: Store, clock: Clock, lines: Lines, look_every_s: float = LOOK_EVERY_S) -> None:
        """`look_every_s`: how often it is asked whether a holder may have its console still."""
        self._look_every_s = look_every_s
        self._store = store
        self._clock = clock
        self._lines = lines
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="console")
        self._places = AT_ONCE
        self._closing = False
        self._held: dict[str, OpenConsole] = {}
        self._watching: set[asyncio.Task[None]] = set()

    async def open(self, work: Work, pool: Pool, console_id: str, holder: Holder) -> OpenConsole:
        """Open the console of this node's BMC.

        Raises DriverError; Conflict where somebody has it, RateLimited where there are too many.
        """
        bmc = work.node.bmc
        if bmc is None:
            raise BadAddress("the node has no BMC")
        if self._closing:
            raise Unavailable("the daemon stops")
        if not self._places:
            raise RateLimited(f"{AT_ONCE} consoles are open through this daemon already", retryAfterS=30)
        lease = f"console:{bmc.bmc_id}"
        self._places -= 1
        try:
            if not await self._store.write(leases.take, lease, console_id, LEASE_S):
                raise Conflict(self._who_has(holder.node_id), reason="console-held")
            try:
                await holder.opens()
                line = self._lines.to(work, pool, "")
                stream = await line.call(need(line.bmc, ConsoleStreams).open_console)
                if self._closing:
                    await asyncio.to_thread(stream.close)
                    raise Unavailable("the daemon stops")
            except BaseException:
                await self._store.write(leases.give_back, lease, console_id)
                raise
        except BaseException:
            self._places += 1
            raise
        console = OpenConsole(console_id, holder, stream, self._clock)
        self._held[console_id] = console
        watching = asyncio.create_task(self._watch(console, bmc.bmc_id, lease))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return console

    def held(self, console_id: str, node_id: str, by: str) -> OpenConsole | None:
        """The open console of that id, where it is this node's and this identity's."""
        found = self._held.get(console_id)
        return found if found is not None and (found.holder.node_id, found.holder.by) == (node_id, by) else None

    async def close(self) -> None:
        """End all of them, for good."""
        self._closing = True
        for console in self._held.values():
            console.end("the daemon stops")
        while self._watching:
            await asyncio.wait(set(self._watching))
        await asyncio.to_thread(self._threads.shutdown)

    def _who_has(self, node_id: str) -> str:
        mine = next((one for one in self._held.values() if one.holder.node_id == node_id), None)
        if mine is None:
            return "somebody has this console open"
        return f"{mine.holder.by} has this console open, for {mine.open_s:.0f} s"

    async def _watch(self, console: OpenConsole, bmc_id: str, lease: str) -> None:
        """Until it is closed at the BMC; then it is free for somebody else."""
        end = partial(console.end, "the BMC's password is being changed")
        self._lines.beside(bmc_id, end)
        pumping = asyncio.get_running_loop().run_in_executor(self._threads, console.pump)
        try:
            while not (await asyncio.wait({pumping}, timeout=self._look_every_s))[0]:
                console.end(await self._why_end(console, lease))
            pumping.result()
        finally:
            self._lines.no_more_beside(bmc_id, end)
            del self._held[console.console_id]
            self._places += 1
            await self._store.write(leases.give_back, lease, console.console_id)
            await console.holder.ended(console)

    async def _why_end(self, console: OpenConsole, lease: str) -> str:
        try:
            if not await self._store.write(leases.take, lease, console.console_id, LEASE_S):
                return "somebody else has it"
            return console.unattended() or await console.holder.why_not()
        except BcmetalError as error:  # who may have it cannot be known now
            return str(error)
