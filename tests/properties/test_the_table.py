"""The table itself: what it must hold whatever is written into it."""

from __future__ import annotations

import pytest

from bcmetal.states import (
    ABORTABLE,
    ADOPTABLE,
    BMC_WRITES,
    BUSY,
    BY_BUSY,
    ERASING,
    FAILED,
    REMOVABLE,
    REST,
    SIDE_TABLE,
    TABLE,
    TAKES_DOWN,
    WORKFLOWS,
    Row,
    SideVerb,
    State,
    Verb,
    fails_into,
    failure_of,
    success_of,
)

by_verb = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.verb.value)


def test_each_busy_state_has_exactly_one_workflow() -> None:
    assert sorted(row.during for row in TABLE) == sorted(BUSY)
    assert len(BY_BUSY) == len(TABLE)


def test_each_workflow_has_exactly_one_row() -> None:
    assert len(WORKFLOWS) == len(TABLE)


def test_each_state_is_rest_busy_or_failed_and_never_two_of_them() -> None:
    assert set(State) == REST | BUSY | FAILED
    assert len(REST) + len(BUSY) + len(FAILED) == len(State)


def test_the_names_of_states_tell_their_kind() -> None:
    assert {state for state in State if state.endswith("-failed")} == FAILED
    assert {state for state in State if state.endswith("ing")} == BUSY


@by_verb
def test_a_workflow_starts_and_ends_at_rest_or_failed(row: Row) -> None:
    assert row.allowed_from
    assert row.allowed_from <= REST | FAILED
    for origin in row.allowed_from:
        assert success_of(row, origin) in REST
        assert failure_of(row, origin) in FAILED or row.verb is Verb.SERVICE


@by_verb
def test_every_origin_of_a_workflow_leads_to_one_success(row: Row) -> None:
    if row.verb is not Verb.SERVICE:
        assert {success_of(row, origin) for origin in row.allowed_from} == {row.success}
        assert {failure_of(row, origin) for origin in row.allowed_from} == {row.failure}


def test_a_service_returns_to_where_it_came_from() -> None:
    service = WORKFLOWS[Verb.SERVICE]
    assert success_of(service, State.DEPLOYED) is State.DEPLOYED
    assert failure_of(service, State.DEPLOYED) is State.DEPLOYED
    assert success_of(service, State.AVAILABLE) is State.AVAILABLE
    assert failure_of(service, State.AVAILABLE) is State.COMMISSION_FAILED


def test_a_retried_service_returns_to_its_first_origin_and_never_passes_for_deployed() -> None:
    service = WORKFLOWS[Verb.SERVICE]
    assert success_of(service, State.COMMISSION_FAILED) is State.AVAILABLE
    assert failure_of(service, State.COMMISSION_FAILED) is State.COMMISSION_FAILED


@by_verb
def test_caps_and_budgets_are_positive(row: Row) -> None:
    assert row.cap > 0
    assert row.budget_s > 0


def test_the_budgets_and_caps_are_those_that_were_agreed() -> None:
    agreed = {
        Verb.INSPECT: (15, 50),
        Verb.COMMISSION: (360, 20),
        Verb.DEPLOY: (90, 40),
        Verb.SERVICE: (180, 20),
        Verb.RESCUE: (45, 10),
        Verb.UNRESCUE: (45, 10),
        Verb.RELEASE: (60, 40),
        Verb.RETIRE: (60, 40),
    }
    assert {row.verb: (row.budget_s // 60, row.cap) for row in TABLE} == agreed


def test_releasing_and_retiring_are_the_only_workflows_that_cannot_be_aborted() -> None:
    assert {State.RELEASING, State.RETIRING} == BUSY - ABORTABLE


def test_a_failed_workflow_can_be_started_again_from_its_failed_state() -> None:
    for row in TABLE:
        for origin in row.allowed_from:
            failed = failure_of(row, origin)
            if failed in FAILED and row.verb is not Verb.SERVICE:
                assert failed in row.allowed_from, f"{row.verb} leaves a node in {failed} and cannot start there"


def test_each_failed_state_stands_for_the_failure_of_some_verb() -> None:
    for state in FAILED:
        assert [verb for verb in WORKFLOWS if fails_into(verb, state)], state
    for state in REST | BUSY:
        assert not [verb for verb in Verb if fails_into(verb, state)], state


def test_each_rest_and_failed_state_is_reached_by_some_row() -> None:
    reached = {success_of(row, origin) for row in TABLE for origin in row.allowed_from}
    reached |= {failure_of(row, origin) for row in TABLE for origin in row.allowed_from}
    assert reached == (REST | FAILED) - {State.ENROLLED}


def test_a_retired_machine_can_only_be_removed() -> None:
    assert not [row.verb for row in TABLE if State.RETIRED in row.allowed_from]
    assert State.RETIRED in REMOVABLE


def test_nothing_that_is_under_way_is_removed_or_adopted() -> None:
    assert REMOVABLE | ADOPTABLE <= REST | FAILED


def test_side_operations_stand_aside_while_a_workflow_runs_except_for_credentials() -> None:
    assert set(SIDE_TABLE) == set(SideVerb)
    anywhere = {SideVerb.SET_BMC_CREDENTIALS, SideVerb.ROTATE_BMC_CREDENTIALS}
    for verb, states in SIDE_TABLE.items():
        assert states == (frozenset(State) if verb in anywhere else REST | FAILED), verb


def test_what_powers_or_erases_is_named_for_protection_and_what_writes_for_observe_mode() -> None:
    assert frozenset(WORKFLOWS) - TAKES_DOWN == {Verb.INSPECT}
    assert frozenset(WORKFLOWS) - BMC_WRITES == {Verb.INSPECT}
    assert ERASING <= TAKES_DOWN
    assert SideVerb.SET_POWER in TAKES_DOWN
    looks = {SideVerb.REFRESH, SideVerb.READ_SENSORS, SideVerb.READ_EVENT_LOG}
    harmless = looks | {SideVerb.UPDATE, SideVerb.SET_BMC_CREDENTIALS}
    assert frozenset(SideVerb) - BMC_WRITES == harmless
