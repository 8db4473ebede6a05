"""Power: what is not known is not acted on, what was accepted is looked at, and what never comes is said."""

from __future__ import annotations

import pytest

from bcmetal.states import Verb
from bcmetal.workflows.steps import STUCK_S
from bcmetal_drivers.resources import PowerAction
from behaviours.frame import Case, Row, Shared


async def nothing_was_forced(case: Case) -> None:
    """No state, no act: the machine was not switched, nor started."""
    assert case.writes("ComputerSystem.Reset") == []
    assert case.bmc.machine.boots == []


async def on_was_asked_for_again(case: Case) -> None:
    assert case.bmc.fired("on-does-nothing-twice") == 2


async def started_by_hand(case: Case) -> None:
    case.bmc.machine.set_power(PowerAction.ON)


async def switched_off_after_two_minutes(case: Case) -> None:
    """In spite of a state that never becomes On, and not before it had time to."""
    first = case.writes("ComputerSystem.Reset")[0]
    assert first.at - case.bmc.machine.boots[0].at >= STUCK_S


ROWS = (
    Row("power-lags", until=Verb.DEPLOY),
    Row("power-null", until=Verb.DEPLOY),
    Row("power-word-unknown", until=Verb.DEPLOY),
    Row("power-absent", until=Verb.DEPLOY),
    Row("power-never-told", until=Verb.COMMISSION, fails="power-unknown", judge=nothing_was_forced),
    Row("powering-on-until-told", until=Verb.COMMISSION, before=started_by_hand, judge=switched_off_after_two_minutes),
    Row("powering-on-for-ever", until=Verb.DEPLOY, fails="power-not-reached"),
    Row("power-read-fails", until=Verb.DEPLOY),
    Row("already-there-409", until=Verb.RELEASE),
    Row("already-there-400", until=Verb.DEPLOY, fires=False),
    Row("on-refused-after-off", until=Verb.UNRESCUE, setup={"power_lag_s": 2.0}),
    Row("on-does-nothing-twice", until=Verb.DEPLOY, judge=on_was_asked_for_again),
    Row("on-does-nothing", until=Verb.DEPLOY, fails="power-not-reached"),
    Row("graceful-shutdown-ignored", until=Verb.RELEASE),
    Row("no-restart-offered", until=Verb.DEPLOY, fires=False),
    Row("force-on-only", until=Verb.DEPLOY, fires=False),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)
