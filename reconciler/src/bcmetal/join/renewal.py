"""A node's certificate: shown, and renewed, also after its end.

1. known        the serial is one of ours, not revoked, and its node is live
2. first seen   the certificate that it renewed dies
3. renewed      from half of its life, with a new key; the same question gets the same answer
4. cloned       another key renewing from a serial that was renewed already: two machines have one key, and the node is locked
5. after its end, within the grace, the old key's signature stands for the connection; later a person decides
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding
from sqlalchemy import Connection

from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import RateLimited, Unauthenticated
from bcmetal.join.admission import (
    DAY_US,
    LIVE_OF_POOL,
    Admitted,
    Deferred,
    JoinRefused,
)
from bcmetal.join.authority import Authority
from bcmetal.join.csr import Csr
from bcmetal.join.issuing import issue
from bcmetal.join.leaving import expire, lock
from bcmetal.join.peers import PeerIdentity, PeerRefused, certificate_from_pem, identity_of, issuer_of
from bcmetal.join.public_keys import AllowedKey, is_allowed
from bcmetal.settings import Joining
from bcmetal.store import certificates, join_requests, members, outbox
from bcmetal.store.certificates import CertificateRow
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.join_requests import NewRequest
from bcmetal.store.members import MemberRow
from bcmetal.store.values import NewEvent
from bcmetal_agent.wire import Expired, renewal_statement

RENEWED: Final = "renewed"
EXPIRED: Final = "expired-certificate"


class NodeRefused(Unauthenticated):
    """The node's certificate is not valid here."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason  # for the log and the event, never for the caller


@dataclass(frozen=True, slots=True)
class Peer:
    """A node that proved itself: by its connection, or by its old key."""

    member: MemberRow
    certificate: CertificateRow


def authenticate(c: Connection, identity: PeerIdentity) -> Peer:
    """The node behind a certificate whose chain and time were checked already. Raises NodeRefused."""
    row = certificates.get(c, identity.serial)
    if row is None or (row.node_id, row.key_sha256, row.kind) != (
        identity.node_id,
        identity.key_sha256,
        identity.kind,
    ):
        raise NodeRefused("unknown-serial")
    if row.revoked_at is not None:
        raise NodeRefused(f"revoked: {row.revoke_reason}")
    member = members.get(c, row.node_id)
    if member is None or member.state != members.LIVE:
        raise NodeRefused("no-live-node")
    return Peer(member, row)


def still_good(c: Connection, serials: frozenset[str]) -> frozenset[str]:
    """Which of these serials may go on: neither revoked nor of a node that is no member any more."""
    good = set()
    for serial in serials:
        row = certificates.get(c, serial)
        if row is None or row.revoked_at is not None:
            continue
        member = members.get(c, row.node_id)
        if member is not None and member.state == members.LIVE:
            good.add(serial)
    return frozenset(good)


def shown(c: Connection, identity: PeerIdentity, address: str, now: Micros) -> Peer:
    """As `authenticate`, and note that the node was heard from. Raises NodeRefused."""
    peer = authenticate(c, identity)
    first = certificates.seen(c, peer.certificate.serial, now)
    if first and peer.certificate.renewed_from is not None:
        certificates.revoke(c, peer.certificate.renewed_from, RENEWED, now)
    members.seen(c, peer.member.node_id, address, now)
    return peer


def renew(
    c: Connection,
    identity: PeerIdentity,
    csr: Csr,
    authority: Authority,
    address: str,
    now: Micros,
) -> Admitted | None:
    """A new certificate for a new key. None: the node is locked, because its key was copied. Raises NodeRefused, Unavailable.

    The lock must be kept, so that this is an answer and no exception, which would undo it.
    """
    held = certificates.get(c, identity.serial)
    if held is None or (held.node_id, held.key_sha256) != (identity.node_id, identity.key_sha256):
        raise NodeRefused("unknown-serial")
    members.lock_pool(c, held.pool_id)
    later = certificates.renewals_of(c, identity.serial)
    if any(one.key_sha256 != csr.key_sha256 for one in later):
        member = members.get(c, held.node_id)
        if member is None or member.state != members.LIVE:
            raise NodeRefused("no-live-node")
        if not _in_use(c, held):
            raise NodeRefused("of-an-earlier-join")
        lock(c, member, identity.serial, now)
        return None
    peer = shown(c, identity, address, now)
    for one in later:
        if one.revoked_at is None:
            return Admitted(one.node_id, one.chain, one.renew_after_at)
    member = peer.member
    row = issue(c, authority, member.trust, csr, member.node_id, member.pool_id, now, renewed_from=identity.serial)
    return Admitted(member.node_id, row.chain, row.renew_after_at)


