"""The shape of what erasureRecords answers, for the OpenAPI document alone."""

from __future__ import annotations

from pydantic import Field

from bcmetal.answers import Answer


class ErasureRecord(Answer):
    """What became of one drive (`serial` null: of the whole machine). It stays when the node is removed."""

    record_id: str
    at: str
    node_id: str
    tenant_id: str
    pool_id: str
    serial: str | None
    result: str = Field(description="`erased`, or `not erased`: signed for by a waiver")
    verifier: str = Field(description="who looked afterwards: `daemon`, by sectors of its own choice, `bmc`, or `none`")
    signed: bool = Field(
        description="whether `export` has a signature of it; false for records from before there were any"
    )
    key_id: str | None = Field(None, description="the signing key's: the SHA-256 of its SubjectPublicKeyInfo")
    method: str | None = None
    standard: str | None = Field(None, description="what may be claimed, such as `NIST SP 800-88r2 purge`")
    model: str | None = None
    capacity_bytes: int | None = None
    started_at: str | None = None
    ended_at: str | None = None
    samples_sha256: str | None = Field(None, description="of what was read back from sectors of the daemon's choice")
    not_covered: list[str] | None = Field(
        None, description="what of the drive and the machine the erase does not reach"
    )
    reason: str | None = Field(None, description="the waiver's")
    custody: str | None = Field(None, description="the waiver's: who keeps what was not erased")
    by: str | None = Field(None, description="who signed the waiver")
    operation: str | None = None


class ErasureRecords(Answer):
    records: list[ErasureRecord]
    cursor: str | None


class ExportedRecord(Answer):
    """`document` is the record's text: its UTF-8 bytes, as they are, are what was signed."""

    record_id: str
    document: str
    signature: str | None = Field(description="base64 of DER; null: a record from before bcmetal signed any")
    key_id: str | None


class ProofKey(Answer):
    """Public halves are kept when a key is retired."""

    key_id: str = Field(description="the SHA-256 of its SubjectPublicKeyInfo")
    algorithm: str
    public_key: str = Field(description="PEM")
    created_at: str
    retired_at: str | None


class ErasureExport(Answer):
    records: list[ExportedRecord]
    keys: list[ProofKey]
    cursor: str | None
