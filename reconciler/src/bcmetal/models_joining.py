"""What the methods of joinTokens, joinRequests and nodes take. As in `models`: strict, and the OpenAPI document is made from it."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from bcmetal.models_words import MAC, PRINTABLE, Change, IdempotencyKey, Input, Located, Sha256

JOIN_ID: Final = r"^jt_[0-9a-hjkmnp-tv-z]{26,52}$"
REQUEST_ID: Final = r"^jr_[0-9a-hjkmnp-tv-z]{26,52}$"
MEMBER_ID: Final = r"^nd_[0-9a-hjkmnp-tv-z]{26}$"

TokenId = Annotated[str, StringConstraints(pattern=JOIN_ID, max_length=64)]
RequestId = Annotated[str, StringConstraints(pattern=REQUEST_ID, max_length=64)]
MemberId = Annotated[str, StringConstraints(pattern=MEMBER_ID)]


class Expect(Input):
    """Pins a token to one machine; at least one identifier."""

    product_uuid: Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f-]{8,64}$")] | None = None
    serial: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:/+-]{1,128}$")] | None = None
    mac: Annotated[str, StringConstraints(pattern=MAC)] | None = None
    gpu_uuid: Annotated[str, StringConstraints(pattern=r"^GPU-[0-9A-Fa-f-]{8,64}$")] | None = None

    @model_validator(mode="after")
    def _some(self) -> Expect:
        if not self.said():
            raise ValueError("must name at least one identifier: productUuid, serial, mac or gpuUuid")
        return self

    def said(self) -> dict[str, str]:
        """What is named, in camelCase."""
        return self.model_dump(by_alias=True, exclude_none=True)


class TokenCreate(Located, Change):
    """`idempotencyKey` is a part of the token's id: the same key is the same token."""

    idempotency_key: IdempotencyKey
    max_uses: int = Field(1, ge=1, le=10_000)
    ttl_seconds: int = Field(ge=60, le=86_400)
    expect: Expect | None = None
    allow_reclaim: bool = False
    hosted: Literal["kubernetes"] | None = None


class TokenList(Located):
    include_inactive: bool = False
    limit: int = Field(100, ge=1, le=200)
    cursor: TokenId | None = None


class TokenRevoke(Located, Change):
    token_id: TokenId


class RequestList(Located):
    """By default only those that are pending or approved, and not expired."""

    state: Literal["pending", "approved", "denied", "consumed", "expired"] | None = None
    include_inactive: bool = False
    limit: int = Field(100, ge=1, le=200)
    cursor: RequestId | None = None


class RequestGet(Located):
    request_id: RequestId


class RequestApprove(RequestGet, Change):
    """`csrSha256`: refused with CONFLICT when the request came with another CSR than the one that was looked at."""

    csr_sha256: Sha256 | None = None


class RequestDeny(RequestGet, Change):
    reason: Annotated[str, StringConstraints(pattern=PRINTABLE, min_length=1, max_length=256)] | None = None


class MemberList(Located):
    limit: int = Field(100, ge=1, le=200)
    cursor: MemberId | None = None


class MemberGet(Located):
    node_id: MemberId


class MemberEvict(MemberGet, Change):
    reason: Annotated[str, StringConstraints(pattern=PRINTABLE, min_length=1, max_length=256)] | None = None
