"""One join, as one transaction: judged, and answered with a certificate, a request for a person, or a challenge for its TPM.

The token's use is consumed last, by a conditional update, so that nothing that fails costs one and no more are admitted than it allows.
A transaction that refuses writes nothing; whoever called it publishes the refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection

from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import PermissionDenied, RateLimited, Unauthenticated
from bcmetal.join.authority import Authority
from bcmetal.join.challenging import About, Challenged, ChallengeRefused, TpmCase, check_proof, make_challenge
from bcmetal.join.claims import Claim
from bcmetal.join.csr import Csr
from bcmetal.join.issuing import issue
from bcmetal.join.judging import Admit, Case, Defer, PoolRules, Refuse, judge
from bcmetal.join.leaving import expire, expire_of_token
from bcmetal.settings import Joining
from bcmetal.store import certificates, join_requests, join_tokens, members, nodes, outbox
from bcmetal.store.certificates import CertificateRow
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.join_requests import NewRequest, RequestRow
from bcmetal.store.join_tokens import TokenRow
from bcmetal.store.members import Holder, MemberRow
from bcmetal.store.values import NewEvent

ANSWER_KEPT_US: Final = 900 * SECOND
LIVE_OF_TOKEN: Final = 20
LIVE_OF_POOL: Final = 1000
LIVE_OF_NOBODY: Final = 500  # of a pool, without a token: anybody on the wire must leave room for those with one
REPORTED: Final = 8  # nodes beside which a person sees what the machine says
DAY_US: Final = 86_400 * SECOND


class JoinRefused(PermissionDenied):
    """The join is refused."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason  # for the event, never for the caller


