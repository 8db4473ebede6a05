"""ETags and preconditions."""

from __future__ import annotations

import pytest

from bcmetal.states import Verb
from behaviours.frame import Row, Shared

ROWS = (
    Row("etag-required", until=Verb.DEPLOY, fires=False),
    Row("etag-required-in-silence", until=Verb.DEPLOY, fires=False),
    Row("etag-refused", until=Verb.DEPLOY),
    Row("etag-empty", until=Verb.DEPLOY),
    Row("etag-weak", until=Verb.DEPLOY),
    Row("etag-by-compression", until=Verb.DEPLOY, fires=False),  # no compression is asked for
    Row("etag-absent", until=Verb.DEPLOY),
    Row("etag-changes-at-each-read", until=Verb.DEPLOY),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)
