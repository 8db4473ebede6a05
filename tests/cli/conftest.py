"""For the command line: a daemon with its emulated rack, and a site that machines join."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import in_memory
from bcmetal.demo.site import Site, emulated_site
from bcmetal.store.engine import open_store
from cli.join_door import Door, open_door
from cli.running import Ran, Run, invoke
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


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with (
        in_memory.a_folder(tmp_path_factory.mktemp("site")) as folder,
        emulated_site(folder, redfish=3, ipmi=1) as running,
    ):
        yield running


@pytest.fixture(scope="package")
def run(site: Site) -> Run:
    """`bcmetal --profile … WORDS`."""

    def at_the_site(*words: str, stdin: str | None = None) -> Ran:
        return invoke("--profile", str(site.profile_file), *words, stdin=stdin)

    return at_the_site
