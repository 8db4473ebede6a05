"""The two seams to the database: `read` and `write`, each one transaction.

SQLite: reads run on the caller's thread; writes go to one writer thread that puts what is waiting into one group, each function under
its own SAVEPOINT, and answers after the group's COMMIT. PostgreSQL: threads, with a pool of connections for reads and one for writes.
Under simulation (`inline`) everything runs on the caller's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from bcmetal.errors import StartRefused, Unavailable
from bcmetal.store import migrate
from bcmetal.store.postgres import PostgresStore
from bcmetal.store.sqlite import LockFile, SqliteStore
from bcmetal.store.values import Store

OnCommit = Callable[[str], None]


class OpenStore(Store, Protocol):
    """A store with its crash-test door: `on_commit` is called after each COMMIT with the names of the functions that it made durable.

    What it raises reaches the callers of those functions.
    """

    kind: str
    on_commit: OnCommit | None

    def prepare(self, fn: Callable[[Connection], None]) -> None:
        """Run something in one transaction, on this thread, before the store serves."""
        ...

    def shut(self) -> None:
        """`close`, for callers without a loop."""
        ...


def system_micros() -> int:
    return time.time_ns() // 1000


def open_store(
    url: str,
    *,
    create: bool = True,
    migrated: bool = True,
    exclusive: bool = False,
    inline: bool = False,
    db_clock: Callable[[], int] = system_micros,
) -> OpenStore:
    """Open a database and bring its schema up to this code's.

    `exclusive`: the daemon's opening; on SQLite a second one is refused, and the first one's process is named. Administration opens
    without it. `db_clock`: what `db_now()` answers on SQLite. Raises StartRefused.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StartRefused(
            "the database's address is not of the form sqlite:////PATH or postgresql+psycopg://…"
        ) from error
    store: OpenStore
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise StartRefused("the database needs a file: sqlite:////PATH")
        path = Path(parsed.database)
        if not create and not path.exists():
            raise StartRefused(f"there is no database at {path}: run `bcmetal init`")
        lock = LockFile.taken(path) if exclusive else None
        store = SqliteStore(path, lock=lock, inline=inline, db_clock=db_clock)
    elif parsed.get_backend_name() == "postgresql":
        store = PostgresStore(parsed.set(drivername="postgresql+psycopg"), inline=inline)
    else:
        raise StartRefused(f"{parsed.get_backend_name()} is no database that bcmetal knows: sqlite or postgresql")
    done = False
    try:
        store.prepare(migrate.upgrade if migrated else migrate.check)
        done = True
    except (Unavailable, DBAPIError) as error:
        cause = getattr(error, "orig", None) or error.__cause__ or error
        raise StartRefused(f"the database cannot be used: {str(cause).strip().splitlines()[0]}") from error
    finally:
        if not done:
            store.shut()
    return store
