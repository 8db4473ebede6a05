"""Which public keys a certificate may be for, and how a key is told from another."""

from __future__ import annotations

import hashlib
from typing import Final, TypeGuard

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

AllowedKey = EllipticCurvePublicKey | Ed25519PublicKey | RSAPublicKey

RSA_BITS: Final = range(2048, 4096 + 1)
RSA_EXPONENT: Final = 65537
POLICY: Final = "P-256, P-384, Ed25519, or RSA of 2048 to 4096 bits with the exponent 65537"


def is_allowed(key: object) -> TypeGuard[AllowedKey]:
    """Looks at sizes and names only: no arithmetic, so a huge key costs nothing."""
    if isinstance(key, RSAPublicKey):
        return key.key_size in RSA_BITS and key.public_numbers().e == RSA_EXPONENT
    if isinstance(key, EllipticCurvePublicKey):
        return isinstance(key.curve, SECP256R1 | SECP384R1)
    return isinstance(key, Ed25519PublicKey)


def key_sha256(key: AllowedKey) -> str:
    """SHA-256 of its SubjectPublicKeyInfo, encoded anew: the same for a compressed point, or for RSA under the name RSASSA-PSS."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
