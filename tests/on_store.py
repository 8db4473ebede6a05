"""A store whose functions are called from plain code, on a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from bcmetal.store.engine import OpenStore

P = ParamSpec("P")
T = TypeVar("T")


class OnStore:
    """Whoever has `loop` and `store`."""

    loop: asyncio.AbstractEventLoop
    store: OpenStore

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(self.store.read(fn, *args, **kwargs))

    def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(self.store.write(fn, *args, **kwargs))
