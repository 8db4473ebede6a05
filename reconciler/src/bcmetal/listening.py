"""BMCs that tell of events by themselves (Redfish server-sent events): one held connection to each, where its network allows it.

An event is a hint and nothing more: it makes the daemon look at the machine sooner than the sweep would, and nothing of what it says is
believed or kept. Who tells much that changes nothing is asked no oftener for it than by the sweep, and reads of one stream are so slow that
a flood waits at its own BMC. The sweep asks every BMC all the same: it is what there is without a stream, and in the slow lane.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from bcmetal.decisions import Micros
from bcmetal.errors import BcmetalError
from bcmetal.line import Lines
from bcmetal.store import claims, leases, sweeping
from bcmetal.store.sweeping import Listened
from bcmetal.sweeps import SWEEP_EVERY_S, Seen, look
from bcmetal.workflows.machine import Doors
from bcmetal_drivers.capabilities import EventStream, EventStreams, need
from bcmetal_drivers.errors import DriverError

log = logging.getLogger(__name__)

TICK_EVERY_S: Final = 20
LEASE: Final = "listening"
LEASE_S: Final = 60
AT_ONCE: Final = 256  # of one daemon, whatever its networks allow: each has a thread
OPENING_AT_ONCE: Final = 4
SETTLE_S: Final = 0.5  # the events of one act come together, and a little before it shows
PAUSE_S: Final = 1.0  # between two events that are read from one stream
GAP_FIRST_S: Final = 2.0  # between two looks that events asked for; twice as long after each that saw nothing new
GAP_LAST_S: Final = float(SWEEP_EVERY_S)
FORGIVEN_S: Final = 600.0
LASTED_S: Final = 60.0  # a stream that was open for so long is opened again at the next tick
RETRY_FIRST_S: Final = 30.0
RETRY_LAST_S: Final = 3600.0
WITHOUT_S: Final = 6 * 3600.0  # how long a BMC that offers no stream is not asked for one


class Ear:
    """One open stream. `ours`: it was this side that ended it."""

    def __init__(self, about: Listened, stream: EventStream) -> None:
        self.about = about
        self.hinted = asyncio.Event()
        self.gap_s = GAP_FIRST_S
        self.looked_at_s = float("-inf")
        self._stream = stream
        self.ours = False
        self._over = threading.Event()
        self._loop = asyncio.get_running_loop()

    def pull(self) -> None:
        """In its thread, until the stream ends. Raises DriverError."""
        try:
            for _ in self._stream.events():
                self._loop.call_soon_threadsafe(self.hinted.set)
                if self._over.wait(PAUSE_S):
                    break
        finally:
            self._stream.close()

    def hang_up(self) -> None:
        self.ours = True
        self._over.set()
        self._stream.hang_up()

    def wait_s(self, now_s: float) -> float:
        """How long a hint waits for its look."""
        if now_s - self.looked_at_s > FORGIVEN_S:
            self.gap_s = GAP_FIRST_S
        return max(SETTLE_S, self.looked_at_s + self.gap_s - now_s)

    def looked(self, now_s: float, changed: bool) -> None:
        self.looked_at_s = now_s
        self.gap_s = GAP_FIRST_S if changed else min(GAP_LAST_S, 2 * self.gap_s)


class Listening:
    """All streams of one daemon. Of several daemons one listens: whoever has the lease."""

    def __init__(self, doors: Doors, lines: Lines, owner: str, may_work: Callable[[], bool] = lambda: True) -> None:
        self._doors = doors
        self._lines = lines
        self._owner = owner
        self._may_work = may_work
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="events")
        self._opening = asyncio.Semaphore(OPENING_AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by BMC: it is opened, or open
        self._ears: dict[str, Ear] = {}
        self._rests: dict[str, tuple[float, float]] = {}  # by BMC: until when it is left alone; the last wait
        self._closing = False

    @property
    def open(self) -> int:
        return len(self._ears)

    async def tick(self) -> None:
        """End the streams that must not be, and begin those that may; waits for neither."""
        wanted = {} if self._closing else await self._wanted()
        for bmc_id, ear in self._ears.items():
            if bmc_id not in wanted:
                ear.hang_up()
        self._rests = {bmc_id: rest for bmc_id, rest in self._rests.items() if bmc_id in wanted}
        now_s = self._doors.clock.monotonic_s()
        for bmc_id, about in wanted.items():
            if bmc_id not in self._tasks and self._rests.get(bmc_id, (now_s, 0.0))[0] <= now_s:
                self._tasks[bmc_id] = asyncio.create_task(self._listen(about))

    async def close(self) -> None:
        """End all of them, for good."""
        self._closing = True
        while self._tasks:
            for ear in self._ears.values():
                ear.hang_up()
            await asyncio.wait(set(self._tasks.values()), timeout=1.0)
        await asyncio.to_thread(self._threads.shutdown)

    async def _wanted(self) -> dict[str, Listened]:
        """Whom to listen to, by BMC: those that are listened to come first, so that none gives way to another."""
        room = {name: network.bmc_streams for name, network in self._doors.settings().networks.items()}
        room = {name: streams for name, streams in room.items() if streams}
        if not (room and self._may_work() and await self._has_lease()):
            return {}
        found = await self._doors.store.read(sweeping.listened, sorted(room), self._doors.clock.now())
        now_s, wanted = self._doors.clock.monotonic_s(), dict[str, Listened]()
        for about in sorted(found, key=lambda one: one.bmc_id not in self._tasks):
            resting = self._rests.get(about.bmc_id, (now_s, 0.0))[0] > now_s
            if resting or (room[about.network] and len(wanted) < AT_ONCE):
                room[about.network] -= not resting
                wanted[about.bmc_id] = about
        return wanted

    async def _has_lease(self) -> bool:
        return await self._doors.store.write(leases.take, LEASE, self._owner, LEASE_S)

    # -------------------------------------------------------- one BMC

    async def _listen(self, about: Listened) -> None:
        began_s = self._doors.clock.monotonic_s()
        rest_s: float | None = None
        try:
            rest_s = await self._follow(about)
        except (DriverError, BcmetalError) as error:
            log.info("node %s: its BMC's events are not heard: %s", about.node_ids[0], error)
        except Exception:  # a bug must cost this stream alone
            log.exception("node %s: its BMC's events are not heard", about.node_ids[0])
        finally:
            del self._tasks[about.bmc_id]
            now_s = self._doors.clock.monotonic_s()
            _, last_s = self._rests.pop(about.bmc_id, (0.0, RETRY_FIRST_S / 2))
            if rest_s is None:
                rest_s = last_s = min(RETRY_LAST_S, 2 * last_s) if now_s - began_s < LASTED_S else 0.0
            if rest_s:
                self._rests[about.bmc_id] = (now_s + rest_s, last_s)

    async def _follow(self, about: Listened) -> float | None:
        """Until the stream ends. For how long the BMC is then left alone; None: as short as it lasted."""
        async with self._opening:
            work = await self._doors.store.read(claims.peek, about.node_ids[0])
            pool = self._doors.settings().pools.get(work.node.pool_id) if work is not None else None
            if work is None or pool is None or self._closing:
                return 0.0
            line = self._lines.to(work, pool, "")
            stream = await line.call(need(line.bmc, EventStreams).open_events)
            if stream is None:
                return WITHOUT_S
            release = line.keep_open()
        ear = self._ears[about.bmc_id] = Ear(about, stream)
        looking = asyncio.create_task(self._look_when_hinted(ear))
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, ear.pull)
        finally:
            del self._ears[about.bmc_id]
            release()
            looking.cancel()
            await asyncio.wait({looking})
        return 0.0 if ear.ours else None

    async def _look_when_hinted(self, ear: Ear) -> None:
        clock = self._doors.clock
        while True:
            await ear.hinted.wait()
            await asyncio.sleep(ear.wait_s(clock.monotonic_s()))
            ear.hinted.clear()
            try:
                changed = await self._look_at(ear.about.node_ids, clock.now())
            except BcmetalError as error:
                log.warning("node %s: %s; the sweep looks later", ear.about.node_ids[0], error)
                changed = False
            ear.looked(clock.monotonic_s(), changed)

    async def _look_at(self, node_ids: Sequence[str], now: Micros) -> bool:
        """Whether anything of them was new. Whoever works on one of them looks at it already."""
        changed = False
        for node_id in await self._doors.store.read(sweeping.free, node_ids, now):
            changed |= await look(self._doors, self._lines, node_id) is Seen.CHANGED
        return changed
