"""What happens to disks: nothing foreign is erased unasked, and nothing unclean goes on in silence."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from bcmetal.decisions import (
    Move,
    NodeFacts,
    Params,
    PoolPolicy,
    Refusal,
    confirmation_of,
    decide,
    erases_disks,
)
from bcmetal.states import Disks, SideVerb, State, Verb
from properties.worlds import (
    BOTH,
    EVERY_VERB,
    NOW,
    a_node,
    a_pool,
    carried_out,
    every_input,
    every_question,
    inputs,
    names_the_machine,
    nodes,
    passages,
    pools,
)


@given(nodes, st.sampled_from(EVERY_VERB), inputs, pools)
def test_foreign_disks_are_given_up_only_by_naming_the_machine(
    node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy
) -> None:
    if node.disks is not Disks.FOREIGN or isinstance(decide(node, verb, params, pool, NOW), Refusal):
        return
    done = carried_out(node, verb)
    given_up_before = node.not_erased and node.state is not State.DEPLOYED
    if done in (Verb.COMMISSION, Verb.RELEASE, Verb.RETIRE) or (done is Verb.DEPLOY and not given_up_before):
        assert pool.erase_on_arrival or names_the_machine(node, params.confirm_erase)


def test_no_history_without_a_confirmation_erases_or_writes_foreign_disks() -> None:
    def without_a_confirmation(node: NodeFacts) -> Iterator[Params]:
        return (params for params in every_input(node) if params.confirm_erase is None)

    for commission_erases, release_erases in product(BOTH, BOTH):
        pool = replace(a_pool(), commission_erases=commission_erases, release_erases=release_erases)
        # The second: a refresh found a new drive in a clean machine.
        first = {a_node(State.ENROLLED, Disks.FOREIGN), a_node(State.AVAILABLE, Disks.FOREIGN)}
        seen, queue = set(first), deque(first)
        while queue:
            node = queue.popleft()
            for passage in passages(node, without_a_confirmation(node), pool, failures=True):
                assert passage.after.disks is Disks.FOREIGN, passage
                assert passage.verb not in (Verb.COMMISSION, Verb.DEPLOY, Verb.RELEASE, Verb.RETIRE), passage
                if passage.after not in seen:
                    seen.add(passage.after)
                    queue.append(passage.after)
        assert {node.state for node in seen} >= {State.INSPECTED, State.DEPLOYED, State.RESCUED}


@given(nodes, pools)
def test_the_confirmation_is_the_usable_serial_else_the_id(node: NodeFacts, pool: PoolPolicy) -> None:
    node = replace(node, state=State.INSPECTED, disks=Disks.FOREIGN, protected=False, fenced_reason=None)
    pool = replace(pool, erase_on_arrival=False, mode=a_pool().mode)
    named = Params(confirm_erase=confirmation_of(node), erases=True)
    assert confirmation_of(node) == (node.serial or node.node_id)
    assert isinstance(decide(node, Verb.COMMISSION, named, pool, NOW), Move)
    other = replace(named, confirm_erase=confirmation_of(node) + "0")
    assert isinstance(decide(node, Verb.COMMISSION, other, pool, NOW), Refusal)


@given(nodes, st.sampled_from(Verb), inputs, pools)
def test_unclean_disks_reach_available_or_retired_only_erased_or_said_to_be_not(
    node: NodeFacts, verb: Verb, params: Params, pool: PoolPolicy
) -> None:
    """What `decide` can hold: such a move erases, or says by profile or waiver that it does not. The workflows hold the rest."""
    move = decide(node, verb, params, pool, NOW)
    if isinstance(move, Refusal) or move.success not in (State.AVAILABLE, State.RETIRED) or node.disks is Disks.CLEAN:
        return
    done = carried_out(node, verb)
    assert done in (Verb.COMMISSION, Verb.RELEASE, Verb.RETIRE)
    assert isinstance(done, Verb)
    passes_over = not erases_disks(done, params, pool)
    if passes_over or params.waiver:
        same_tenant = not node.held_by_another_tenant
        signed_away = done is Verb.RETIRE and params.waiver and (params.waiver_machine or not passes_over)
        handed_over = done is Verb.RETIRE and (params.waiver_machine or not passes_over)
        assert same_tenant or signed_away or handed_over


def every_question_about_another_tenants_data() -> Iterator[tuple[Verb, Params, PoolPolicy]]:
    """Accepted moves of machines that are not clean, with a drive that another tenant wrote last."""
    for release_erases, commission_erases in product(BOTH, BOTH):
        pool = replace(a_pool(), release_erases=release_erases, commission_erases=commission_erases)
        for node, verb, params in every_question():
            held = replace(node, held_by_another_tenant=True)
            if node.disks is not Disks.CLEAN and isinstance(decide(held, verb, params, pool, NOW), Move):
                done = carried_out(node, verb)
                if isinstance(done, Verb):
                    yield done, params, pool


def test_another_tenants_data_never_becomes_available() -> None:
    accepted = set()
    for verb, params, pool in every_question_about_another_tenants_data():
        if verb in (Verb.COMMISSION, Verb.RELEASE):
            accepted.add(verb)
            assert erases_disks(verb, params, pool)
            assert not params.waiver
    assert accepted == {Verb.COMMISSION, Verb.RELEASE}


def test_another_tenants_data_is_retired_only_erased_or_by_a_waiver_for_the_machine() -> None:
    ways = set()
    for verb, params, pool in every_question_about_another_tenants_data():
        if verb is Verb.RETIRE:
            way = (erases_disks(Verb.RETIRE, params, pool), params.waiver_machine)
            ways.add(way)
            assert any(way)
    assert ways == {(True, False), (False, True), (True, True)}


@given(nodes, st.sampled_from(EVERY_VERB), inputs, pools)
def test_a_waiver_for_the_whole_machine_is_for_retire_alone(
    node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy
) -> None:
    params = replace(params, waiver=True, waiver_machine=True)
    if isinstance(verb, Verb) and isinstance(decide(node, verb, params, pool, NOW), Move):
        assert carried_out(node, verb) is Verb.RETIRE


def test_no_chain_of_verbs_makes_disks_clean_except_through_an_erase() -> None:
    pool = replace(a_pool(), commission_erases=False, release_erases=False)
    first = a_node(State.ENROLLED, Disks.FOREIGN)
    seen, queue = {first}, deque([first])
    while queue:
        node = queue.popleft()
        never_erasing = (params for params in every_input(node) if params.erases is not True)
        for passage in passages(node, never_erasing, pool, failures=True):
            assert passage.after.disks is not Disks.CLEAN
            if passage.after not in seen:
                seen.add(passage.after)
                queue.append(passage.after)
    assert {node.state for node in seen} >= {State.AVAILABLE, State.RETIRED}
