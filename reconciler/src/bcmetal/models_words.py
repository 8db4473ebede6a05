"""The words of the API: what a single value of an input may look like, and what every input has. Used by all `models`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Final

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, StringConstraints
from pydantic.alias_generators import to_camel

from bcmetal.states import SideVerb, Verb
from bcmetal.text import sha256_fingerprint
from bcmetal_drivers.address import parse
from bcmetal_drivers.errors import BadAddress
from bcmetal_drivers.schemes import families

TENANT: Final = r"^[A-Za-z0-9._:-]{1,128}$"
POOL: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
KEY: Final = r"^[A-Za-z0-9._~:/+=-]{1,128}$"
NAME: Final = r"^[a-z0-9-]{1,63}$"  # never shaped as an id: those hold an underscore
NODE: Final = r"^(nd_[0-9a-hjkmnp-tv-z]{26}|[a-z0-9-]{1,63})$"
PRINTABLE: Final = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
MAC: Final = r"^[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}$"
WORD: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"

SSH_KEY: Final = r"^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9@.-]+) [A-Za-z0-9+/=]+( [ -~]*)?$"
CRYPTED: Final = r"\$(5|6|y|7|2[aby])\$[A-Za-z0-9./$=,]{20,400}"

USERNAME_BYTES: Final = 64
PASSWORD_BYTES: Final = 128
SAFE_INTEGER: Final = 2**53 - 1
FIRST_YEAR, LAST_YEAR = 2000, 2200


def secret(limit: int) -> AfterValidator:
    def check(value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        if not text:
            raise ValueError("is empty")
        if len(text.encode()) > limit:
            raise ValueError(f"is longer than {limit} bytes")
        if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text):
            raise ValueError("holds a control character")
        return value

    return AfterValidator(check)


def crypted(value: SecretStr) -> SecretStr:
    if not re.fullmatch(CRYPTED, value.get_secret_value()):
        raise ValueError("is no hash of a password: `openssl passwd -6` or `mkpasswd` makes one")
    return value


def _moment(value: datetime) -> datetime:
    if not FIRST_YEAR <= value.year <= LAST_YEAR:
        raise ValueError(f"lies outside of the years {FIRST_YEAR} to {LAST_YEAR}")
    return value


def _fingerprint(value: str) -> str:
    bare = sha256_fingerprint(value)
    if bare is None:
        raise ValueError(
            "is no SHA-256 fingerprint: 64 hexadecimal digits, colons as you like, as openssl prints it or bare"
        )
    return bare


def _verb(value: str) -> Verb | SideVerb:
    for kind in (Verb, SideVerb):
        if value in kind.__members__.values():
            return kind(value)
    raise ValueError("is no verb and no side operation")


TenantId = Annotated[str, StringConstraints(pattern=TENANT)]
PoolId = Annotated[str, StringConstraints(pattern=POOL)]
NodeId = Annotated[str, StringConstraints(pattern=NODE)]
NodeName = Annotated[str, StringConstraints(pattern=NAME)]
IdempotencyKey = Annotated[str, StringConstraints(pattern=KEY)]
Word = Annotated[str, StringConstraints(pattern=WORD)]


def _address_of_a_known_form(value: str) -> str:
    """Here, so that a bad address is told together with every other fault of the input."""
    try:
        parse(value)
    except BadAddress as error:
        raise ValueError(str(error)) from None
    return value


def _driver(value: str) -> str:
    if value not in families():
        raise ValueError(f"is none of {', '.join(families())}")
    return value


Short = Annotated[str, StringConstraints(pattern=PRINTABLE, min_length=1, max_length=128)]
Reason = Annotated[str, StringConstraints(pattern=PRINTABLE, min_length=1, max_length=400)]
Address = Annotated[
    str, StringConstraints(pattern=PRINTABLE, min_length=1, max_length=512), AfterValidator(_address_of_a_known_form)
]
DriverName = Annotated[
    str, StringConstraints(max_length=32), AfterValidator(_driver), Field(json_schema_extra={"enum": list(families())})
]
Mac = Annotated[str, StringConstraints(pattern=MAC, to_lower=True)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{64}$", to_lower=True)]
Sha512 = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{128}$", to_lower=True)]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
LabelValue = Annotated[str, StringConstraints(pattern=PRINTABLE, max_length=128)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64)]
Username = Annotated[SecretStr, secret(USERNAME_BYTES)]
Password = Annotated[SecretStr, secret(PASSWORD_BYTES)]
Moment = Annotated[AwareDatetime, AfterValidator(_moment)]
Fingerprint = Annotated[str, StringConstraints(max_length=128), AfterValidator(_fingerprint)]
VerbName = Annotated[str, StringConstraints(max_length=32), AfterValidator(_verb)]
UserText = Annotated[str, StringConstraints(max_length=64 * 1024)]


class Input(BaseModel):
    """JSON, camelCase, nothing unknown."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )


class Located(Input):
    tenant_id: TenantId
    pool_id: PoolId


class OfNode(Located):
    """About one node; a name stands for the id too."""

    node_id: NodeId


class Change(Input):
    """Something is changed: such a call is audited when it is refused too."""


class Mutation(Change):
    idempotency_key: IdempotencyKey | None = None


class NodeMutation(OfNode, Mutation):
    """`ifGeneration`: refused with CONFLICT when the node moved on since then."""

    if_generation: int | None = Field(None, ge=0, le=SAFE_INTEGER)
