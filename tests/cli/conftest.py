"""A site that machines join, for the command line."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bcmetal.store.engine import open_store
from cli.join_door import Door, open_door
from join.site import JoinSite


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "db"
    open_store(f"sqlite:///{path}").shut()
    return path


@pytest.fixture
def door(tmp_path: Path, empty_database: Path) -> Iterator[Door]:
    shutil.copy(empty_database, tmp_path / "db")
    site = JoinSite(f"sqlite:///{tmp_path / 'db'}")
    with open_door(site, tmp_path) as opened:
        yield opened
    site.close()
