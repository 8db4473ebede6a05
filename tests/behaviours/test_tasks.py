"""Tasks: one that is gone says nothing, one that failed is looked behind, and none is taken for the state itself."""

from __future__ import annotations

import pytest

from bcmetal.states import Verb
from behaviours.frame import Row, Shared

ROWS = (
    Row("task-purged", until=Verb.DEPLOY),
    Row("task-fails", until=Verb.RELEASE),
    Row("task-completed-with-errors", until=Verb.RELEASE),
    Row("erase-completed-with-errors", until=Verb.COMMISSION, fails="erase-failed"),
    Row("task-404-at-first", until=Verb.DEPLOY),
    Row("accepted-without-a-task", until=Verb.RELEASE),
    Row("reset-wants-a-body", until=Verb.RELEASE, fires=False),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)
