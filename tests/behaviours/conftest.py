"""One site for each file of rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from behaviours.frame import Shared


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with asyncio.Runner() as runner, Shared(tmp_path_factory.mktemp("site"), runner) as site:
        yield site
