"""PostgreSQL: threads, READ COMMITTED, a pool of connections for reads and one for writes, so that reads never wait behind writes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from bcmetal.errors import Unavailable
from bcmetal.store.sqlite import function_name

P = ParamSpec("P")
T = TypeVar("T")

CONNECTIONS: Final = 8  # of each pool
TRIES: Final = 5
AGAIN: Final = frozenset({"40P01", "40001"})  # deadlock detected, serialization failure


class PostgresStore:
    kind = "postgresql"

    def __init__(self, url: URL, *, inline: bool) -> None:
        self.on_commit: Callable[[str], None] | None = None
        self._inline = inline
        self._read_engine = self._engine(url).execution_options(postgresql_readonly=True)
        self._write_engine = self._engine(url)
        self._readers = ThreadPoolExecutor(CONNECTIONS, "store-read")
        self._writers = ThreadPoolExecutor(CONNECTIONS, "store-write")
        self._closed = False

    @staticmethod
    def _engine(url: URL) -> Engine:
        return create_engine(
            url,
            pool_size=CONNECTIONS,
            max_overflow=0,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": 10, "application_name": "bcmetal"},
        )

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def call(c: Connection) -> T:
            return fn(c, *args, **kwargs)

        return await self._in_thread(self._readers, self._read, call)

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def call(c: Connection) -> T:
            return fn(c, *args, **kwargs)

        return await self._in_thread(self._writers, self._write, call, function_name(fn))

    async def _in_thread(self, pool: ThreadPoolExecutor, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise Unavailable("the store is closed")
        if self._inline:
            return fn(*args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(pool, functools.partial(fn, *args, **kwargs))

    def prepare(self, fn: Callable[[Connection], None]) -> None:
        self._write(fn, function_name(fn))

    def _read(self, fn: Callable[[Connection], T]) -> T:
        try:
            with self._read_engine.connect() as c:
                return fn(c)
        except DBAPIError as error:
            raise _named(error) from error

    def _write(self, fn: Callable[[Connection], T], name: str) -> T:
        for left in range(TRIES - 1, -1, -1):
            try:
                with self._write_engine.begin() as c:
                    result = fn(c)
                break
            except DBAPIError as error:
                if left and getattr(error.orig, "sqlstate", None) in AGAIN:
                    continue  # nothing of it was written: store functions act on the database alone
                raise _named(error) from error
        if self.on_commit is not None:
            self.on_commit(name)
        return result

    async def close(self) -> None:
        self.shut()

    def shut(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.ExitStack() as stack:
            stack.callback(self._read_engine.dispose)
            stack.callback(self._write_engine.dispose)
            self._readers.shutdown()
            self._writers.shutdown()


def _named(error: DBAPIError) -> BaseException:
    """A lost connection is the database's absence, and no fault of the caller's."""
    unspoken = isinstance(error, OperationalError | InterfaceError) and getattr(error.orig, "sqlstate", None) is None
    if error.connection_invalidated or unspoken:
        return Unavailable("the database cannot be reached")
    return error
