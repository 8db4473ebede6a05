"""What makers' BMCs do all at once, and every BMC on a bad day: a machine is deployed, and on one of them released."""

from __future__ import annotations

import pytest

from bcmetal.states import Verb
from behaviours.frame import Row, Shared

ROWS = (
    Row("supermicro", until=Verb.RELEASE),
    Row("hpe", until=Verb.DEPLOY),
    Row("dell", until=Verb.DEPLOY),
    Row("lenovo", until=Verb.DEPLOY),
    Row("ami", until=Verb.DEPLOY),
    Row("openbmc", until=Verb.DEPLOY),
    Row("flaky", until=Verb.DEPLOY),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)
