"""What all tests share."""

from datetime import timedelta

import pytest
from hypothesis import settings

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
