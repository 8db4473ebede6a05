"""From every rest and failed state some chain of verbs reaches `available`, and some chain reaches `retired`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from bcmetal.decisions import NodeFacts, Params, PoolPolicy, allowed_verbs, confirmation_of
from bcmetal.states import Disks, State, Verb
from properties.worlds import BOTH, IDLE, NOW, a_node, a_pool, every_input, every_willing_input, failed_verbs, passages


def every_standing(scheme: str, held: bool) -> Iterator[NodeFacts]:
    """Every rest and failed state, with each kind of disks, and each verb whose failure it may be."""
    for state, disks in product(IDLE, Disks):
        for verb in failed_verbs(state):
            yield replace(a_node(state, disks), bmc_scheme=scheme, held_by_another_tenant=held, failed_verb=verb)


def who_reaches(goal: State, all_nodes: list[NodeFacts], pool: PoolPolicy) -> set[NodeFacts]:
    """All nodes from which some chain of accepted verbs, each succeeding, leads to the goal."""
    before: dict[NodeFacts, set[NodeFacts]] = defaultdict(set)
    for node in all_nodes:
        for passage in passages(node, every_willing_input(node), pool):
            before[passage.after].add(node)
    reached = {node for node in {*all_nodes, *before} if node.state is goal}
    frontier = set(reached)
    while frontier:
        frontier = {node for here in frontier for node in before[here]} - reached
        reached |= frontier
    return reached


@pytest.mark.parametrize("scheme", ["redfish", "ipmi"])
@pytest.mark.parametrize("held", BOTH, ids=["own-data", "another-tenants-data"])
def test_there_is_no_dead_end(scheme: str, held: bool) -> None:
    standing = list(every_standing(scheme, held))
    for on_arrival, commission_erases, release_erases, rescue in product(BOTH, BOTH, BOTH, BOTH):
        pool = replace(
            a_pool(),
            erase_on_arrival=on_arrival,
            commission_erases=commission_erases,
            release_erases=release_erases,
            has_rescue_iso=rescue,
        )
        for goal in (State.AVAILABLE, State.RETIRED):
            stuck = {n for n in standing if n.state is not State.RETIRED} - who_reaches(goal, standing, pool)
            assert not stuck, f"{sorted(n.state for n in stuck)} cannot reach {goal}"


def test_nothing_leads_out_of_retired_but_removal() -> None:
    for disks in Disks:
        node = a_node(State.RETIRED, disks)
        assert not list(passages(node, every_input(node), a_pool()))
        assert Verb.REMOVE in {allowed.verb for allowed in allowed_verbs(node, a_pool(), NOW)}


def test_whoever_only_follows_what_allowed_verbs_say_gets_there_too() -> None:
    """The `needs` of each allowed verb are hint enough to walk from any state to `available` and to `retired`."""
    for scheme, held in product(("redfish", "ipmi"), BOTH):
        for node in every_standing(scheme, held):
            if node.state is State.RETIRED:
                continue
            found, todo = {node}, [node]
            while todo:
                here = todo.pop()
                for allowed in allowed_verbs(here, a_pool(), NOW):
                    for passage in passages(here, iter([answer_to(allowed.needs, here)]), a_pool()):
                        if passage.after not in found:
                            found.add(passage.after)
                            todo.append(passage.after)
            assert {State.AVAILABLE, State.RETIRED} <= {there.state for there in found}, node


def answer_to(needs: str | None, node: NodeFacts) -> Params:
    match needs:
        case "rebuild":
            return Params(rebuild=True)
        case "confirmErase":
            return Params(confirm_erase=confirmation_of(node))
        case "profile":
            return Params(erases=True)
        case "eraseWaiver":
            return Params(waiver=True, waiver_machine=True)
        case _:
            return Params()
