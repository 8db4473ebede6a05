"""The schema: up from nothing on both databases, the same as the tables say, and refused when it is newer than the code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from bcmetal.errors import StartRefused
from bcmetal.store import agent_tables, join_tables, migrate, tables
from bcmetal.store.engine import open_store
from postgres_fixture import Cluster
from store.samples import Db, a_node


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'db'}"
        return
    cluster: Cluster = request.getfixturevalue("postgres_cluster")
    url = cluster.empty()
    yield url
    cluster.drop(url)


def test_an_empty_database_gets_the_schema_that_the_tables_say(empty_url: str) -> None:
    def differences(c: Connection) -> list[object]:
        assert {"nodes", "join_tokens", "agents"} <= set(tables.metadata.tables)
        assert tables.metadata is join_tables.metadata is agent_tables.metadata
        return list(compare_metadata(MigrationContext.configure(c, opts={"compare_type": True}), tables.metadata))

    with Db(empty_url) as db:
        assert db.read(differences) == []
        assert db.rows("SELECT value FROM meta WHERE name = 'min_code'") == [("1",)]
        assert db.rows("SELECT version_num FROM alembic_version") == [(migrate.HEAD,)]


def test_a_database_is_opened_again_as_it_was(empty_url: str) -> None:
    with Db(empty_url) as db:
        node_id = a_node(db)
        key = db.read(migrate.deployment_key)
        assert len(key) == 32
    with Db(empty_url) as db:
        assert db.rows("SELECT node_id FROM nodes") == [(node_id,)]
        assert db.read(migrate.deployment_key) == key


def test_a_database_for_newer_code_is_refused_in_words(empty_url: str) -> None:
    with Db(empty_url) as db:
        db.sql("UPDATE meta SET value = '2' WHERE name = 'min_code'")
    for migrated in (True, False):
        with pytest.raises(StartRefused, match=r"for bcmetal code 2 and above, and this is code 1: install a newer"):
            open_store(empty_url, migrated=migrated)


def test_a_reader_does_not_migrate(empty_url: str) -> None:
    with pytest.raises(StartRefused, match="bcmetal init"):
        open_store(empty_url, migrated=False)
    open_store(empty_url).shut()
    with Db(empty_url, migrated=False) as db:
        a_node(db)


def test_the_migrations_end_where_the_code_thinks() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).parent.parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [migrate.HEAD]
