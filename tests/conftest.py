"""What all tests share."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import settings

import in_memory

pytest_plugins = ["postgres_fixture"]

# Hypothesis allows an example 200 ms by itself: too little where two workers, and the daemons that they start, share two cores.
_given = settings.get_profile(settings.get_current_profile_name())
if _given.deadline is not None:  # in CI there is none
    settings.register_profile("workers", _given, deadline=timedelta(seconds=2))
    settings.load_profile("workers")

LONGEST = ("test_killed_at_random.py", "test_whole_machine.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: each worker begins with one, and neither waits for the other at the end."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


# Folders of tests that keep a database or small files that are synced all the time.
IN_MEMORY = (
    *("agent", "agent_door", "agent_life", "api", "behaviours", "cli", "credentials", "crash"),
    *("e2e", "engine", "faults_on_the_machine", "join", "proof", "store"),
)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """pytest's own, or one in memory."""
    if request.path.parent.name not in IN_MEMORY:
        yield tmp_path
        return
    with in_memory.a_folder(tmp_path) as folder:
        yield folder
