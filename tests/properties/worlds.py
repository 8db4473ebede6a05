"""Every node, pool and input that a decision can meet: strategies for hypothesis, and enumerations where the space is small."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from hypothesis import strategies as st

from bcmetal.decisions import (
    Micros,
    Move,
    NodeFacts,
    Params,
    PoolMode,
    PoolPolicy,
    confirmation_of,
    decide,
    erases_disks,
)
from bcmetal.states import BUSY, WORKFLOWS, Disks, SideVerb, State, System, Verb, fails_into

NOW = Micros(1_800_000_000_000_000)
SERIAL = "SN-4711"
EVERY_VERB: tuple[Verb | SideVerb, ...] = (*Verb, *SideVerb)
IDLE = tuple(sorted(frozenset(State) - BUSY))
BOTH = (False, True)
MIND_CHANGES = (None, True, False)


def a_node(state: State = State.AVAILABLE, disks: Disks = Disks.CLEAN) -> NodeFacts:
    """A Redfish machine with a usable serial and nothing odd about it."""
    return NodeFacts("nd_1", state, disks, serial=SERIAL, bmc_scheme="redfish", failed_verb=failed_verbs(state)[0])


def a_pool() -> PoolPolicy:
    return PoolPolicy("p1", "t1", has_rescue_iso=True)


def failed_verbs(state: State) -> list[Verb | None]:
    """What `retry` may stand for in this state; None where it stands for nothing."""
    return [verb for verb in WORKFLOWS if fails_into(verb, state)] or [None]


def names_the_machine(node: NodeFacts, said: str | None) -> bool:
    return said is not None and said.strip().casefold() == (node.serial or node.node_id).casefold()


nodes = st.builds(
    NodeFacts,
    node_id=st.just("nd_1"),
    state=st.sampled_from(State),
    disks=st.sampled_from(Disks),
    system=st.sampled_from(System),
    serial=st.sampled_from([None, SERIAL]),
    bmc_scheme=st.sampled_from([None, "redfish", "redfish+http", "ipmi"]),
    maintenance=st.booleans(),
    quiet=st.booleans(),
    protected=st.booleans(),
    protected_until=st.sampled_from([None, Micros(NOW - 1), NOW, Micros(NOW + 1)]),
    protected_reason=st.sampled_from([None, "a long training run"]),
    fenced_reason=st.sampled_from([None, None, None, "two daemons"]),
    not_erased=st.booleans(),
    held_by_another_tenant=st.booleans(),
    failed_verb=st.sampled_from([None, *Verb]),
    failed_origin=st.sampled_from([None, *State]),
)
pools = st.builds(
    PoolPolicy,
    pool_id=st.just("p1"),
    owner=st.just("t1"),
    mode=st.sampled_from([PoolMode.MANAGE, PoolMode.MANAGE, PoolMode.OBSERVE]),
    erase_on_arrival=st.booleans(),
    trust_bmc_erase=st.booleans(),
    has_rescue_iso=st.booleans(),
    commission_erases=st.booleans(),
    release_erases=st.booleans(),
)
inputs = st.builds(
    Params,
    rebuild=st.booleans(),
    confirm_erase=st.sampled_from([None, "", SERIAL, f" {SERIAL.lower()} ", "nd_1", "SN-0815"]),
    erases=st.sampled_from(MIND_CHANGES),
    waiver=st.booleans(),
    waiver_machine=st.booleans(),
    abandon=st.sampled_from([None, "", "it burnt down"]),
    kind=st.sampled_from(["iso", "image"]),
    deep=st.booleans(),
    ssh_keys=st.booleans(),
    password_hash=st.booleans(),
    power=st.sampled_from([None, "on", "off"]),
)


def every_input(node: NodeFacts) -> Iterator[Params]:
    """All inputs that differ in what decides, and that an API caller can send."""
    for rebuild, confirm, erases, (waiver, machine), abandon in product(
        BOTH,
        (None, confirmation_of(node)),
        MIND_CHANGES,
        ((False, False), (True, False), (True, True)),
        (None, "it burnt down"),
    ):
        yield Params(rebuild, confirm, erases, waiver, machine, abandon)


def every_willing_input(node: NodeFacts) -> Iterator[Params]:
    """Those of a caller who confirms all that is asked: enough to see what can be reached at all."""
    for params in every_input(node):
        if params.rebuild and params.confirm_erase is not None and params.abandon is not None:
            yield params


def every_question() -> Iterator[tuple[NodeFacts, Verb | SideVerb, Params]]:
    """Each state with each kind of disks, asked for each verb by a caller who confirms all that is asked."""
    for state, disks in product(State, Disks):
        for failed_verb in failed_verbs(state):
            node = replace(a_node(state, disks), failed_verb=failed_verb)
            for verb, params in product(EVERY_VERB, every_willing_input(node)):
                yield node, verb, params


def carried_out(node: NodeFacts, verb: Verb | SideVerb) -> Verb | SideVerb | None:
    """What a verb does in truth: a retry does the failed one."""
    return node.failed_verb if verb is Verb.RETRY else verb


@dataclass(frozen=True, slots=True)
class Passage:
    """One verb that was accepted, and the node after its workflow."""

    verb: Verb
    params: Params
    before: NodeFacts
    after: NodeFacts


def passages(node: NodeFacts, inputs: Iterator[Params], pool: PoolPolicy, failures: bool = False) -> Iterator[Passage]:
    """Where each accepted verb leads by its success, and by a failure after the first effect if these are wanted too."""
    for params in inputs:
        for verb in Verb:
            move = decide(node, verb, params, pool, NOW)
            if not isinstance(move, Move) or move.success is None:
                continue
            done = carried_out(node, verb)
            assert isinstance(done, Verb)
            erased = done in (Verb.COMMISSION, Verb.RELEASE, Verb.RETIRE) and erases_disks(done, params, pool)
            disks = Disks.CLEAN if erased else Disks.TENANT if done is Verb.DEPLOY else node.disks
            passed_over = done in (Verb.COMMISSION, Verb.RELEASE, Verb.RETIRE) and not erased
            not_erased = not erased and (node.not_erased or passed_over)
            after = replace(node, state=move.success, disks=disks, not_erased=not_erased, failed_verb=None)
            yield Passage(done, params, node, after)
            if failures and move.failure is not None:
                began = erased or done is Verb.DEPLOY
                for half in {node.disks, Disks.HALF if began else node.disks}:
                    failed = replace(node, state=move.failure, disks=half, failed_verb=done)
                    yield Passage(done, params, node, failed)
