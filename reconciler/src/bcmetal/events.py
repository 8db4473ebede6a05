"""The outbox: events written in the transaction that made them true, numbered at delivery, handed to subscribers in that order.

Whoever holds the `outbox` lease numbers them; the position is the feed's order, and each node's events keep the order of their writing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from bcmetal.decisions import Micros
from bcmetal.store import leases, outbox
from bcmetal.store.outbox import EventRow
from bcmetal.store.values import Store

LEASE: Final = "outbox"
LEASE_S: Final = 30
BATCH: Final = 500


class Feed:
    """Delivery in this process. A subscriber reads from a position of its own, and misses nothing that is still kept."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner
        self._grown = asyncio.Condition()
        self._closed = False

    async def deliver(self) -> int:
        """Number what is new, if this daemon holds the lease; how many events that was. Called by a tick."""
        delivered = 0
        if await self._store.write(leases.take, LEASE, self._owner, LEASE_S):
            while True:
                batch = await self._store.write(outbox.deliver, BATCH)
                delivered += len(batch)
                if len(batch) < BATCH:
                    break
        async with self._grown:
            self._grown.notify_all()
        return delivered

    async def close(self) -> None:
        """End whoever follows."""
        self._closed = True
        async with self._grown:
            self._grown.notify_all()

    async def since(self, position: int, wait_s: float) -> list[EventRow]:
        """Events after `position`; waits up to `wait_s` seconds for the first."""
        found = await self._store.read(outbox.since, position, BATCH)
        if found:
            return found
        async with self._grown:
            try:
                await asyncio.wait_for(self._grown.wait(), wait_s)
            except TimeoutError:
                return []
        return await self._store.read(outbox.since, position, BATCH)

    async def follow(self, position: int, wait_s: float = 15.0) -> AsyncIterator[EventRow | None]:
        """Every event after `position`, and None whenever `wait_s` seconds passed without one."""
        while not self._closed:
            batch = await self.since(position, wait_s)
            if not batch and not self._closed:
                yield None
            for row in batch:
                position = row.position
                yield row


def retention_before(now: Micros, days: int) -> Micros:
    """Events delivered before this time may go."""
    return Micros(now - days * 86_400_000_000)
