"""Scenarios on a site of their own, over SQLite: what the database does is the engine's tests' to try."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from emulated_site import OnASite, Site, a_site


@pytest.fixture
def on_a_site(tmp_path: Path) -> OnASite:
    def run(scenario: Callable[[Site], Awaitable[None]], erase: str = '["bmc"]') -> None:
        async def whole() -> None:
            async with a_site(tmp_path, None, erase) as site:
                await scenario(site)

        asyncio.run(whole())

    return run
