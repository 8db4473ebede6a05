"""The shape of what joinTokens, joinRequests and nodes answer, for the OpenAPI document alone."""

from __future__ import annotations

from pydantic import Field

from bcmetal.answers import Answer


class TokenView(Answer):
    """A join token's record. `token`, the bearer, is there in the first answer of create, and never again."""

    token_id: str
    tenant_id: str
    pool_id: str
    role: str
    max_uses: int
    uses: int
    reserved: int = Field(description="uses that belong to approved requests whose machine has not come back yet")
    expires_at: str
    expect: dict[str, str] | None
    allow_reclaim: bool
    hosted: str | None
    node_id: str | None = Field(description="the node whose deploy minted it; it is for that node alone")
    created_by: str
    created_at: str
    revoked_at: str | None
    live: bool
    token: str | None = None


class TokenList(Answer):
    tokens: list[TokenView]
    cursor: str | None


class ClaimedIdentifier(Answer):
    kind: str
    value: str
    usable: bool = Field(description="false: a placeholder that many machines share")
    conflicts: list[str] = Field(description="nodes that have it")


class ReportedIdentifier(Answer):
    kind: str
    value: str
    usable: bool
    source: str


class ReportedNode(Answer):
    node_id: str
    name: str
    state: str
    identifiers: list[ReportedIdentifier]


class ProvenTpm(Answer):
    ek_sha256: str
    vendor: str | None = Field(description="the TPM maker's CA that signed its certificate")
    allowed: bool


class Evidence(Answer):
    """What the machine claims, what BMCs reported of the nodes that have the same, what the TPM proved."""

    identifiers: list[ClaimedIdentifier]
    reported: list[ReportedNode]
    tpm: ProvenTpm | None


class RequestView(Answer):
    request_id: str
    tenant_id: str
    pool_id: str
    token_id: str | None
    state: str
    attestor: str
    reason: str
    csr_sha256: str
    key_sha256: str
    node_id: str | None
    address: str
    attempts: int
    created_at: str
    last_seen_at: str
    expires_at: str
    decided_by: str | None
    decided_at: str | None
    decision_reason: str | None
    evidence: Evidence


class RequestList(Answer):
    requests: list[RequestView]
    cursor: str | None


class MemberCertificate(Answer):
    serial: str
    kind: str
    issued_at: str
    not_after: str
    renew_after: str
    revoked_at: str | None
    revoke_reason: str | None


class ReleasedSecret(Answer):
    name: str
    first_at: str
    last_at: str


class MemberView(Answer):
    """A node that joined, with or without a BMC."""

    node_id: str
    tenant_id: str
    pool_id: str
    site_id: str
    state: str
    trust: str
    hosted: str | None
    metal: bool
    attestor: str
    token_id: str | None
    request_id: str | None
    admitted_by: str
    ek_sha256: str | None
    tpm_proven: bool
    address: str
    joined_at: str
    last_join_at: str
    last_seen_at: str | None
    ended_at: str | None
    end_reason: str | None
    identifiers: list[ClaimedIdentifier] | None = None
    certificates: list[MemberCertificate] | None = None
    secrets: list[ReleasedSecret] | None = None


class MemberList(Answer):
    nodes: list[MemberView]
    cursor: str | None


class Evicted(Answer):
    node: MemberView
    rotate: list[str] = Field(description="secrets that the node was given: rotate them")
    tokens: list[str] = Field(
        description="the join token that admitted it, while it is live: revoke it, its root may have a copy"
    )


class TrustBundle(Answer):
    """For whoever writes a join line: no secret, and asked for without a key."""

    roots: list[str] = Field(description="PEM, first the one to pin by the SHA-256 of its DER")
    agents: list[str] = Field(description="where machines join, a network each")
    nodes: list[str] = Field(description="where those that joined renew, in the same order")
