"""Joins as pure cases: a small world of nodes and identifiers, and a machine's claim upon it, told or thrown by a die."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from bcmetal.decisions import SECOND, Micros
from bcmetal.join.claims import Claim, claim_of
from bcmetal.join.judging import Case, PoolRules, Trust
from bcmetal.placeholders import normal_uuid
from bcmetal.settings import Placeholders
from bcmetal.store.join_tokens import TokenRow
from bcmetal.store.members import Holder
from bcmetal_agent.wire import Identifiers

NOW: Final = Micros(1_900_000_000 * SECOND)
NONE: Final = Placeholders()
PLACEHOLDER: Final = "03000200-0400-0500-0006-000700080009"
UUIDS: Final = tuple(f"8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b00{n:02x}" for n in range(3))
SERIALS: Final = tuple(f"SN{n}7X" for n in range(3))
MACS: Final = tuple(f"3c:ec:ef:10:00:0{n}" for n in range(3))
EKS: Final = ("a" * 64, "b" * 64)
POOL: Final = PoolRules(
    pool_id="metal",
    tenant_id="platform",
    site_id="fra1",
    attestors=frozenset({"token", "discovery", "tpm"}),
    tokenless=frozenset({"discovery", "tpm"}),
    ek_allow=frozenset({EKS[0]}),
    custom=False,
    platform_owned=True,
    platform_operated=False,
)


def earlier(seconds: float) -> Micros:
    return Micros(NOW - int(seconds * SECOND))


def known(*values: str) -> frozenset[tuple[str, str]]:
    """Identifiers as the store has them, told apart by their look."""
    found = set()
    for value in values:
        if value.count(":") == 5:
            found.add(("mac", value))
        elif normal_uuid(value) is not None:
            found.add(("uuid", normal_uuid(value) or ""))
        else:
            found.add(("serial", value.casefold()))
    return frozenset(found)


def a_node(*values: str, **over: Any) -> Holder:
    """An enrolled node, deployed, that never joined."""
    node = Holder(
        node_id="nd_1",
        tenant_id=POOL.tenant_id,
        pool_id=POOL.pool_id,
        metal=True,
        state="deployed",
        member_state=None,
        trust=None,
        ek_sha256=None,
        certified=False,
        last_seen_at=None,
        ended_at=None,
        awaits_join=False,
        known=known(*values),
    )
    return replace(node, **over)


def a_member(*values: str, **over: Any) -> Holder:
    """As `a_node`, joined, and last heard from an hour ago."""
    joined = {"member_state": "live", "trust": Trust.PLATFORM.value, "certified": True, "last_seen_at": earlier(3600)}
    return a_node(*values, **(joined | over))


def a_token(**over: Any) -> TokenRow:
    token = TokenRow(
        token_id="jt_" + "0" * 52,
        tenant_id=POOL.tenant_id,
        pool_id=POOL.pool_id,
        secret_sha256=b"",
        max_uses=1,
        uses=0,
        reserved=0,
        expires_at=Micros(NOW + 3600 * SECOND),
        expect=None,
        allow_reclaim=False,
        hosted=None,
        node_id=None,
        created_by="key:owner",
        created_at=earlier(60),
        revoked_at=None,
    )
    return replace(token, **over)


def a_claim(uuid: str | None = None, serial: str | None = None, *macs: str, ek: str | None = None) -> Claim:
    return claim_of(Identifiers(product_uuid=uuid, serial=serial, macs=macs), ek, NONE)


def a_case(claim: Claim, nodes: Sequence[Holder] = (), **over: Any) -> Case:
    """As admission makes it: who has what of the claim, among these nodes."""
    ek = over.get("ek")
    holders: dict[tuple[str, str], list[Holder]] = {}
    for node in nodes:
        for pair in claim.usable & node.known:
            holders.setdefault(pair, []).append(node)
        if ek is not None and node.ek_sha256 == ek and node.member_state in ("live", "locked", "evicted"):
            holders.setdefault(("ek", ek), []).append(node)
    token = over.get("token", a_token())
    minted_for = None
    if token is not None and token.node_id is not None:
        minted_for = next((node for node in nodes if node.node_id == token.node_id), None)
    case = Case(
        pool=POOL,
        token=token,
        attestor="token",
        claim=claim,
        ek=None,
        holders=holders,
        minted_for=minted_for,
        approved=False,
        placeholders=NONE,
        now=NOW,
    )
    return replace(case, **over)


# ---------------------------------------------------------------- any of them


def _mostly(dice: Random, values: Sequence[str], number: int) -> str | None:
    return dice.choice([*(values[number] for _ in range(6)), None, *values])


def _any_node(dice: Random, number: int) -> Holder:
    values = [value for kind in (UUIDS, SERIALS, MACS) if (value := _mostly(dice, kind, number)) is not None]
    metal, joined = dice.choice([(True, True), (True, False), (False, True)])
    home = dice.choice([("platform", "metal")] * 8 + [("platform", "other"), ("tenant-a", "tenants")])
    member_state = dice.choice(["live", "live", "live", "locked", "evicted"]) if joined else None
    return Holder(
        node_id=f"nd_{number}",
        tenant_id=home[0],
        pool_id=home[1],
        metal=metal,
        state=dice.choice(["deployed", "deployed", "rescued", "deploying", "available"]) if metal else None,
        member_state=member_state,
        trust=dice.choice([*Trust]).value if joined else None,
        ek_sha256=dice.choice([None, None, *EKS]) if joined else None,
        certified=member_state == "live" and dice.random() < 0.6,
        last_seen_at=earlier(dice.choice([-60, 0, 599, 600, 9000])) if joined else None,
        ended_at=earlier(dice.choice([30, 60, 90])) if member_state == "evicted" else None,
        awaits_join=metal and dice.random() < 0.4,
        known=known(*values),
    )


def any_case(dice: Random) -> Case:
    """By a die, which makes thousands of them in a second; the same seed makes the same one."""
    there = [_any_node(dice, n) for n in range(dice.choice((0, 1, 1, 2, 3)))]
    attestor = dice.choice(["token", "token", "discovery", "tpm"])
    ek = dice.choice(EKS) if attestor == "tpm" else None
    uuid, serial, mac = (_mostly(dice, kind, 0) for kind in (UUIDS, SERIALS, MACS))
    claim = a_claim(uuid or PLACEHOLDER, serial or "Default string", *([mac] if mac else []), ek=ek)
    pins: list[dict[str, str] | None] = [{"productUuid": UUIDS[0]}, {"serial": SERIALS[0]}, {"mac": MACS[0]}]
    token = a_token(
        expect=dice.choice([None, None, None, *pins]),
        allow_reclaim=dice.random() < 0.6,
        hosted=dice.choice([None, "kubernetes"]),
        node_id=dice.choice([None, None, None, "nd_0", "nd_9"]),
    )
    custom, owned = dice.choice([(False, True), (False, True), (False, False), (True, False)])
    return a_case(
        claim,
        there,
        token=token if attestor == "token" or dice.random() < 0.6 else None,
        attestor=attestor,
        ek=ek,
        approved=dice.random() < 0.4,
        pool=replace(POOL, custom=custom, platform_owned=owned, platform_operated=dice.random() < 0.5),
    )


def node_of(case: Case, node_id: str) -> Holder:
    there = {one.node_id: one for found in case.holders.values() for one in found}
    if case.minted_for is not None:
        there[case.minted_for.node_id] = case.minted_for
    return there[node_id]
