"""A node's certificate: issued, and kept in the transaction that admits the node or renews it."""

from __future__ import annotations

from sqlalchemy import Connection

from bcmetal.decisions import Micros
from bcmetal.join.authority import Authority
from bcmetal.join.ca import IssuerKind
from bcmetal.join.csr import Csr
from bcmetal.join.judging import Trust
from bcmetal.store import certificates
from bcmetal.store.certificates import CertificateRow


def issue(
    c: Connection,
    authority: Authority,
    trust: str,
    csr: Csr,
    node_id: str,
    pool_id: str,
    now: Micros,
    *,
    claim_sha256: str = "",
    token_id: str | None = None,
    renewed_from: str | None = None,
) -> CertificateRow:
    """By `node` for platform trust, else by `node-tenant`. A join says its claim and token, a renewal `renewed_from`. Raises Unavailable."""
    kind = IssuerKind.NODE if trust == Trust.PLATFORM else IssuerKind.NODE_TENANT
    issued, renew_after_at = authority.issue(kind, csr.public_key, node_id, now)
    row = CertificateRow(
        serial=issued.serial,
        node_id=node_id,
        pool_id=pool_id,
        issuer_id=authority.issuer(kind).issuer_id,
        kind=kind,
        csr_sha256=csr.sha256,
        key_sha256=csr.key_sha256,
        claim_sha256=claim_sha256,
        token_id=token_id,
        chain=issued.chain,
        not_before_at=issued.not_before_at,
        not_after_at=issued.not_after_at,
        renew_after_at=renew_after_at,
        issued_at=now,
        renewed_from=renewed_from,
    )
    certificates.add(c, row)
    return row
