"""Certificates that were issued to nodes, and the challenges that a TPM answers before one is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from bcmetal.decisions import Micros
from bcmetal.store.join_tables import certificates, challenges

k = certificates.c
h = challenges.c


@dataclass(frozen=True, slots=True)
class CertificateRow:
    """`claim_sha256` and `token_id`: of the join that it answered; "" and None of a renewal, which names `renewed_from` instead."""

    serial: str
    node_id: str
    pool_id: str
    issuer_id: str
    kind: str
    csr_sha256: str
    key_sha256: str
    claim_sha256: str
    token_id: str | None
    chain: str
    not_before_at: Micros
    not_after_at: Micros
    renew_after_at: Micros
    issued_at: Micros
    renewed_from: str | None = None
    first_seen_at: Micros | None = None
    revoked_at: Micros | None = None
    revoke_reason: str | None = None


@dataclass(frozen=True, slots=True)
class ChallengeRow:
    """`proof_sha256`: the SHA-256 of the only answer that is right; the challenge's secret is kept nowhere."""

    challenge_id: str
    pool_id: str
    token_id: str | None
    csr_sha256: str
    claim_sha256: str
    ek_sha256: str
    proof_sha256: bytes
    expires_at: Micros
    used_at: Micros | None = None


_ADD: Final = insert(certificates)
_GET: Final = select(certificates).where(k.serial == bindparam("serial"))
_ANSWER: Final = (
    select(certificates)
    .where(k.csr_sha256 == bindparam("csr_sha256"), k.pool_id == bindparam("pool_id"))
    .where(k.issued_at > bindparam("since"), k.renewed_from.is_(None))
    .order_by(k.issued_at.desc())
    .limit(1)
)
_OF_NODE: Final = select(certificates).where(k.node_id == bindparam("node_id")).order_by(k.issued_at, k.serial)
_RENEWALS: Final = select(certificates).where(k.renewed_from == bindparam("serial")).order_by(k.issued_at, k.serial)
_REVOKE_ALL: Final = (
    update(certificates)
    .where(k.node_id == bindparam("a_node_id"), k.revoked_at.is_(None))
    .values(revoked_at=bindparam("a_now"), revoke_reason=bindparam("a_reason"))
)
_REVOKE: Final = (
    update(certificates)
    .where(k.serial == bindparam("a_serial"), k.revoked_at.is_(None))
    .values(revoked_at=bindparam("a_now"), revoke_reason=bindparam("a_reason"))
)
_SEEN: Final = (
    update(certificates)
    .where(k.serial == bindparam("a_serial"), k.first_seen_at.is_(None), k.revoked_at.is_(None))
    .values(first_seen_at=bindparam("a_now"))
)
_PRUNE: Final = delete(certificates).where(k.not_after_at < bindparam("before"))
_CHALLENGE: Final = insert(challenges)
_GET_CHALLENGE: Final = select(challenges).where(h.challenge_id == bindparam("challenge_id"))
_USE: Final = (
    update(challenges)
    .where(h.challenge_id == bindparam("a_challenge_id"), h.used_at.is_(None), h.expires_at > bindparam("a_now"))
    .values(used_at=bindparam("a_now"))
)
_OPEN_CHALLENGES: Final = select(func.count()).where(
    h.token_id == bindparam("bearer"), h.used_at.is_(None), h.expires_at > bindparam("now")
)
_PRUNE_CHALLENGES: Final = delete(challenges).where(h.expires_at < bindparam("before"))


def add(c: Connection, row: CertificateRow) -> None:
    c.execute(_ADD, {name: getattr(row, name) for name in CertificateRow.__dataclass_fields__})


def get(c: Connection, serial: str) -> CertificateRow | None:
    row = c.execute(_GET, {"serial": serial}).one_or_none()
    return None if row is None else _certificate(row)


def answered(c: Connection, pool_id: str, csr_sha256: str, since: Micros) -> CertificateRow | None:
    """The certificate that a join with this CSR was answered with after `since`, revoked or not."""
    row = c.execute(_ANSWER, {"csr_sha256": csr_sha256, "pool_id": pool_id, "since": since}).one_or_none()
    return None if row is None else _certificate(row)


def of_node(c: Connection, node_id: str) -> list[CertificateRow]:
    """Oldest first."""
    return [_certificate(row) for row in c.execute(_OF_NODE, {"node_id": node_id})]


def renewals_of(c: Connection, serial: str) -> list[CertificateRow]:
    """Those that were issued against this one, oldest first."""
    return [_certificate(row) for row in c.execute(_RENEWALS, {"serial": serial})]


def revoke_all(c: Connection, node_id: str, reason: str, now: Micros) -> int:
    """How many were good till now."""
    return int(c.execute(_REVOKE_ALL, {"a_node_id": node_id, "a_now": now, "a_reason": reason}).rowcount)


def revoke(c: Connection, serial: str, reason: str, now: Micros) -> bool:
    return bool(c.execute(_REVOKE, {"a_serial": serial, "a_now": now, "a_reason": reason}).rowcount)


def seen(c: Connection, serial: str, now: Micros) -> bool:
    """True the first time that it is shown."""
    return bool(c.execute(_SEEN, {"a_serial": serial, "a_now": now}).rowcount)


def prune(c: Connection, before: Micros) -> int:
    """Drop those that ended before a time at which even their grace is over."""
    return int(c.execute(_PRUNE, {"before": before}).rowcount)


def challenge(c: Connection, row: ChallengeRow) -> None:
    c.execute(_CHALLENGE, {name: getattr(row, name) for name in ChallengeRow.__dataclass_fields__})


def challenge_of(c: Connection, challenge_id: str) -> ChallengeRow | None:
    """Also one that is used or expired."""
    row = c.execute(_GET_CHALLENGE, {"challenge_id": challenge_id}).one_or_none()
    return None if row is None else ChallengeRow(**{n: getattr(row, n) for n in ChallengeRow.__dataclass_fields__})


def open_challenges(c: Connection, bearer: str, now: Micros) -> int:
    """How many may still be answered."""
    return int(c.execute(_OPEN_CHALLENGES, {"bearer": bearer, "now": now}).scalar_one())


def use_challenge(c: Connection, challenge_id: str, now: Micros) -> bool:
    """False: it is used, or its time is over."""
    return bool(c.execute(_USE, {"a_challenge_id": challenge_id, "a_now": now}).rowcount)


def prune_challenges(c: Connection, before: Micros) -> int:
    return int(c.execute(_PRUNE_CHALLENGES, {"before": before}).rowcount)


def _certificate(row: Row[Any]) -> CertificateRow:
    return CertificateRow(**{name: getattr(row, name) for name in CertificateRow.__dataclass_fields__})
