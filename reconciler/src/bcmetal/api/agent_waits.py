"""Long polls of agents: however many wait, one look at the store a tick says for which of them a task was put, by whichever daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from bcmetal.errors import Unavailable
from bcmetal.store import agent_tasks
from bcmetal.store.values import Store

log = logging.getLogger(__name__)

TICK_S: Final = 0.5


class Waits:
    """It looks only while somebody waits for a task. `closed`: nobody waits any more, the daemon stops."""

    def __init__(self, store: Store, tick_s: float = TICK_S) -> None:
        self._store = store
        self._tick_s = tick_s
        self._waiting: dict[str, list[asyncio.Event]] = {}
        self._pausing: set[asyncio.Event] = set()
        self._watch: asyncio.Task[None] | None = None
        self.closed = False

    def close(self) -> None:
        """Whoever waits goes on at once."""
        self.closed = True
        for event in (*self._pausing, *(event for events in self._waiting.values() for event in events)):
            event.set()

    async def pause(self, seconds: float) -> None:
        """At most so long."""
        event = asyncio.Event()
        self._pausing.add(event)
        try:
            await self._wait(event, seconds)
        finally:
            self._pausing.discard(event)

    async def task_for(self, operation_id: str, timeout_s: float) -> None:
        """Return when a task of the operation was put that nobody was handed yet; at the latest after `timeout_s`."""
        event = asyncio.Event()
        self._waiting.setdefault(operation_id, []).append(event)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._look())
        try:
            await self._wait(event, timeout_s)
        finally:
            events = self._waiting[operation_id]
            events.remove(event)
            if not events:
                del self._waiting[operation_id]
            if not self._waiting:
                self._watch.cancel()

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        if not self.closed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)

    async def _look(self) -> None:
        while True:
            try:
                for operation_id in await self._store.read(agent_tasks.waiting):
                    for event in self._waiting.get(operation_id, ()):
                        event.set()
            except Unavailable as error:
                log.warning("agents wait longer for their tasks: %s", error)
            await asyncio.sleep(self._tick_s)
