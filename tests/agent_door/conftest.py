"""A daemon's door for agents, on each database."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_door.site import AgentSite
from bcmetal.store.engine import open_store


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the schema in it, to be copied."""
    path = tmp_path_factory.mktemp("template") / "db"
    open_store(f"sqlite:///{path}").shut()
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def site(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path) -> Iterator[AgentSite]:
    """On both databases."""
    if request.param == "postgresql":
        yield from opened(request.getfixturevalue("postgres_url"), tmp_path)
    else:
        yield from opened(copied(sqlite_template, tmp_path), tmp_path)


@pytest.fixture
def one_site(tmp_path: Path, sqlite_template: Path) -> Iterator[AgentSite]:
    """On SQLite alone, for what no database decides."""
    yield from opened(copied(sqlite_template, tmp_path), tmp_path)


def copied(template: Path, folder: Path) -> str:
    shutil.copy(template, folder / "db")
    return f"sqlite:///{folder / 'db'}"


def opened(url: str, folder: Path) -> Iterator[AgentSite]:
    with AgentSite(url, folder) as made:
        yield made
