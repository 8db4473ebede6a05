"""SQLite: reads on the caller's thread, writes by one thread that groups commits."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import OperationalError

from bcmetal.errors import StartRefused, Unavailable
from bcmetal.store.time import SQLITE_FUNCTION

P = ParamSpec("P")
T = TypeVar("T")

GROUP: Final = 128  # functions in one commit
BUSY_S: Final = 10.0  # how long to wait for a short transaction of an admin's command
AWAY: Final = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
)
SAVEPOINT: Final = "one_of_the_group"


class LockFile:
    """Excludes a second daemon on one database; administration does not take it."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    @classmethod
    def taken(cls, database: Path) -> Self:
        path = database.with_name(database.name + ".lock")
        database.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise StartRefused(f"another daemon (process {other}) serves {database}: stop it first") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return cls(fd)

    def free(self) -> None:
        if self._fd is not None:
            os.close(self._fd)  # the file stays: removing it would race with the next daemon
            self._fd = None


class _Kept:
    """Keeps what a block raised, whatever it is, for whoever asked for the block."""

    error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error
        return error is not None


@dataclass(slots=True)
class _Job:
    fn: Callable[[Connection], Any]
    name: str
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = field(default=None)


def function_name(fn: Callable[..., Any]) -> str:
    """`claims.save` for a store's function: what `on_commit` is told."""
    name = str(getattr(fn, "__name__", type(fn).__name__))
    module = str(getattr(fn, "__module__", "")).rpartition(".")[2]
    return f"{module}.{name}" if module else name


class SqliteStore:
    kind = "sqlite"

    def __init__(self, path: Path, *, lock: LockFile | None, inline: bool, db_clock: Callable[[], int]) -> None:
        self.on_commit: Callable[[str], None] | None = None
        self.path = path
        self._lock = lock
        self._inline = inline
        self._db_clock = db_clock
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._write_engine = self._engine("BEGIN IMMEDIATE", query_only=False)
        self._read_engine = self._engine("BEGIN", query_only=True)
        self._writer: Connection | None = None
        self._writing = threading.Lock()  # a group on the writer thread, or an inline write
        self._readers: dict[int, Connection] = {}
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def _engine(self, begin: str, *, query_only: bool) -> Engine:
        engine = create_engine(
            f"sqlite:///{self.path}",
            poolclass=NullPool,  # one connection for each thread is kept by hand
            connect_args={"check_same_thread": False, "isolation_level": None, "timeout": BUSY_S},
        )

        @event.listens_for(engine, "connect")
        def prepare(connection: sqlite3.Connection, _record: object) -> None:
            connection.create_function(SQLITE_FUNCTION, 0, self._db_clock)
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-16384"):
                connection.execute(f"PRAGMA {pragma}").close()
            if query_only:
                connection.execute("PRAGMA query_only=ON").close()

        @event.listens_for(engine, "begin")
        def start(connection: Connection) -> None:
            connection.exec_driver_sql(begin)

        return engine

    # -------------------------------------------------------- reads

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        reader = self._reader()
        try:
            with contextlib.closing(reader.begin()):  # nothing to commit
                return fn(reader, *args, **kwargs)
        except OperationalError as error:
            raise _named(error) from error

    def _reader(self) -> Connection:
        if self._closed:
            raise Unavailable("the store is closed")
        thread = threading.get_ident()
        reader = self._readers.get(thread)
        if reader is None:
            reader = self._readers[thread] = self._read_engine.connect()
        return reader

    # -------------------------------------------------------- writes

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        job = _Job(lambda c: fn(c, *args, **kwargs), function_name(fn))
        if self._closed:
            raise Unavailable("the store is closed")
        if self._inline:
            self._commit_group([job])
            if job.error is not None:
                raise job.error
        else:
            job.loop = asyncio.get_running_loop()
            job.future = job.loop.create_future()
            self._start_writer()
            self._jobs.put(job)
            await job.future
        result: T = job.result
        return result

    def prepare(self, fn: Callable[[Connection], None]) -> None:
        job = _Job(fn, function_name(fn))
        self._commit_group([job])
        if job.error is not None:
            raise job.error

    def _start_writer(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_forever, name="store-writer", daemon=True)
            self._thread.start()

    def _write_forever(self) -> None:
        while (first := self._jobs.get()) is not None:
            group, last = [first], False
            with contextlib.suppress(queue.Empty):
                while len(group) < GROUP:
                    job = self._jobs.get_nowait()
                    if job is None:
                        last = True
                        break
                    group.append(job)
            self._commit_group(group)
            self._answer(group)
            if last:
                return

    def _commit_group(self, group: Sequence[_Job]) -> None:
        """Run a group in one transaction, and leave in each job what its caller gets. Nobody is told yes before the COMMIT."""
        with self._writing:
            with _Kept() as whole:
                self._run_group(group)
            if whole.error is not None:
                whole.error = _named(whole.error)
                self._drop_writer()
            done = [job for job in group if job.error is None]
            if whole.error is None and done and self.on_commit is not None:
                with _Kept() as whole:
                    self.on_commit(",".join(job.name for job in done))
            for job in done:
                job.error = whole.error

    def _run_group(self, group: Sequence[_Job]) -> None:
        if self._writer is None:
            self._writer = self._write_engine.connect()
        c = self._writer
        raw = c.connection.dbapi_connection
        if raw is None:
            raise Unavailable("the database is gone")
        with contextlib.closing(c.begin()) as transaction:
            for job in group:
                with _savepoint(raw, job, alone=len(group) == 1):
                    job.result = job.fn(c)
            if len(group) > 1 or group[0].error is None:
                transaction.commit()

    def _drop_writer(self) -> None:
        """A connection whose transaction failed as a whole (a full disk, an unreadable page) is not trusted with the next one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with _Kept():
                writer.invalidate()
            writer.close()

    @staticmethod
    def _answer(group: Sequence[_Job]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in group:
            if job.loop is not None:
                loops.setdefault(job.loop, []).append(job)
        for loop, jobs in loops.items():
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_deliver, jobs)

    # -------------------------------------------------------- the end

    async def close(self) -> None:
        self.shut()

    def shut(self) -> None:
        """What was asked for is still written; then every connection is closed."""
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        for connection in (*self._readers.values(), self._writer):
            if connection is not None:
                connection.close()
        self._readers.clear()
        self._writer = None
        self._read_engine.dispose()
        self._write_engine.dispose()
        if self._lock is not None:
            self._lock.free()


def _named(error: BaseException) -> BaseException:
    """A database that is locked by another process, full or unreadable is away for a while, and no fault of the caller's."""
    if not isinstance(error, OperationalError) or getattr(error.orig, "sqlite_errorcode", 0) & 0xFF not in AWAY:
        return error
    named = Unavailable("the database cannot be written or read just now: it is locked, full or unreadable")
    named.__cause__ = error
    return named


@contextlib.contextmanager
def _savepoint(raw: Any, job: _Job, *, alone: bool) -> Iterator[None]:
    """One function of a group: its failure is its own, and its neighbours are unharmed."""
    if not alone:
        raw.execute(f"SAVEPOINT {SAVEPOINT}").close()
    with _Kept() as kept:
        yield
    job.error = None if kept.error is None else _named(kept.error)
    if not alone:
        if kept.error is not None:
            raw.execute(f"ROLLBACK TO {SAVEPOINT}").close()
        raw.execute(f"RELEASE {SAVEPOINT}").close()


def _deliver(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        future = job.future
        if future is None or future.done():
            continue
        if job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(None)
