"""Who may join as what: rules that hold for any machine among any nodes, and each refusal and deferral by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random

import pytest

from bcmetal.join.claims import pin_matches
from bcmetal.join.judging import RUNNING_US, Admit, Case, Defer, Refuse, Trust, Verdict, judge, lower
from join.cases import (
    EKS,
    MACS,
    NONE,
    PLACEHOLDER,
    POOL,
    SERIALS,
    UUIDS,
    a_case,
    a_claim,
    a_member,
    a_node,
    a_token,
    any_case,
    earlier,
    known,
    node_of,
)

MANY = 4000
HERE = a_claim(UUIDS[0], SERIALS[0], MACS[0])
ITS = (UUIDS[0], SERIALS[0], MACS[0])


@cache
def everybody() -> tuple[Case, ...]:
    return tuple(any_case(Random(seed)) for seed in range(MANY))


def admitted(unasked: bool = False) -> Iterator[tuple[Case, Admit]]:
    """Whoever is let in of all of them. `unasked`: without a person."""
    number = 0
    for case in everybody():
        verdict = judge(case)
        if isinstance(verdict, Admit) and not (unasked and case.approved):
            number += 1
            yield case, verdict
    assert number > MANY / 20, "the cases are too much alike to show anything"


# ---------------------------------------------------------------- whatever comes


def test_a_foreign_holder_is_always_refused() -> None:
    """Unless it was evicted there, or only says of itself what a BMC of this pool reported."""
    number = 0
    for case in everybody():
        for (kind, _), found in case.holders.items():
            ours = kind != "ek" and any(one.metal and one.pool_id == case.pool.pool_id for one in found)
            others = [one for one in found if one.tenant_id != case.pool.tenant_id]
            held = any(one.metal or (one.member_state != "evicted" and not ours) for one in others)
            if kind in ("uuid", "mac", "ek") and held:
                number += 1
                assert judge(case) == Refuse("foreign-identity")
    assert number > MANY / 50


def test_an_approval_overrides_no_refusal_and_ends_the_waiting() -> None:
    seen = set()
    for case in everybody():
        before, after = judge(replace(case, approved=False)), judge(replace(case, approved=True))
        seen.add(type(before))
        assert not isinstance(after, Defer)
        if not isinstance(before, Defer):
            assert after == before
    assert seen == {Admit, Defer, Refuse}


def test_no_node_is_taken_that_is_locked_or_has_another_ek_or_stands_in_another_pool() -> None:
    for case, verdict in admitted():
        if verdict.node_id is not None:
            node = node_of(case, verdict.node_id)
            assert node.member_state != "locked"
            assert node.ek_sha256 in (None, case.ek)
            assert (node.tenant_id, node.pool_id) == (case.pool.tenant_id, case.pool.pool_id)
            assert verdict.metal == node.metal


def test_a_certified_node_is_taken_by_a_reclaim_that_was_allowed_alone() -> None:
    reclaimed = 0
    for case, verdict in admitted():
        node = node_of(case, verdict.node_id) if verdict.node_id is not None else None
        assert verdict.reclaim == (node is not None and node.certified)
        if verdict.reclaim:
            reclaimed += 1
            assert node is not None
            assert case.token is not None
            assert case.token.allow_reclaim
            same = {kind for kind, _ in case.claim.usable & node.known}
            assert same > {"uuid"} or (node.ek_sha256 is not None and node.ek_sha256 == case.ek)
            assert case.token.expect or case.now - (node.last_seen_at or 0) >= RUNNING_US
    assert reclaimed > 20


def test_a_machine_with_a_bmc_is_taken_only_while_it_is_one_to_join() -> None:
    for case, verdict in admitted():
        if verdict.metal and verdict.node_id is not None:
            node = node_of(case, verdict.node_id)
            assert node.awaits_join or node.state in ("deployed", "rescued")
            if case.token is None and case.attestor == "discovery":
                assert node.awaits_join


def test_an_evicted_node_comes_back_by_a_later_token_alone() -> None:
    back = 0
    for case, verdict in admitted():
        node = node_of(case, verdict.node_id) if verdict.node_id is not None else None
        if node is not None and node.member_state == "evicted":
            back += 1
            assert case.token is not None
            assert case.token.created_at > (node.ended_at or 0)
    assert back


def test_a_pin_and_a_minted_token_hold_whatever_a_person_approves() -> None:
    for case, verdict in admitted():
        if case.token is not None and case.token.expect is not None:
            assert pin_matches(case.token.expect, case.claim, NONE)
        if case.token is not None and case.token.node_id is not None:
            assert verdict.node_id == case.token.node_id or (verdict.node_id is None and case.approved)


def test_trust_is_never_more_than_the_pool_the_token_and_the_node_had() -> None:
    for case, verdict in admitted():
        most = case.pool.trust(case.token.hosted if case.token is not None else None)
        assert lower(verdict.trust, most) == verdict.trust
        if case.token is None and case.attestor == "discovery":
            assert verdict.trust is not Trust.PLATFORM
        node = node_of(case, verdict.node_id) if verdict.node_id is not None else None
        if node is not None and node.member_state == "live":
            assert lower(verdict.trust, Trust(node.trust or "")) == verdict.trust


def test_nobody_is_let_in_on_nothing() -> None:
    """Without a person: a usable UUID, a pin, the deploy's own token; a machine that a BMC reported; an EK that is allowed."""
    for case, verdict in admitted(unasked=True):
        if case.attestor == "tpm":
            assert case.ek in case.pool.ek_allow
        elif case.token is None or (case.attestor == "discovery" and case.token.node_id is None):
            assert verdict.metal
        elif case.attestor == "token":
            assert case.token.node_id or case.token.expect or case.claim.has_usable("uuid")