class TokenRefused(Unauthenticated):
    """The join token is not valid."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Ask:
    """A join whose bearer was proven and whose CSR was checked. `token_id` None: a pool that takes joins without one."""

    pool: PoolRules
    token_id: str | None
    attestor: str
    csr: Csr = field(repr=False)
    claim: Claim
    tpm: TpmCase | None
    address: str
    settings: Joining


@dataclass(frozen=True, slots=True)
class Admitted:
    node_id: str
    chain: str = field(repr=False)
    renew_after_at: Micros


@dataclass(frozen=True, slots=True)
class Deferred:
    request_id: str


Answer = Admitted | Deferred | Challenged


def first_look(
    c: Connection, pool_id: str, token: TokenRow | None, csr_sha256: str | None, claim_sha256: str, now: Micros
) -> Admitted | None:
    """What was answered to this CSR before and may have been lost; then whether the token has anything left. Raises JoinRefused, TokenRefused.

    None: go on. So does a CSR whose request is approved, though the token may be used up or expired by then, or waits: a machine that is
    told 401 meanwhile gives up, and would not be there for its approval. And a token whose last use is set apart: for an approval that is
    over, it is free again.
    """
    token_id = None if token is None else token.token_id
    if csr_sha256 is not None:
        known = certificates.answered(c, pool_id, csr_sha256, Micros(now - ANSWER_KEPT_US))
        if known is not None:
            return _again(c, known, token_id, claim_sha256)
        request = join_requests.of_csr(c, pool_id, csr_sha256)
        if request is not None and request.token_id == token_id and request.state(now) in join_requests.LIVE:
            return None
    _check_uses(token, now, apart=False)
    return None


def admit(c: Connection, ask: Ask, authority: Authority, entropy: Callable[[int], bytes], now: Micros) -> Answer:
    """The transaction. Raises JoinRefused, TokenRefused, RateLimited, Unavailable."""
    members.lock_pool(c, ask.pool.pool_id)
    if ask.token_id is not None:
        expire_of_token(c, ask.token_id, ask.pool.site_id, now)
    token = join_tokens.lock(c, ask.token_id) if ask.token_id is not None else None
    if ask.token_id is not None and (token is None or token.revoked_at is not None):
        raise TokenRefused("revoked")
    known = certificates.answered(c, ask.pool.pool_id, ask.csr.sha256, Micros(now - ANSWER_KEPT_US))
    if known is not None:  # two of the same came at once
        return _again(c, known, ask.token_id, ask.claim.sha256)
    make = _Maker(c, ask, entropy, now)
    request = _request_of(make)
    approved = request is not None and request.state(now) == "approved"
    if request is None:
        _check_uses(token, now)
    elif not approved:
        join_requests.seen(c, request.request_id, ask.address, now)
        return Deferred(request.request_id)
    if ask.tpm is not None and not approved:
        challenged = _challenge(make, ask.tpm)
        if challenged is not None:
            return challenged
    case = _case(make, token, approved)
    verdict = judge(case)
    if isinstance(verdict, Refuse):
        raise JoinRefused(verdict.reason)
    if isinstance(verdict, Defer):
        return _defer(make, verdict, case)
    return _admit(make, verdict, token, request, authority, case)


@dataclass(frozen=True, slots=True)
class _Maker:
    c: Connection
    ask: Ask
    entropy: Callable[[int], bytes]
    now: Micros

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self.now, self.entropy(ENTROPY_BYTES))

    def tell(self, type_: str, node_id: str | None, data: Mapping[str, Any]) -> None:
        pool = self.ask.pool
        event = NewEvent(self.new_id("ev"), node_id, pool.tenant_id, pool.pool_id, pool.site_id, type_, data)
        outbox.add(self.c, [event], self.now)


def _check_uses(token: TokenRow | None, now: Micros, apart: bool = True) -> None:
    """`apart`: uses that are set apart count too."""
    if token is not None and now >= token.expires_at:
        raise TokenRefused("expired")
    if token is not None and (token.used_up if apart else token.uses >= token.max_uses):
        raise TokenRefused("used-up")


def _again(c: Connection, known: CertificateRow, token_id: str | None, claim_sha256: str) -> Admitted:
    """The stored answer, for the very same question."""
    if known.claim_sha256 != claim_sha256 or known.token_id != token_id:
        raise JoinRefused("claim-changed")
    member = members.get(c, known.node_id)
    if known.revoked_at is not None or member is None or member.state != members.LIVE:
        raise JoinRefused("certificate-revoked")
    return Admitted(known.node_id, known.chain, known.renew_after_at)


def _request_of(make: _Maker) -> RequestRow | None:
    """The live request of this CSR, if there is one. One whose time is over is ended here."""
    request = join_requests.of_csr(make.c, make.ask.pool.pool_id, make.ask.csr.sha256)
    if request is None:
        return None
    state = request.state(make.now)
    if state == "expired" and request.ended_at is None:
        expire(make.c, request, make.ask.pool.site_id, make.now)
    if state == "denied":
        raise JoinRefused("denied")
    if state not in join_requests.LIVE:
        return None
    ask = make.ask
    if (request.claim_sha256, request.token_id, request.attestor) != (ask.claim.sha256, ask.token_id, ask.attestor):
        raise JoinRefused("claim-changed")
    return request


def _challenge(make: _Maker, asked: TpmCase) -> Challenged | None:
    """A challenge to answer; None: it was answered rightly. Raises JoinRefused."""
    ask = make.ask
    about = About(ask.pool.pool_id, ask.token_id, ask.csr.der, ask.csr.sha256, ask.claim.sha256)
    if asked.challenge_id is None or asked.proof is None:
        return make_challenge(make.c, about, asked, make.new_id("jc"), make.entropy, make.now)
    try:
        check_proof(make.c, about, asked, asked.challenge_id, asked.proof, make.now)
    except ChallengeRefused as refused:
        raise JoinRefused(refused.reason) from None
    return None


def _case(make: _Maker, token: TokenRow | None, approved: bool) -> Case:
    ask = make.ask
    ek = ask.tpm.ek_sha256 if ask.tpm is not None else None
    past = Micros(make.now - ask.settings.expired_grace_days * DAY_US)
    minted_for: Holder | None = None
    if token is not None and token.node_id is not None:
        minted_for = members.by_ids(make.c, [token.node_id], past, make.now).get(token.node_id)
    return Case(
        pool=ask.pool,
        token=token,
        attestor=ask.attestor,
        claim=ask.claim,
        ek=ek,
        holders=members.holders(make.c, ask.claim.usable, ek, past, make.now),
        minted_for=minted_for,
        approved=approved,
        placeholders=ask.settings.placeholders,
        now=make.now,
    )


def _defer(make: _Maker, verdict: Defer, case: Case) -> Deferred:
    c, ask, now = make.c, make.ask, make.now
    of_pool, of_token = join_requests.count_live(c, ask.pool.pool_id, ask.token_id, now)
    if of_pool >= LIVE_OF_POOL or of_token >= (LIVE_OF_NOBODY if ask.token_id is None else LIVE_OF_TOKEN):
        raise RateLimited("too many join requests wait for a decision", retryAfterS=300)
    request_id = make.new_id("jr")
    new = NewRequest(
        request_id=request_id,
        tenant_id=ask.pool.tenant_id,
        pool_id=ask.pool.pool_id,
        token_id=ask.token_id,
        attestor=ask.attestor,
        reason=verdict.reason,
        csr_sha256=ask.csr.sha256,
        key_sha256=ask.csr.key_sha256,
        claim_sha256=ask.claim.sha256,
        claim=ask.claim.doc,
        evidence=_evidence(make, case),
        node_id=verdict.node_id,
        ek_sha256=case.ek,
        address=ask.address,
        expires_at=Micros(now + ask.settings.pending_s * SECOND),
    )
    join_requests.add(c, new, now)
    data = {"requestId": request_id, "reason": verdict.reason, "attestor": ask.attestor, "tokenId": ask.token_id}
    make.tell("security.join-request.created", verdict.node_id, data)
    return Deferred(request_id)


def _evidence(make: _Maker, case: Case) -> dict[str, Any]:
    """What a person decides by: each identifier with who else has it, what the BMCs of those reported, what the TPM proved."""
    ask = make.ask
    # A serial may be another tenant's too, who is told of to nobody; what a BMC reported is for those who may read its pool.
    holding = {
        pair: [one for one in found if one.tenant_id == ask.pool.tenant_id] for pair, found in case.holders.items()
    }
    identifiers = [
        {
            "kind": one.kind,
            "value": one.raw,
            "usable": one.usable,
            "conflicts": [holder.node_id for holder in holding.get((one.kind, one.value_norm), [])[:REPORTED]],
        }
        for one in ask.claim.said
    ]
    here = {one.node_id: one for found in holding.values() for one in found if one.pool_id == ask.pool.pool_id}
    reported = []
    for node_id in sorted(here)[:REPORTED]:
        row = nodes.get(make.c, node_id) if here[node_id].metal else None
        if row is not None:
            found = [
                {"kind": known.kind, "value": known.raw, "usable": known.usable, "source": known.source}
                for known in row.identifiers
            ]
            reported.append({"nodeId": node_id, "name": row.name, "state": row.facts.state, "identifiers": found})
    proven = None
    if ask.tpm is not None:
        allowed = ask.tpm.ek_sha256 in ask.pool.ek_allow
        proven = {"ekSha256": ask.tpm.ek_sha256, "vendor": ask.tpm.vendor, "allowed": allowed}
    return {"identifiers": identifiers, "reported": reported, "tpm": proven}


def _admit(
    make: _Maker,
    verdict: Admit,
    token: TokenRow | None,
    request: RequestRow | None,
    authority: Authority,
    case: Case,
) -> Admitted:
    c, ask, now = make.c, make.ask, make.now
    node_id = verdict.node_id or make.new_id("nd")
    if verdict.reclaim:
        certificates.revoke_all(c, node_id, "reclaimed", now)
        make.tell("security.node.reclaimed", node_id, {"tokenId": ask.token_id})
    member = _member(make, verdict, token, request, case, node_id)
    members.join(c, member, ask.claim.said, now)
    row = issue(
        c,
        authority,
        verdict.trust,
        ask.csr,
        node_id,
        ask.pool.pool_id,
        now,
        claim_sha256=ask.claim.sha256,
        token_id=ask.token_id,
    )
    data = {
        "tokenId": ask.token_id,
        "requestId": member.request_id,
        "attestor": ask.attestor,
        "trust": verdict.trust.value,
        "serial": row.serial,
        "hosted": member.hosted,
        "metal": verdict.metal,
    }
    make.tell("security.join.admitted", node_id, {name: value for name, value in data.items() if value is not None})
    _consume(make, token, request, node_id)
    return Admitted(node_id, row.chain, row.renew_after_at)


def _member(
    make: _Maker, verdict: Admit, token: TokenRow | None, request: RequestRow | None, case: Case, node_id: str
) -> MemberRow:
    ask, now = make.ask, make.now
    before = members.get(make.c, node_id)
    by = request.decided_by if request is not None else token.created_by if token is not None else ask.attestor
    return MemberRow(
        node_id=node_id,
        tenant_id=ask.pool.tenant_id,
        pool_id=ask.pool.pool_id,
        site_id=ask.pool.site_id,
        state=members.LIVE,
        trust=verdict.trust,
        hosted=token.hosted if token is not None else None,
        token_id=ask.token_id,
        request_id=request.request_id if request is not None else None,
        attestor=ask.attestor,
        admitted_by=by or "",
        ek_sha256=case.ek or (before.ek_sha256 if before is not None else None),
        tpm_proven=case.ek is not None,
        metal_node_id=node_id if verdict.metal else None,
        address=ask.address,
        joined_at=now,
        last_join_at=now,
        last_seen_at=now,
        ended_at=None,
        end_reason=None,
    )


def _consume(make: _Maker, token: TokenRow | None, request: RequestRow | None, node_id: str) -> None:
    """Last of all: whoever is too late takes nothing with him."""
    c, now = make.c, make.now
    if request is not None:
        if not join_requests.end(c, request.request_id, "approved", "consumed", now, node_id=node_id):
            raise JoinRefused("denied")
        data = {"requestId": request.request_id, "tokenId": request.token_id}
        make.tell("security.join-request.consumed", node_id, data)
        if token is not None and not join_tokens.use_reserved(c, token.token_id):
            raise TokenRefused("revoked")
    elif token is not None and not join_tokens.use(c, token.token_id, now):
        raise TokenRefused("used-up")
