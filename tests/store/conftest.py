"""Every test of the store runs on both databases."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bcmetal.store.engine import open_store
from store.samples import Db


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the schema in it, to be copied."""
    path = tmp_path_factory.mktemp("template") / "db"
    open_store(f"sqlite:///{path}").shut()
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        found: str = request.getfixturevalue("postgres_url")
        return found
    shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "bcmetal.db")
    return f"sqlite:///{tmp_path / 'bcmetal.db'}"


@pytest.fixture
def db(url: str) -> Iterator[Db]:
    with Db(url) as opened:
        yield opened