def test_lowering_is_an_order() -> None:
    for one, two, three in product(Trust, repeat=3):
        assert lower(one, two) == lower(two, one)
        assert lower(one, lower(two, three)) == lower(lower(one, two), three)
        assert lower(one, one) == one
        assert lower(Trust.TENANT_OWNED, one) == Trust.TENANT_OWNED


# ---------------------------------------------------------------- each by its name

ELSEWHERE = {"pool_id": "other"}
TWIN = {"node_id": "nd_2"}
MINTED = a_token(node_id="nd_1")
RECLAIM = a_token(allow_reclaim=True)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(a_case(HERE), Admit(None, False, False, Trust.PLATFORM), id="a machine that nobody knows"),
        pytest.param(a_case(HERE, [a_node(*ITS)]), Admit("nd_1", True, False, Trust.PLATFORM), id="an enrolled one"),
        pytest.param(
            a_case(a_claim(PLACEHOLDER, None, MACS[0]), [a_node(MACS[0])]),
            Defer("placeholder-identifiers", "nd_1"),
            id="a MAC alone waits for a person",
        ),
        pytest.param(
            a_case(a_claim(None, None, MACS[0]), [a_node(MACS[0])], token=a_token(expect={"mac": MACS[0]})),
            Admit("nd_1", True, False, Trust.PLATFORM),
            id="unless the token is pinned to it",
        ),
        pytest.param(
            a_case(HERE, token=a_token(expect={"serial": SERIALS[1]})), Refuse("pin-mismatch"), id="another serial"
        ),
        pytest.param(a_case(HERE, [a_node(*ITS, state="available")]), Refuse("state"), id="not deployed"),
        pytest.param(a_case(HERE, [a_member(*ITS, member_state="locked")]), Refuse("locked"), id="locked"),
        pytest.param(
            a_case(HERE, [a_member(*ITS, member_state="evicted", certified=False, ended_at=earlier(30))]),
            Refuse("evicted"),
            id="evicted after the token was minted",
        ),
        pytest.param(
            a_case(HERE, [a_member(*ITS, member_state="evicted", certified=False, ended_at=earlier(60))]),
            Refuse("evicted"),
            id="evicted in the very microsecond",
        ),
        pytest.param(a_case(HERE, [a_member(*ITS)]), Refuse("reclaim"), id="a running node without leave"),
        pytest.param(
            a_case(HERE, [a_member(*ITS)], token=RECLAIM),
            Admit("nd_1", True, True, Trust.PLATFORM),
            id="a node with leave",
        ),
        pytest.param(
            a_case(HERE, [a_member(*ITS, last_seen_at=earlier(599))], token=RECLAIM), Refuse("running"), id="running"
        ),
        pytest.param(
            a_case(HERE, [a_member(*ITS, last_seen_at=earlier(-3600))], token=RECLAIM),
            Refuse("running"),
            id="running by a clock that was ahead",
        ),
        pytest.param(
            a_case(a_claim(PLACEHOLDER, SERIALS[0], MACS[0]), [a_member(*ITS)], token=RECLAIM),
            Refuse("reclaim"),
            id="a reclaim without the UUID",
        ),
        pytest.param(
            a_case(a_claim(UUIDS[0], "OTHER7"), [a_member(*ITS)], token=RECLAIM),
            Defer("duplicate-uuid", "nd_1"),
            id="a reclaim with the UUID alone",
        ),
        pytest.param(
            a_case(a_claim(UUIDS[0], "OTHER7", MACS[1]), [a_node(*ITS)]),
            Defer("duplicate-uuid", "nd_1"),
            id="a first join with the UUID alone, all else differing",
        ),
        pytest.param(
            a_case(HERE, [a_member(*ITS, ek_sha256=EKS[0])], token=RECLAIM), Refuse("ek-not-proven"), id="no EK shown"
        ),
        pytest.param(
            a_case(HERE, [a_member(*ITS, ek_sha256=EKS[0])], attestor="tpm", ek=EKS[1], token=RECLAIM),
            Refuse("ek-changed"),
            id="another EK",
        ),
        pytest.param(
            a_case(HERE, [a_member(*ITS, ek_sha256=EKS[0])], attestor="tpm", ek=EKS[0], token=RECLAIM),
            Admit("nd_1", True, True, Trust.PLATFORM),
            id="the same EK",
        ),
        pytest.param(a_case(HERE, attestor="tpm", ek=EKS[1]), Defer("unknown-ek"), id="an EK on no list"),
        pytest.param(
            a_case(HERE, attestor="tpm", ek=EKS[0], token=None),
            Admit(None, False, False, Trust.PLATFORM),
            id="an EK on the list needs no token where the pool takes such joins",
        ),
        pytest.param(
            a_case(HERE, [a_node(*ITS), a_node(UUIDS[0], **TWIN)]), Defer("duplicate-uuid"), id="two nodes of one UUID"
        ),
        pytest.param(a_case(HERE, [a_node(UUIDS[0], **ELSEWHERE)]), Defer("duplicate-uuid"), id="in another pool"),
        pytest.param(
            a_case(HERE, [a_node(UUIDS[1], SERIALS[0])]),
            Admit(None, False, False, Trust.PLATFORM),
            id="a serial that moved makes no other machine of this one",
        ),
        pytest.param(a_case(HERE, attestor="discovery"), Defer("unknown-machine"), id="unknown to discovery"),
        pytest.param(
            a_case(HERE, [a_node(UUIDS[0]), a_node(MACS[0], **TWIN)], attestor="discovery"),
            Refuse("several-machines"),
            id="several to discovery",
        ),
        pytest.param(
            a_case(HERE, [a_node(UUIDS[1], MACS[0])], attestor="discovery"), Refuse("contradictory"), id="contradictory"
        ),
        pytest.param(a_case(HERE, [a_node(*ITS)], attestor="discovery", token=None), Refuse("state"), id="not awaited"),
        pytest.param(
            a_case(HERE, [a_node(*ITS, state="deploying", awaits_join=True)], attestor="discovery", token=None),
            Admit("nd_1", True, False, Trust.TENANT_CONTROLLED),
            id="awaited",
        ),
        pytest.param(
            a_case(a_claim(UUIDS[1], SERIALS[1]), [a_node(*ITS)], token=MINTED),
            Refuse("other-machine"),
            id="the deploy's token on another machine",
        ),
        pytest.param(
            a_case(
                a_claim(UUIDS[1], SERIALS[2]),
                [a_node(UUIDS[0], known=known(UUIDS[0]) | {("sku", SERIALS[2].casefold())})],
                token=MINTED,
            ),
            Admit("nd_1", True, False, Trust.PLATFORM),
            id="the deploy's token where the serial is the BMC's SKU",
        ),
        pytest.param(
            a_case(HERE, [a_node(*ITS, metal=False)], token=MINTED), Refuse("state"), id="its node was removed"
        ),
        pytest.param(a_case(HERE, [a_node(*ITS, **ELSEWHERE)], token=MINTED), Refuse("state"), id="or moved"),
        pytest.param(a_case(HERE, [a_member(*ITS)], token=MINTED), Refuse("reclaim"), id="or runs"),
    ],
)
def test_each_case_has_its_verdict(case: Case, expected: Verdict) -> None:
    assert judge(case) == expected


