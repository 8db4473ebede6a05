"""Effects counted, and a daemon that dies right after one of them.

An effect is each write that reached a BMC and each commit. A dead daemon commits nothing more, and nothing more of it reaches a BMC.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from bcmetal.store.engine import OpenStore
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.rack import Rack, Write

P = ParamSpec("P")
T = TypeVar("T")


class Crashed(BaseException):
    """The daemon is dead. No handler of the daemon's own may catch it."""


class Effects:
    """`seen` lists every effect since `begin`; the daemon dies right after number `crash_at` (from 1), or after the write number `at_write`."""

    def __init__(self, rack: Rack, store: OpenStore) -> None:
        self._rack = rack
        self._lock = threading.Lock()
        self._crash_at: int | None = None
        self._at_write: int | None = None
        self._barrier: int | None = None
        self.seen: list[str] = []
        self.dead = False
        rack.on_write = self._wrote
        store.on_commit = self._committed

    def begin(self, crash_at: int | None = None, at_write: int | None = None) -> None:
        """Count anew. A daemon that died before is a new one from now on."""
        with self._lock:
            self.seen = []
            self._crash_at, self._at_write = crash_at, at_write
            self.dead = False
        if self._barrier is not None:
            self._rack.clear(self._barrier)
            self._barrier = None

    def _count(self, what: str) -> bool:
        with self._lock:
            if self.dead:
                return True
            self.seen.append(what)
            writes = sum(not one.startswith("commit") for one in self.seen)
            self.dead = len(self.seen) == self._crash_at or (not what.startswith("commit") and writes == self._at_write)
            died = self.dead
        if died:
            self._barrier = self._rack.rule(Rule(action="drop_before"))
        return died

    def _wrote(self, write: Write) -> None:
        if write.kind == "effect":
            self._count(f"{write.method} {write.path}")

    def _committed(self, names: str) -> None:
        if self._count(f"commit {names}"):
            raise Crashed


class MortalStore:
    """The real store, as long as the daemon lives."""

    def __init__(self, store: OpenStore, effects: Effects) -> None:
        self._store = store
        self._effects = effects

    def _alive(self) -> None:
        if self._effects.dead:
            raise Crashed

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._alive()
        return await self._store.read(fn, *args, **kwargs)

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._alive()
        return await self._store.write(fn, *args, **kwargs)

    async def close(self) -> None:
        await self._store.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
