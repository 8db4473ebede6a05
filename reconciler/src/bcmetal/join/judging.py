"""Whether a machine may join, and as which node. Pure: everything that is known comes in.

1. a foreign identity        another tenant's machine: refused, whatever else speaks for it
2. the pin                   every identifier that the token expects
3. which node                by the deploy that minted the token, by its TPM, its UUID, or what its BMC reported
4. that node                 takes joins now; its TPM is the same; a running one is reclaimed by leave only
5. the attestor              what is admitted at once, and what a person has to decide

A refusal's `reason` goes to the event alone: the caller is told nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bcmetal.decisions import SECOND, Micros
from bcmetal.join.claims import Claim, pin_matches
from bcmetal.settings import Placeholders
from bcmetal.store.join_tokens import TokenRow
from bcmetal.store.members import Holder

RUNNING_US: Final = 600 * SECOND  # a node that was heard from since then is running
EXCLUSIVE: Final = ("uuid", "mac", "ek")
TAKING: Final = frozenset({"deployed", "rescued"})
TELLING: Final = frozenset({"uuid", "mac", "serial"})  # of a machine; a GPU is moved, and each pod on it sees its UUID


class Trust(StrEnum):
    """From the most to the least."""

    PLATFORM = "platform"
    TENANT_CONTROLLED = "tenant-controlled"
    TENANT_OWNED = "tenant-owned"


_RANK: Final = {trust: rank for rank, trust in enumerate(Trust)}


def lower(one: Trust, other: Trust) -> Trust:
    return max(one, other, key=_RANK.__getitem__)


@dataclass(frozen=True, slots=True)
class PoolRules:
    """What joining needs to know of a pool. `platform_owned`: not on a custom site, and owned by the site's owner."""

    pool_id: str
    tenant_id: str
    site_id: str
    attestors: frozenset[str]
    tokenless: frozenset[str]
    ek_allow: frozenset[str]
    custom: bool
    platform_owned: bool
    platform_operated: bool

    def trust(self, hosted: str | None) -> Trust:
        """Decided from the token and the pool alone; nothing that the machine says counts."""
        if self.custom:
            return Trust.TENANT_OWNED
        if not self.platform_owned or (hosted == "kubernetes" and not self.platform_operated):
            return Trust.TENANT_CONTROLLED
        return Trust.PLATFORM


@dataclass(frozen=True, slots=True)
class Case:
    """One join. `holders`: who has each usable identifier of the claim; `ek`: SHA-256 of an EK that was proven. `approved`: a person did."""

    pool: PoolRules
    token: TokenRow | None
    attestor: str
    claim: Claim
    ek: str | None
    holders: Mapping[tuple[str, str], list[Holder]]
    minted_for: Holder | None  # the node of a deploy's token
    approved: bool
    placeholders: Placeholders
    now: Micros


@dataclass(frozen=True, slots=True)
class Admit:
    """`node_id` None: a new node without a BMC."""

    node_id: str | None
    metal: bool
    reclaim: bool
    trust: Trust


@dataclass(frozen=True, slots=True)
class Defer:
    reason: str
    node_id: str | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: str


Verdict = Admit | Defer | Refuse


def judge(case: Case) -> Verdict:
    """Admit, defer or refuse."""
    token = case.token
    if any(kind in EXCLUSIVE and _foreign(case, kind, found) for (kind, _), found in case.holders.items()):
        return Refuse("foreign-identity")
    pinned = token is not None and token.expect is not None
    if pinned and not pin_matches(token.expect or {}, case.claim, case.placeholders):  # type: ignore[union-attr]  # pinned says so
        return Refuse("pin-mismatch")
    target = _which(case)
    if isinstance(target, Refuse):
        return target
    if isinstance(target, Defer):
        if not case.approved or target.reason != "duplicate-uuid":
            return target
        target = None  # a person looked at the conflict: it is another machine, and gets an id of its own
    verdict = _new(case) if target is None else _known(case, target, pinned)
    if not isinstance(verdict, Admit) or case.approved:
        return verdict
    return _attested(case, verdict, pinned)


def _which(case: Case) -> Holder | Defer | Refuse | None:
    """The node that the machine is; None: none that is known here."""
    if case.token is not None and case.token.node_id is not None:
        node = case.minted_for
        if node is None or not node.metal or node.pool_id != case.pool.pool_id:
            return Refuse("state")
        return node if _agrees(case.claim, node) else Refuse("other-machine")
    if case.attestor == "discovery":
        return _discovered(case)
    by_ek, by_uuid = _ids(case, "ek"), _ids(case, "uuid")
    if by_ek:
        if len(by_ek) > 1 or (by_uuid and not by_uuid.keys() & by_ek.keys()):
            return Defer("duplicate-uuid")
        return _one(by_ek)
    if _elsewhere(case, "ek"):
        return Defer("duplicate-uuid")
    if by_uuid:
        return _one(by_uuid) if len(by_uuid) == 1 else Defer("duplicate-uuid")
    if _elsewhere(case, "uuid"):
        return Defer("duplicate-uuid")
    enrolled = {node_id: one for node_id, one in (_ids(case, "mac") or _ids(case, "serial")).items() if one.metal}
    if not enrolled:
        return None
    if len(enrolled) > 1:
        return Defer("duplicate-uuid")
    node = _one(enrolled)
    # A serial or a NIC that moved makes no other machine of this one: its own UUID says who it is.
    return None if _contradicts(case.claim, node, "uuid") and not _ids(case, "mac") else node


