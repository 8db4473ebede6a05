"""The shape of what `doctor` answers, for the OpenAPI document alone."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bcmetal.answers import Answer


class Trouble(Answer):
    code: str
    message: str


class CertificateSeen(Answer):
    """What cannot be read of it is null."""

    fingerprint: str = Field(description="SHA-256 of its DER")
    trusted: bool | None = Field(description="by `bmc.tls` or the network's `tls`; null: neither says how")
    mistrust: Trouble | None
    subject: str | None
    issuer: str | None
    names: list[str] | None
    not_before: str | None
    not_after: str | None
    self_signed: bool | None


class RedfishDiagnosis(Answer):
    there: bool
    address: str
    trouble: Trouble | None
    tries: int
    maker: str | None
    vendor: str | None
    product: str | None
    redfish_version: str | None
    uuid: str | None
    clock_skew_s: float | None = Field(description="how far its clock is ahead, by the Date header")
    certificate: CertificateSeen | None


class IpmiDiagnosis(Answer):
    there: bool
    address: str
    trouble: Trouble | None
    versions: list[str]
    authentication: list[str] = Field(description="kinds that IPMI 1.5 would take")
    anonymous: bool
    null_names: bool
    two_keys: bool
    cipher_suites: list[int] | None = Field(description="null: the BMC does not tell them")


class BehaviourKnown(Answer):
    differs: list[str] = Field(description="what is done differently at such a BMC")
    source: str


class LoginDiagnosis(Answer):
    """After a login also `maker`, `model`, `firmware`, `system`, `behaviours`, and what is described here."""

    credential: str
    ok: bool
    trouble: Trouble | None
    capabilities: list[str] | None = Field(None, description="what the BMC claims")
    lacks: dict[str, str] | None = Field(None, description="of the others, what there is not")
    unread: dict[str, str] | None = Field(None, description="parts of the inventory that were not read whole")
    session: str | None = Field(None, description="session, basic")
    account: dict[str, Any] | None = Field(None, description="the credential's own")
    account_policy: dict[str, Any] | None = None


class Diagnosis(Answer):
    network: str
    address: str = Field(description="the one that was connected to")
    at: str | None
    redfish: RedfishDiagnosis
    ipmi: IpmiDiagnosis
    behaviours: list[BehaviourKnown]
    warnings: list[str]
    login: LoginDiagnosis | None
