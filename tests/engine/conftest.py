"""Sites for the engine's tests: over SQLite where they show what becomes of a BMC, over each database where its transactions have a part in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from emulated_site import OnASite, Site, a_site


def _runs(folder: Path, url: str | None) -> OnASite:
    def run(scenario: Callable[[Site], Awaitable[None]], erase: str = '["bmc"]') -> None:
        async def whole() -> None:
            async with a_site(folder, url, erase) as site:
                await scenario(site)

        asyncio.run(whole())

    return run


@pytest.fixture
def on_a_site(tmp_path: Path) -> OnASite:
    """Runs a scenario on a fresh site, over SQLite."""
    return _runs(tmp_path, None)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def on_each_database(request: pytest.FixtureRequest, tmp_path: Path) -> OnASite:
    """The same over SQLite and over PostgreSQL."""
    return _runs(tmp_path, request.getfixturevalue("postgres_url") if request.param == "postgresql" else None)
