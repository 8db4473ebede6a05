"""What makers' BMCs do all at once, and every BMC on a bad day: a machine's life up to its release."""

from __future__ import annotations

import pytest

from bcmetal.states import Verb
from behaviours.frame import Row, Shared

ROWS = (
    Row("supermicro", until=Verb.RELEASE),
    Row("hpe", until=Verb.RELEASE),
    Row("dell", until=Verb.RELEASE),
    Row("lenovo", until=Verb.RELEASE),
    Row("ami", until=Verb.RELEASE),
    Row("openbmc", until=Verb.RELEASE),
    Row("flaky", until=Verb.RELEASE),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)
