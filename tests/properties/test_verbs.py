"""What `decide` must hold for every node, verb, input and pool."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmetal.decisions import (
    Micros,
    Move,
    NodeFacts,
    Params,
    PoolMode,
    PoolPolicy,
    Refusal,
    Refused,
    allowed_verbs,
    decide,
    is_protected,
)
from bcmetal.states import (
    BUSY,
    DEEP_INSPECT_BUDGET_S,
    FAILED,
    REMOVABLE,
    REST,
    WORKFLOWS,
    Disks,
    SideVerb,
    State,
    Verb,
    fails_into,
)
from properties.worlds import (
    EVERY_VERB,
    IDLE,
    NOW,
    SERIAL,
    a_node,
    a_pool,
    carried_out,
    every_question,
    every_willing_input,
    failed_verbs,
    inputs,
    nodes,
    pools,
)

verbs = st.sampled_from(EVERY_VERB)

# The page's own words, row by row, apart from the table that they check.
ALLOWED = {
    Verb.INSPECT: "enrolled inspected inspect-failed commission-failed",
    Verb.COMMISSION: "inspected available commission-failed",
    Verb.DEPLOY: "available deploy-failed deployed",
    Verb.RESCUE: "deployed rescued rescue-failed",
    Verb.UNRESCUE: "rescued rescue-failed",
    Verb.RELEASE: "deployed deploy-failed rescued rescue-failed release-failed retire-failed",
    Verb.RETIRE: "enrolled inspected available deployed rescued inspect-failed commission-failed deploy-failed"
    " rescue-failed release-failed retire-failed",
    Verb.ABORT: "inspecting commissioning deploying servicing rescuing unrescuing",
    Verb.RETRY: "inspect-failed commission-failed deploy-failed rescue-failed release-failed retire-failed",
    Verb.ADOPT: "inspected",
    Verb.REMOVE: "enrolled inspect-failed retired inspected deployed",
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("verb", ALLOWED)
def test_a_verb_is_allowed_where_the_page_says_and_nowhere_else(verb: Verb, state: State) -> None:
    node = a_node(state, Disks.FOREIGN if verb in (Verb.ADOPT, Verb.REMOVE) else Disks.TENANT)
    answer = decide(node, verb, Params(rebuild=True), a_pool(), NOW)
    assert isinstance(answer, Move) == (state.value in ALLOWED[verb].split())


@given(nodes, verbs, inputs, pools)
def test_a_move_is_the_row_of_its_verb(
    node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy
) -> None:
    answer = decide(node, verb, params, pool, NOW)
    if isinstance(answer, Refusal) or answer.during is None:
        return
    assert isinstance(answer.verb, Verb)
    row = WORKFLOWS[answer.verb]
    assert answer.verb is carried_out(node, verb)
    assert (answer.during, answer.origin) == (row.during, node.state)
    assert answer.success in REST
    assert answer.failure in FAILED | {State.DEPLOYED}
    assert answer.budget_s in (row.budget_s, DEEP_INSPECT_BUDGET_S)


@given(nodes, verbs, inputs, pools)
def test_nothing_but_an_abort_or_new_credentials_is_accepted_while_a_workflow_runs(
    node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy
) -> None:
    if node.state in BUSY and isinstance(decide(node, verb, params, pool, NOW), Move):
        assert verb in (Verb.ABORT, SideVerb.SET_BMC_CREDENTIALS, SideVerb.ROTATE_BMC_CREDENTIALS)


@given(nodes, inputs, pools)
def test_releasing_and_retiring_cannot_be_aborted(node: NodeFacts, params: Params, pool: PoolPolicy) -> None:
    for state in (State.RELEASING, State.RETIRING):
        assert isinstance(decide(replace(node, state=state), Verb.ABORT, params, pool, NOW), Refusal)


@given(nodes, verbs, inputs, pools)
def test_a_refusal_names_the_present_state_and_why(
    node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy
) -> None:
    answer = decide(node, verb, params, pool, NOW)
    if isinstance(answer, Refusal):
        assert answer.details["state"] == node.state
        assert answer.reason
        assert answer.message
        assert answer.code is Refused.INVALID_STATE or answer.field is not None


@pytest.mark.parametrize("state", IDLE)
def test_the_allowed_verbs_are_exactly_those_that_some_input_makes_acceptable(state: State) -> None:
    for disks, held, scheme, protected, failed_verb in product(
        Disks, (False, True), ("redfish", "ipmi"), (False, True), failed_verbs(state)
    ):
        node = replace(
            a_node(state, disks),
            held_by_another_tenant=held,
            bmc_scheme=scheme,
            protected=protected,
            failed_verb=failed_verb,
        )
        for mode, on_arrival, commission_erases, release_erases in product(
            PoolMode, (False, True), (False, True), (False, True)
        ):
            pool = replace(
                a_pool(),
                mode=mode,
                erase_on_arrival=on_arrival,
                commission_erases=commission_erases,
                release_erases=release_erases,
            )
            accepted = {
                verb
                for verb in EVERY_VERB
                if verb is not SideVerb.CLEANUP
                and any(isinstance(decide(node, verb, params, pool, NOW), Move) for params in every_willing_input(node))
            }
            assert {allowed.verb for allowed in allowed_verbs(node, pool, NOW)} == accepted


@given(nodes, pools)
def test_a_verb_that_needs_nothing_is_accepted_with_an_empty_input(node: NodeFacts, pool: PoolPolicy) -> None:
    for allowed in allowed_verbs(node, pool, NOW):
        if allowed.needs is None and allowed.verb is not Verb.RETRY:
            assert isinstance(decide(node, allowed.verb, Params(), pool, NOW), Move), allowed.verb


@given(nodes, pools)
def test_a_verb_that_needs_something_is_refused_without_it(node: NodeFacts, pool: PoolPolicy) -> None:
    for allowed in allowed_verbs(node, pool, NOW):
        if allowed.needs is not None:
            refusal = decide(node, allowed.verb, Params(), pool, NOW)
            assert isinstance(refusal, Refusal)
            assert refusal.field == allowed.needs


# ---------------------------------------------------------------- protection, observation, fences

POWERS_OR_ERASES = {
    Verb.COMMISSION,
    Verb.DEPLOY,
    Verb.SERVICE,
    Verb.RESCUE,
    Verb.UNRESCUE,
    Verb.RELEASE,
    Verb.RETIRE,
    SideVerb.SET_POWER,
}


def test_a_protected_machine_is_neither_powered_nor_erased_by_anybody() -> None:
    refused = set()
    for node, verb, params in every_question():
        if carried_out(node, verb) in POWERS_OR_ERASES:
            answer = decide(replace(node, protected=True), verb, params, a_pool(), NOW)
            assert isinstance(answer, Refusal)
            refused |= {verb} if answer.reason == "protected" else set()
    assert refused == POWERS_OR_ERASES | {Verb.RETRY}


@given(nodes, verbs, inputs, pools)
def test_protection_refuses_nothing_else(
    node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy
) -> None:
    if carried_out(node, verb) not in POWERS_OR_ERASES:
        free = decide(replace(node, protected=False), verb, params, pool, NOW)
        assert decide(replace(node, protected=True, protected_until=None), verb, params, pool, NOW) == free


@given(nodes, verbs, inputs, pools)
def test_protection_ends_at_its_moment(
    node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy
) -> None:
    node = replace(node, protected=True, protected_until=NOW)
    assert is_protected(node, Micros(NOW - 1))
    assert not is_protected(node, NOW)
    assert decide(node, verb, params, pool, NOW) == decide(replace(node, protected=False), verb, params, pool, NOW)


LOOKS = {
    *(Verb.INSPECT, Verb.ADOPT, Verb.REMOVE, SideVerb.REFRESH, SideVerb.UPDATE, SideVerb.SET_BMC_CREDENTIALS),
    *(SideVerb.READ_SENSORS, SideVerb.READ_EVENT_LOG),
}


def test_observe_mode_passes_no_write() -> None:
    pool = replace(a_pool(), mode=PoolMode.OBSERVE)
    accepted = {
        carried_out(node, verb)
        for node, verb, params in every_question()
        if isinstance(decide(node, verb, params, pool, NOW), Move)
    }
    assert accepted == LOOKS | {Verb.ABORT}


def test_a_fenced_machine_gets_no_write() -> None:
    accepted = {
        carried_out(node, verb)
        for node, verb, params in every_question()
        if isinstance(decide(replace(node, fenced_reason="a doubt"), verb, params, a_pool(), NOW), Move)
    }
    assert accepted == LOOKS | {Verb.ABORT}


@given(nodes, verbs, inputs, pools)
def test_maintenance_refuses_no_verb_because_verbs_wait(
    node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy
) -> None:
    free = decide(replace(node, maintenance=False, quiet=False), verb, params, pool, NOW)
    assert decide(replace(node, maintenance=True, quiet=True), verb, params, pool, NOW) == free


# ---------------------------------------------------------------- retry, rebuild, adopt, remove


@pytest.mark.parametrize("state", sorted(FAILED))
def test_each_failed_state_can_be_retried_and_does_the_failed_verb_again(state: State) -> None:
    for verb in failed_verbs(state):
        assert verb is not None
        answer = decide(replace(a_node(state, Disks.HALF), failed_verb=verb), Verb.RETRY, Params(), a_pool(), NOW)
        assert isinstance(answer, Move)
        assert (answer.verb, answer.during, answer.origin) == (verb, WORKFLOWS[verb].during, state)


@given(nodes, inputs, pools)
def test_a_retry_never_does_a_verb_that_the_table_would_not_allow_there(
    node: NodeFacts, params: Params, pool: PoolPolicy
) -> None:
    answer = decide(node, Verb.RETRY, params, pool, NOW)
    if isinstance(answer, Move):
        assert node.failed_verb is not None
        assert node.state in FAILED
        assert node.state in WORKFLOWS[node.failed_verb].allowed_from or fails_into(node.failed_verb, node.state)


def test_a_retry_after_a_retire_that_touched_nothing_is_the_retire_again() -> None:
    node = replace(a_node(State.DEPLOY_FAILED, Disks.HALF), failed_verb=Verb.RETIRE)
    answer = decide(node, Verb.RETRY, Params(), a_pool(), NOW)
    assert isinstance(answer, Move)
    assert (answer.verb, answer.origin) == (Verb.RETIRE, State.DEPLOY_FAILED)


@given(nodes, inputs, pools)
def test_a_retry_needs_what_its_verb_needs(node: NodeFacts, params: Params, pool: PoolPolicy) -> None:
    if node.failed_verb is None or node.failed_verb not in WORKFLOWS:
        return
    if isinstance(decide(node, Verb.RETRY, params, pool, NOW), Move):
        assert isinstance(decide(node, node.failed_verb, params, pool, NOW), Move)


@given(nodes, inputs, pools)
def test_a_deployed_machine_is_written_over_only_when_rebuild_is_said(
    node: NodeFacts, params: Params, pool: PoolPolicy
) -> None:
    node, params = replace(node, state=State.DEPLOYED), replace(params, rebuild=False)
    assert isinstance(decide(node, Verb.DEPLOY, params, pool, NOW), Refusal)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("disks", Disks)
def test_only_an_inspected_machine_with_its_own_system_is_adopted(state: State, disks: Disks) -> None:
    answer = decide(a_node(state, disks), Verb.ADOPT, Params(), a_pool(), NOW)
    assert isinstance(answer, Move) == (state is State.INSPECTED and disks is Disks.FOREIGN)


def test_a_service_that_failed_from_available_is_retried_from_where_it_failed_into() -> None:
    node = replace(a_node(State.COMMISSION_FAILED, Disks.CLEAN), failed_verb=Verb.SERVICE)
    answer = decide(node, Verb.RETRY, Params(), a_pool(), NOW)
    assert isinstance(answer, Move)
    assert (answer.during, answer.success, answer.failure) == (
        State.SERVICING,
        State.AVAILABLE,
        State.COMMISSION_FAILED,
    )


@given(nodes, inputs, pools)
def test_a_machine_that_we_wrote_to_is_removed_only_retired_or_abandoned(
    node: NodeFacts, params: Params, pool: PoolPolicy
) -> None:
    answer = decide(node, Verb.REMOVE, params, pool, NOW)
    if isinstance(answer, Move):
        assert node.state in REMOVABLE
        if node.disks is not Disks.FOREIGN:
            assert node.state is not State.INSPECTED
            assert node.state is not State.DEPLOYED or params.abandon


def test_a_wrong_confirmation_is_a_fault_of_the_input_and_a_missing_one_of_the_state() -> None:
    foreign = a_node(State.INSPECTED, Disks.FOREIGN)
    missing = decide(foreign, Verb.COMMISSION, Params(), a_pool(), NOW)
    wrong = decide(foreign, Verb.COMMISSION, Params(confirm_erase="SN-0815"), a_pool(), NOW)
    assert isinstance(missing, Refusal)
    assert isinstance(wrong, Refusal)
    assert (missing.code, wrong.code) == (Refused.INVALID_STATE, Refused.INVALID_INPUT)
    assert missing.details["confirmErase"] == SERIAL


@given(nodes, verbs, inputs, pools)
def test_a_decision_is_the_same_each_time(
    node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy
) -> None:
    assert decide(node, verb, params, pool, NOW) == decide(node, verb, params, pool, NOW)


# ---------------------------------------------------------------- what only the agent can do


@given(nodes, inputs, pools)
def test_without_an_agent_nothing_is_written_looked_at_or_rescued_from_inside(
    node: NodeFacts, params: Params, pool: PoolPolicy
) -> None:
    alone = replace(pool, agent="none")
    assert isinstance(decide(node, Verb.DEPLOY, replace(params, kind="image"), alone, NOW), Refusal)
    assert isinstance(decide(node, Verb.INSPECT, replace(params, deep=True), alone, NOW), Refusal)
    assert isinstance(decide(node, Verb.RESCUE, replace(params, ssh_keys=True), alone, NOW), Refusal)


@pytest.mark.parametrize("scheme", ["redfish", "ipmi"])
def test_with_an_agent_an_image_needs_no_virtual_media_and_an_iso_does(scheme: str) -> None:
    node = replace(a_node(State.AVAILABLE, Disks.CLEAN), bmc_scheme=scheme)
    pool = replace(a_pool(), agent="bcd")
    assert isinstance(decide(node, Verb.DEPLOY, Params(kind="image"), pool, NOW), Move)
    assert isinstance(decide(node, Verb.DEPLOY, Params(kind="iso"), pool, NOW), Move) == (scheme == "redfish")
    assert any(one.verb is Verb.DEPLOY for one in allowed_verbs(node, pool, NOW))


@pytest.mark.parametrize(
    ("agent", "iso", "scheme", "keys", "reason"),
    [
        ("bcd", False, "ipmi", True, None),
        ("bcd", False, "redfish", True, None),
        ("bcd", True, "redfish", False, None),
        ("bcd", True, "ipmi", False, "needs-keys"),
        ("bcd", False, "redfish", False, "needs-keys"),
        ("none", True, "redfish", True, "cannot-deliver-keys"),
        ("none", True, "ipmi", False, "no-virtual-media"),
        ("none", False, "redfish", False, "no-rescue-iso"),
    ],
)
def test_a_rescue_has_somebody_who_can_get_in(
    agent: str, iso: bool, scheme: str, keys: bool, reason: str | None
) -> None:
    node = replace(a_node(State.DEPLOYED, Disks.TENANT), bmc_scheme=scheme)
    answer = decide(node, Verb.RESCUE, Params(ssh_keys=keys), replace(a_pool(), agent=agent, has_rescue_iso=iso), NOW)
    assert (answer.reason if isinstance(answer, Refusal) else None) == reason


def test_a_machine_that_speaks_ipmi_has_time_to_be_looked_at_from_inside() -> None:
    node = replace(a_node(State.ENROLLED), bmc_scheme="ipmi")
    alone, with_agent = (
        decide(node, Verb.INSPECT, Params(), replace(a_pool(), agent=one), NOW) for one in ("none", "bcd")
    )
    assert isinstance(alone, Move)
    assert isinstance(with_agent, Move)
    assert with_agent.budget_s > alone.budget_s