def identity_after_the_end(expired: Expired, csr: Csr, authority: Authority) -> PeerIdentity:
    """Who a certificate names whose key signed this very request. Its time is the caller's to judge. Raises NodeRefused."""
    try:
        certificate = certificate_from_pem(expired.certificate)
        identity = identity_of(certificate, authority.trust_domain)
        key = certificate.public_key()
        signature = base64.b64decode(expired.signature, validate=True)
    except (PeerRefused, ValueError, binascii.Error, UnicodeEncodeError) as error:
        raise NodeRefused("unreadable") from error
    if issuer_of(certificate, authority.node_issuers) is None:
        raise NodeRefused("foreign-issuer")
    if not is_allowed(key) or not _signed(key, signature, renewal_statement(csr.der)):
        raise NodeRefused("not-signed-by-its-key")
    return identity


def renew_after_the_end(
    c: Connection,
    identity: PeerIdentity,
    csr: Csr,
    authority: Authority,
    settings: Joining,
    entropy: Callable[[int], bytes],
    address: str,
    now: Micros,
) -> Admitted | Deferred | None:
    """Within the grace as `renew`; later by somebody's leave. Raises NodeRefused, JoinRefused, RateLimited, Unavailable."""
    held = certificates.get(c, identity.serial)
    if held is None:
        raise NodeRefused("unknown-serial")
    # As it was issued: who has an issuer's key can write another end into his copy.
    if now <= held.not_after_at + settings.expired_grace_days * DAY_US:
        return renew(c, identity, csr, authority, address, now)
    peer = authenticate(c, identity)
    member = peer.member
    members.lock_pool(c, member.pool_id)
    for one in certificates.renewals_of(c, identity.serial):
        if one.key_sha256 == csr.key_sha256 and one.revoked_at is None:  # the answer to this was lost
            return Admitted(one.node_id, one.chain, one.renew_after_at)
    request = join_requests.of_csr(c, member.pool_id, csr.sha256)
    state = None if request is None else request.state(now)
    if request is not None and state == "denied":
        raise JoinRefused("denied")
    if request is not None and state in join_requests.LIVE:
        if request.node_id != member.node_id or request.reason != EXPIRED:
            raise JoinRefused("claim-changed")
        if state == "pending":
            join_requests.seen(c, request.request_id, address, now)
            return Deferred(request.request_id)
        join_requests.end(c, request.request_id, "approved", "consumed", now, node_id=member.node_id)
        _tell(c, member, "consumed", request.request_id, new_id("ev", now, entropy(ENTROPY_BYTES)), now)
        return renew(c, identity, csr, authority, address, now)
    if request is not None and request.ended_at is None:
        expire(c, request, member.site_id, now)
    if join_requests.count_live(c, member.pool_id, None, now)[0] >= LIVE_OF_POOL:
        raise RateLimited("too many join requests wait for a decision", retryAfterS=300)
    request_id = new_id("jr", now, entropy(ENTROPY_BYTES))
    join_requests.add(c, _late(peer, csr, request_id, address, settings, now), now)
    _tell(c, member, "created", request_id, new_id("ev", now, entropy(ENTROPY_BYTES)), now)
    return Deferred(request_id)


def _in_use(c: Connection, held: CertificateRow) -> bool:
    """Whether a certificate that is good now descends from this one by renewals.

    If none does, the node was reclaimed or joined anew since: whoever has the key of before must not be able to lock it.
    """
    rows = {one.serial: one for one in certificates.of_node(c, held.node_id)}
    for row in rows.values():
        at: CertificateRow | None = row if row.revoked_at is None else None
        while at is not None and at.serial != held.serial:
            at = rows.get(at.renewed_from or "")
        if at is not None:
            return True
    return False


def _late(peer: Peer, csr: Csr, request_id: str, address: str, settings: Joining, now: Micros) -> NewRequest:
    member = peer.member
    return NewRequest(
        request_id=request_id,
        tenant_id=member.tenant_id,
        pool_id=member.pool_id,
        token_id=None,
        attestor=member.attestor,
        reason=EXPIRED,
        csr_sha256=csr.sha256,
        key_sha256=csr.key_sha256,
        claim_sha256=peer.certificate.key_sha256,
        claim={"certificate": peer.certificate.serial},
        evidence={"identifiers": [], "reported": [], "tpm": None},
        node_id=member.node_id,
        ek_sha256=member.ek_sha256,
        address=address,
        expires_at=Micros(now + settings.pending_s * SECOND),
    )


def _tell(c: Connection, member: MemberRow, what: str, request_id: str, event_id: str, now: Micros) -> None:
    data = {"requestId": request_id, "reason": EXPIRED}
    type_ = f"security.join-request.{what}"
    event = NewEvent(event_id, member.node_id, member.tenant_id, member.pool_id, member.site_id, type_, data)
    outbox.add(c, [event], now)


def _signed(key: AllowedKey, signature: bytes, statement: bytes) -> bool:
    """ECDSA and RSA (PKCS #1 v1.5) with SHA-256; Ed25519 as it is."""
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, statement, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, statement)
        else:
            key.verify(signature, statement, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True