def test_a_machine_that_a_person_told_from_its_twin_gets_an_id_of_its_own() -> None:
    case = a_case(a_claim(UUIDS[0], "OTHER7"), [a_member(*ITS)], approved=True)
    assert judge(case) == Admit(None, False, False, Trust.PLATFORM)


def test_a_serial_is_nobodys_own() -> None:
    """Two makers may count alike, so that another tenant's machine with this serial keeps nobody out."""
    foreign = a_node(SERIALS[0], tenant_id="tenant-a", pool_id="tenants")
    assert judge(a_case(HERE, [foreign])) == Admit(None, False, False, Trust.PLATFORM)
    for value in (UUIDS[0], MACS[0]):
        held = a_node(value, tenant_id="tenant-a", pool_id="tenants")
        assert judge(a_case(HERE, [held], approved=True)) == Refuse("foreign-identity")


def test_a_members_trust_is_not_raised_when_its_certificates_ended_long_ago() -> None:
    low = a_member(*ITS, certified=False, trust=Trust.TENANT_CONTROLLED.value)
    assert judge(a_case(HERE, [low])) == Admit("nd_1", True, False, Trust.TENANT_CONTROLLED)


def test_what_only_another_pool_gives_is_not_given_here() -> None:
    pool = replace(POOL, ek_allow=frozenset())
    assert judge(a_case(HERE, attestor="tpm", ek=EKS[0], pool=pool)) == Defer("unknown-ek")