def _discovered(case: Case) -> Holder | Defer | Refuse | None:
    enrolled = {
        node_id: one
        for kind in ("uuid", "mac", "serial")
        for node_id, one in _ids(case, kind).items()
        if one.metal and (kind != "serial" or (not _ids(case, "uuid") and not _ids(case, "mac")))
    }
    if not enrolled:
        return None if case.approved else Defer("unknown-machine")
    if len(enrolled) > 1:
        return Refuse("several-machines")
    node = _one(enrolled)
    if _contradicts(case.claim, node, "uuid"):
        return Refuse("contradictory")
    if case.token is None and not node.awaits_join:
        return Refuse("state")  # its identifiers are public facts: alone they count while it is awaited
    return node


def _known(case: Case, node: Holder, pinned: bool) -> Verdict:
    """Whether a machine may take, or take again, the id of a node that is known."""
    if node.member_state == "locked":
        return Refuse("locked")
    if node.ek_sha256 is not None and node.ek_sha256 != case.ek:
        return Refuse("ek-changed" if case.ek is not None else "ek-not-proven")
    if node.metal and node.state not in TAKING and not node.awaits_join:
        return Refuse("state")
    if node.awaits_join and node.minted and (case.token is None or case.token.node_id != node.node_id):
        return Refuse("awaits-its-own-token")  # what it says of itself can be read off its label; its token cannot
    if node.member_state == "evicted" and not _minted_after(case, node.ended_at):
        return Refuse("evicted")
    trust = _trust(case)
    if node.member_state == "live" and node.trust:
        trust = lower(trust, Trust(node.trust))  # also when its certificates ended long ago
    if not node.certified:
        if _only_the_uuid(case.claim, node):
            return _duplicate(case, node)
        return Admit(node.node_id, node.metal, False, trust)
    same_ek = node.ek_sha256 is not None and node.ek_sha256 == case.ek
    if not same_ek and not _agrees(case.claim, node, but="uuid"):
        return _duplicate(case, node)
    if case.token is None or not case.token.allow_reclaim:
        return Refuse("reclaim")
    if not same_ek and not _same_uuid(case.claim, node):
        # A MAC or a serial alone, which anybody can read off a label, takes no running node's place.
        return Refuse("reclaim")
    if not pinned and node.last_seen_at is not None and case.now - node.last_seen_at < RUNNING_US:
        return Refuse("running")
    return Admit(node.node_id, node.metal, True, trust)


def _duplicate(case: Case, node: Holder) -> Verdict:
    return _new(case) if case.approved else Defer("duplicate-uuid", node.node_id)


def _new(case: Case) -> Admit:
    return Admit(None, False, False, _trust(case))


def _attested(case: Case, verdict: Admit, pinned: bool) -> Verdict:
    """What the attestor admits without a person."""
    if case.attestor == "tpm":
        return verdict if case.ek in case.pool.ek_allow else Defer("unknown-ek", verdict.node_id)
    minted = case.token is not None and case.token.node_id is not None
    if case.attestor == "token" and not (minted or pinned or case.claim.has_usable("uuid")):
        return Defer("placeholder-identifiers", verdict.node_id)
    return verdict


def _trust(case: Case) -> Trust:
    trust = case.pool.trust(case.token.hosted if case.token is not None else None)
    if case.token is None and case.attestor == "discovery":
        trust = lower(trust, Trust.TENANT_CONTROLLED)  # public facts alone never earn more
    return trust


def _minted_after(case: Case, at: Micros | None) -> bool:
    return case.token is not None and at is not None and case.token.created_at > at


def _foreign(case: Case, kind: str, found: list[Holder]) -> bool:
    """Another tenant's machine has this. One that was evicted there has nothing any more; and what a BMC of ours reported is ours,
    whoever says the same of himself: else naming a machine's MAC first would keep it out for ever.
    """
    ours = kind != "ek" and any(one.metal and one.pool_id == case.pool.pool_id for one in found)
    others = [one for one in found if one.tenant_id != case.pool.tenant_id]
    return any(one.metal or (one.member_state != "evicted" and not ours) for one in others)


def _ids(case: Case, kind: str) -> dict[str, Holder]:
    """Nodes of the pool that have one of the claim's identifiers of this kind."""
    return {
        one.node_id: one
        for (held, _), found in case.holders.items()
        if held == kind
        for one in found
        if one.pool_id == case.pool.pool_id
    }


def _elsewhere(case: Case, kind: str) -> bool:
    return any(
        one.pool_id != case.pool.pool_id for (held, _), found in case.holders.items() if held == kind for one in found
    )


def _one(found: Mapping[str, Holder]) -> Holder:
    return next(iter(found.values()))


def _agrees(claim: Claim, node: Holder, but: str | None = None) -> bool:
    """One usable identifier is the same. A serial may be what the BMC calls the SKU: it often reports the board's as the serial."""
    known = node.known | {("serial", value) for kind, value in node.known if kind == "sku"}
    return any(pair in known for pair in claim.usable if pair[0] in TELLING and pair[0] != but)


def _same_uuid(claim: Claim, node: Holder) -> bool:
    return any(kind == "uuid" and (kind, value) in node.known for kind, value in claim.usable)


def _contradicts(claim: Claim, node: Holder, kind: str) -> bool:
    said = {value for one, value in claim.usable if one == kind}
    known = {value for one, value in node.known if one == kind}
    return bool(said and known and not said & known)


def _only_the_uuid(claim: Claim, node: Holder) -> bool:
    """The UUID is the same, and everything else that both tell is not."""
    if _agrees(claim, node, but="uuid"):
        return False
    return any(_contradicts(claim, node, kind) for kind in ("serial", "mac"))
