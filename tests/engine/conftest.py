"""The engine's tests run on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from emulated_site import OnASite, Site, a_site


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def on_a_site(request: pytest.FixtureRequest, tmp_path: Path) -> OnASite:
    """Runs a scenario on a fresh site, over SQLite and over PostgreSQL."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None

    def run(scenario: Callable[[Site], Awaitable[None]], erase: str = '["bmc"]') -> None:
        async def whole() -> None:
            async with a_site(tmp_path, url, erase) as site:
                await scenario(site)

        asyncio.run(whole())

    return run
