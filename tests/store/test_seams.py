"""The two seams: each call is one transaction, answered after its commit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from bcmetal.errors import StartRefused, Unavailable
from bcmetal.store import keys, leases, nodes
from bcmetal.store.engine import open_store
from bcmetal.store.time import now as db_now
from store.samples import NOW, Db, a_new_node, a_node


class Refused(Exception):
    pass


class Crash(BaseException):
    """Like a process that ends: no `except Exception` holds it up."""


def count(c: Connection) -> int:
    return int(c.execute(text("SELECT count(*) FROM api_keys")).scalar_one())


def add(c: Connection, name: str) -> str:
    keys.insert(c, name, name.encode(), f"key:{name}", "tenant-a", NOW)
    return name


def add_and_fail(c: Connection, name: str) -> None:
    add(c, name)
    raise Refused(name)


def test_a_write_is_seen_by_the_next_read(db: Db) -> None:
    assert db.write(add, "one") == "one"
    assert db.read(count) == 1


def test_one_failing_function_leaves_its_neighbours_in_the_group_unharmed(db: Db) -> None:
    """The writer is held until all are waiting, so that on SQLite they share one commit."""
    hold, held = threading.Event(), threading.Event()

    def wait(c: Connection) -> None:
        held.set()
        assert hold.wait(10)

    commits: list[str] = []

    async def together() -> list[str | BaseException | None]:
        first = asyncio.create_task(db.store.write(wait))
        while not held.is_set():
            await asyncio.sleep(0.001)
        db.store.on_commit = commits.append
        rest = [
            asyncio.create_task(db.store.write(add, "one")),
            asyncio.create_task(db.store.write(add_and_fail, "two")),
            asyncio.create_task(db.store.write(add, "three")),
        ]
        await asyncio.sleep(0.01)
        hold.set()
        await first
        return list(await asyncio.gather(*rest, return_exceptions=True))

    one, two, three = db.run(together())
    assert (one, three) == ("one", "three")
    assert isinstance(two, Refused)
    assert {row[0] for row in db.rows("SELECT key_id FROM api_keys")} == {"one", "three"}
    assert sum(commit.count("add") for commit in commits) == 2
    if db.store.kind == "sqlite":
        assert "test_seams.add,test_seams.add" in commits


def test_a_failing_function_writes_nothing(db: Db) -> None:
    with pytest.raises(Refused):
        db.write(add_and_fail, "one")
    assert db.read(count) == 0
    db.write(add, "one")
    assert db.read(count) == 1


def test_what_on_commit_raises_reaches_the_caller_and_the_commit_stands(db: Db) -> None:
    def crash(names: str) -> None:
        raise Crash(names)

    db.store.on_commit = crash
    with pytest.raises(Crash, match="add"):
        db.write(add, "one")
    db.store.on_commit = None
    assert db.read(count) == 1
    db.write(add, "two")
    assert db.read(count) == 2


def test_a_read_cannot_write(db: Db) -> None:
    with pytest.raises(DBAPIError):
        db.read(add, "one")
    assert db.read(count) == 0


def test_a_read_of_sqlite_sees_one_moment(tmp_path: Path) -> None:
    """On PostgreSQL each statement does: no read of several rows needs more there."""

    def twice(c: Connection) -> tuple[int, int]:
        before = count(c)
        with contextlib.closing(sqlite3.connect(tmp_path / "db")) as other:
            other.execute("INSERT INTO meta (name, value) VALUES ('meanwhile', '')")
            other.commit()
        return before, count(c)

    def count(c: Connection) -> int:
        return int(c.execute(text("SELECT count(*) FROM meta WHERE name = 'meanwhile'")).scalar_one())

    with Db(f"sqlite:///{tmp_path / 'db'}") as db:
        assert db.read(twice) == (0, 0)
        assert db.read(count) == 1


def test_a_cancelled_caller_does_not_stop_the_writer(db: Db) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(db.store.write(add, "one"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await db.store.write(add, "two")

    db.run(cancel())
    assert ("two",) in db.rows("SELECT key_id FROM api_keys")


def test_a_loop_that_ended_does_not_stop_the_writer(url: str) -> None:
    with Db(url) as db:
        hold, held = threading.Event(), threading.Event()

        def wait(c: Connection) -> None:
            held.set()
            assert hold.wait(10)
            add(c, "one")

        async def leave() -> None:
            task = asyncio.create_task(db.store.write(wait))
            while not held.is_set():
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        gone = asyncio.new_event_loop()
        gone.run_until_complete(leave())
        gone.close()
        hold.set()
        db.write(add, "two")
        deadline = 200
        while db.read(count) < 2 and deadline:
            deadline -= 1
            db.run(asyncio.sleep(0.01))
        assert db.read(count) == 2


def test_inline_everything_runs_on_the_callers_thread(url: str) -> None:
    with Db(url, inline=True) as db:
        assert db.write(lambda c: threading.get_ident()) == threading.get_ident()
        assert db.read(lambda c: threading.get_ident()) == threading.get_ident()
        with pytest.raises(Refused):
            db.write(add_and_fail, "one")
        db.write(add, "two")
        assert db.read(count) == 1


def test_a_closed_store_says_so(url: str) -> None:
    with Db(url) as db:
        db.run(db.store.close())
        with pytest.raises(Unavailable):
            db.write(add, "one")
        with pytest.raises(Unavailable):
            db.read(count)


def test_a_simulation_turns_the_databases_clock(tmp_path: Path) -> None:
    hand = [5]
    with Db(f"sqlite:///{tmp_path / 'db'}", db_clock=lambda: hand[0]) as db:
        assert db.read(db_now) == 5
        assert db.write(leases.take, "outbox", "a", 10)
        assert not db.write(leases.take, "outbox", "b", 10)
        hand[0] += 10_000_001
        assert db.write(leases.take, "outbox", "b", 10)


# ---------------------------------------------------------------- opening


HOLDER = """
import sys
from bcmetal.store.engine import open_store
store = open_store(sys.argv[1], exclusive=True)
print("open", flush=True)
sys.stdin.read()
store.shut()
"""


def test_a_second_daemon_is_refused_and_told_who_has_the_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'db'}"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        with pytest.raises(StartRefused, match=rf"process {first.pid}\b"):
            open_store(url, exclusive=True)
        with Db(url) as admin:  # administration is no second daemon
            admin.write(add, "one")
            assert admin.read(count) == 1
    with Db(url, exclusive=True) as next_one:
        assert next_one.read(count) == 1


def test_a_daemon_that_was_killed_leaves_no_lock(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'db'}"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        first.kill()
        first.wait()
    with Db(url, exclusive=True) as db:
        assert db.read(count) == 0


def test_the_database_file_is_its_owners_alone_and_safe_at_commit(tmp_path: Path) -> None:
    path = tmp_path / "state" / "db"
    with Db(f"sqlite:///{path}") as db:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert db.rows("PRAGMA journal_mode") == [("wal",)]
        assert db.write(lambda c: c.execute(text("PRAGMA synchronous")).scalar_one()) == 2


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", "needs a file"),
        ("mysql://host/db", "sqlite or postgresql"),
        ("nonsense", "not of the form"),
    ],
)
def test_an_address_that_is_no_database_is_refused_in_words(url: str, words: str) -> None:
    with pytest.raises(StartRefused, match=words):
        open_store(url)


def test_a_file_that_is_no_database_and_a_server_that_is_not_there_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "db"
    path.write_bytes(b"no database " * 100)
    with pytest.raises(StartRefused, match="cannot be used: file is not a database"):
        open_store(f"sqlite:///{path}")
    with pytest.raises(StartRefused, match="cannot be used"):
        open_store(f"postgresql://nobody@/none?host={tmp_path}")


@pytest.mark.postgresql
def test_a_database_that_goes_away_is_unavailable_and_found_again(postgres_url: str) -> None:
    with Db(postgres_url) as db:
        db.write(add, "one")
        with pytest.raises(Unavailable):
            db.write(end_my_connection)
        db.write(add, "two")
        assert db.read(count) == 2


def end_my_connection(c: Connection) -> None:
    c.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))


def test_a_missing_database_is_not_made_by_a_reader(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="bcmetal init"):
        open_store(f"sqlite:///{tmp_path / 'none'}", create=False)
    assert not (tmp_path / "none").exists()


def test_many_writers_at_once_are_all_answered(db: Db) -> None:
    new = [a_new_node(f"node-{n}") for n in range(100)]

    async def all_at_once() -> None:
        await asyncio.gather(*(db.store.write(nodes.insert, one, NOW) for one in new))

    db.run(all_at_once())
    assert db.rows("SELECT count(*) FROM nodes") == [(100,)]


def test_ids_sort_by_time_as_bytes(db: Db) -> None:
    made = [a_node(db) for _ in range(5)]
    assert sorted(made) == [row[0] for row in db.rows("SELECT node_id FROM nodes ORDER BY node_id")]
    db.write(add, "b")
    db.write(add, "B")
    assert [row[0] for row in db.rows("SELECT key_id FROM api_keys ORDER BY key_id")] == ["B", "b"]


def test_a_full_disk_tells_nobody_yes_and_the_next_group_is_sound(tmp_path: Path) -> None:
    def fill_up(c: Connection) -> None:
        pages = c.execute(text("PRAGMA page_count")).scalar_one()
        c.execute(text(f"PRAGMA max_page_count = {pages}"))

    def large(c: Connection, name: str) -> None:
        add(c, name)
        c.execute(text("INSERT INTO meta (name, value) VALUES (:name, :value)"), {"name": name, "value": "x" * 100_000})

    with Db(f"sqlite:///{tmp_path / 'db'}") as db:
        hold, held = threading.Event(), threading.Event()

        def wait(c: Connection) -> None:
            held.set()
            assert hold.wait(10)

        async def together() -> list[object]:
            await db.store.write(fill_up)
            first = asyncio.create_task(db.store.write(wait))
            while not held.is_set():
                await asyncio.sleep(0.001)
            rest = [asyncio.create_task(db.store.write(large, name)) for name in ("one", "two", "three")]
            await asyncio.sleep(0.01)
            hold.set()
            await first
            return list(await asyncio.gather(*rest, return_exceptions=True))

        answers = db.run(together())
        yes = [name for name, answer in zip(("one", "two", "three"), answers, strict=True) if answer is None]
        assert yes == [row[0] for row in db.rows("SELECT key_id FROM api_keys ORDER BY key_id")] == []
        db.write(large, "four")
        assert db.rows("SELECT key_id FROM api_keys") == [("four",)]
