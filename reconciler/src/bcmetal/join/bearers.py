"""Bearers of join tokens: `bcjt_<id>.<secret>`, where `<id>` is the token's id, with its own `jt_` or without. Pure.

The id is derived from who asks and the idempotency key, so that a repeated create finds its first one; the secret is random.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from bcmetal.store.ids import ALPHABET

SECRET_BYTES: Final = 32
LABEL: Final = "better-compute/join-token/v1"
NO_SECRET: Final = hashlib.sha256(b"bcmetal: no such token").digest()  # what a missing token's secret is compared with

_BEARER: Final = re.compile(r"bcjt_(?:jt_)?([0-9a-hjkmnp-tv-z]{26,52})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Bearer:
    token_id: str
    secret: SecretStr

    @property
    def secret_sha256(self) -> bytes:
        return hashlib.sha256(self.secret.get_secret_value().encode()).digest()

    def text(self) -> str:
        """The whole bearer in the clear, for the one answer that shows it."""
        return f"bcjt_{self.token_id}.{self.secret.get_secret_value()}"

    def proves(self, secret_sha256: bytes | None) -> bool:
        """Whether the secret is the one of this digest, in the same time whatever it is; None: there is no such token."""
        same = hmac.compare_digest(self.secret_sha256, NO_SECRET if secret_sha256 is None else secret_sha256)
        return same and secret_sha256 is not None


def token_id(deployment_key: bytes, tenant_id: str, identity: str, idempotency_key: str) -> str:
    """`jt_` and 52 characters: HMAC-SHA256 over the fields, each under its length, since all of them may hold any separator."""
    message = b"".join(
        len(part).to_bytes(4) + part
        for part in (text.encode() for text in (LABEL, tenant_id, identity, idempotency_key))
    )
    return "jt_" + crockford(hmac.digest(deployment_key, message, "sha256"))


def crockford(raw: bytes) -> str:
    """Lower-case Crockford base32 without padding."""
    bits = len(raw) * 8
    padded = int.from_bytes(raw) << (-bits % 5)
    length = -(-bits // 5)
    return "".join(ALPHABET[padded >> shift & 31] for shift in range(5 * (length - 1), -1, -5))


def new_bearer(token: str, entropy: bytes) -> Bearer:
    """`entropy`: 32 bytes of the system's randomness."""
    if len(entropy) != SECRET_BYTES:
        raise ValueError("a secret is made of 32 bytes")
    return Bearer(token, SecretStr(base64.urlsafe_b64encode(entropy).rstrip(b"=").decode()))


def parse_bearer(text: str) -> Bearer | None:
    """None: it has not the form of a bearer, and proves nothing."""
    match = _BEARER.fullmatch(text)
    return None if match is None else Bearer(f"jt_{match[1]}", SecretStr(match[2]))
