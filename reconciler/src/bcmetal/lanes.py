"""The threads in which BMCs are called: a wide lane, and a slow one for the BMCs that did not answer the last time.

A call to a dead BMC holds its thread until a deadline passes. So it gets its first thread from the wide lane, and after that only those
of the slow lane, until it answers: however many are dead, the others' threads are theirs alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bcmetal_drivers.errors import DriverError, TimedOut, Unreachable

T = TypeVar("T")


class Lanes:
    def __init__(self, threads: int, slow_threads: int) -> None:
        self._wide = ThreadPoolExecutor(threads, thread_name_prefix="bmc")
        self._slow = ThreadPoolExecutor(slow_threads, thread_name_prefix="slow-bmc")
        self._silent: set[str] = set()

    async def call(self, bmc_id: str, fn: Callable[[], T], *, silent: bool = False) -> T:
        """Run it in a thread. `silent`: the BMC is known for not having answered the last time, by whomever it was called."""
        pool = self._slow if silent or bmc_id in self._silent else self._wide
        try:
            result = await asyncio.get_running_loop().run_in_executor(pool, fn)
        except (Unreachable, TimedOut):
            self._silent.add(bmc_id)
            raise
        except DriverError:
            self._silent.discard(bmc_id)
            raise
        self._silent.discard(bmc_id)
        return result

    async def end(self, bmc_id: str, close: Callable[[], None]) -> None:
        """Run what closes a driver; whether the BMC answered to it tells nothing."""
        await asyncio.get_running_loop().run_in_executor(self._of(bmc_id), close)

    def end_soon(self, bmc_id: str, close: Callable[[], None]) -> None:
        self._of(bmc_id).submit(close)

    def shutdown(self) -> None:
        self._wide.shutdown(wait=True)
        self._slow.shutdown(wait=True)

    def _of(self, bmc_id: str) -> ThreadPoolExecutor:
        return self._slow if bmc_id in self._silent else self._wide
