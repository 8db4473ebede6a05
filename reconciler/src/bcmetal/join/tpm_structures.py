"""A TPM's public key as it comes over the wire: TPM2B_PUBLIC read strictly (TCG TPM 2.0 Library, Part 2, sections 8.3, 11 and 12.2).

The bytes are hostile. Only what a join can use is read: RSA-2048 and NIST P-256 keys named by SHA-256; all else is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

PUBLIC_LIMIT: Final = 512  # bytes; an RSA-2048 EK has 316
RSA_BITS: Final = 2048
P256_BYTES: Final = 32
_DEFAULT_EXPONENT: Final = 65537  # what a TPM means by 0


class TpmRefused(ValueError):
    """What a TPM, or one who claims to have one, sent is not believed. `reason` is one word for events; the text is safe to show."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class Alg(IntEnum):
    """TPM_ALG_ID, as far as a join's keys use it."""

    RSA = 0x0001
    AES = 0x0006
    SHA256 = 0x000B
    SHA384 = 0x000C
    SHA512 = 0x000D
    NULL = 0x0010
    RSASSA = 0x0014
    RSAPSS = 0x0016
    ECDSA = 0x0018
    ECC = 0x0023
    CFB = 0x0043


class Attribute(IntFlag):
    """TPMA_OBJECT; the bits that the specification reserves are in none of them."""

    FIXED_TPM = 1 << 1
    ST_CLEAR = 1 << 2
    FIXED_PARENT = 1 << 4
    SENSITIVE_DATA_ORIGIN = 1 << 5
    USER_WITH_AUTH = 1 << 6
    ADMIN_WITH_POLICY = 1 << 7
    FIRMWARE_LIMITED = 1 << 8
    SVN_LIMITED = 1 << 9
    NO_DA = 1 << 10
    ENCRYPTED_DUPLICATION = 1 << 11
    RESTRICTED = 1 << 16
    DECRYPT = 1 << 17
    SIGN = 1 << 18
    X509_SIGN = 1 << 19


_KNOWN_BITS: Final = sum(Attribute)
_HASHES: Final = (Alg.SHA256, Alg.SHA384, Alg.SHA512)
_NIST_P256: Final = 0x0003


@dataclass(frozen=True, slots=True)
class Public:
    """A key that a TPM describes. `area` is its TPMT_PUBLIC, byte for byte; `scheme` None for any, `aes_cfb_bits` None where it wraps nothing."""

    area: bytes = field(repr=False)
    attributes: Attribute
    aes_cfb_bits: int | None
    scheme: Alg | None
    key: RSAPublicKey | EllipticCurvePublicKey = field(repr=False, compare=False)

    @property
    def name(self) -> bytes:
        """The object's Name: nameAlg ‖ SHA-256 of its TPMT_PUBLIC (Part 1, section 16)."""
        return Alg.SHA256.to_bytes(2, "big") + hashlib.sha256(self.area).digest()

    @property
    def spki(self) -> bytes:
        """The key's SubjectPublicKeyInfo as DER: the same for every way of writing the same key."""
        return self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def public_from_wire(text: str) -> Public:
    """Read base64 (standard alphabet, padded, canonical) of a TPM2B_PUBLIC. Raises TpmRefused."""
    return parse_public(from_base64(text, PUBLIC_LIMIT))


def from_base64(text: str, limit: int) -> bytes:
    """At most `limit` bytes; one text only for each value. Raises TpmRefused."""
    if len(text) > (limit + 2) // 3 * 4:
        raise TpmRefused("oversized", f"More than {limit} bytes were sent.")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):  # ValueError: characters outside of ASCII
        raise TpmRefused("malformed", "A value is no standard base64.") from None
    if base64.b64encode(raw).decode() != text or len(raw) > limit:
        raise TpmRefused("malformed", "A value is no standard base64 of its size.")
    return raw


def parse_public(raw: bytes) -> Public:
    """Read one TPM2B_PUBLIC and nothing after it. Raises TpmRefused."""
    if len(raw) > PUBLIC_LIMIT:
        raise TpmRefused("oversized", f"A TPM2B_PUBLIC has more than {PUBLIC_LIMIT} bytes.")
    outer = _Reader(raw)
    area = outer.sized(PUBLIC_LIMIT)
    outer.end()
    r = _Reader(area)
    kind = r.algorithm("type", Alg.RSA, Alg.ECC)
    r.algorithm("name algorithm", Alg.SHA256)
    bits = r.u32()
    if bits & ~_KNOWN_BITS:
        raise TpmRefused("malformed", "Reserved bits of the attributes are set.")
    if len(r.sized(32)) not in (0, 32):
        raise TpmRefused("malformed", "The policy is no SHA-256 digest.")
    aes_cfb_bits = _symmetric(r)
    scheme = _scheme(r, kind)
    key = _rsa(r) if kind is Alg.RSA else _ecc(r)
    r.end()
    return Public(area, Attribute(bits), aes_cfb_bits, scheme, key)


class _Reader:
    """Big-endian numbers and sized buffers; never past the end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, count: int) -> bytes:
        if count > len(self._raw) - self._at:
            raise TpmRefused("malformed", "A structure ends too early.")
        self._at += count
        return self._raw[self._at - count : self._at]

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def sized(self, limit: int) -> bytes:
        size = self.u16()
        if size > limit:
            raise TpmRefused("malformed", "A size is larger than its field may be.")
        return self.take(size)

    def algorithm(self, what: str, *allowed: Alg) -> Alg:
        value = self.u16()
        if value not in allowed:
            raise TpmRefused("unsupported", f"The {what} 0x{value:04x} is not supported.")
        return Alg(value)

    def end(self) -> None:
        if self._at != len(self._raw):
            raise TpmRefused("malformed", "Bytes follow the end of a structure.")


def _symmetric(r: _Reader) -> int | None:
    if r.algorithm("symmetric algorithm", Alg.NULL, Alg.AES) is Alg.NULL:
        return None
    bits = r.u16()
    if bits not in (128, 256):
        raise TpmRefused("unsupported", "The symmetric key is neither AES-128 nor AES-256.")
    r.algorithm("symmetric mode", Alg.CFB)
    return bits


def _scheme(r: _Reader, kind: Alg) -> Alg | None:
    signing = (Alg.RSASSA, Alg.RSAPSS) if kind is Alg.RSA else (Alg.ECDSA,)
    scheme = r.algorithm("scheme", Alg.NULL, *signing)
    if scheme is Alg.NULL:
        return None
    r.algorithm("hash of the scheme", *_HASHES)
    return scheme


def _rsa(r: _Reader) -> RSAPublicKey:
    bits, exponent = r.u16(), r.u32()
    modulus = r.sized(RSA_BITS // 8)
    n = int.from_bytes(modulus, "big")
    if bits != RSA_BITS or exponent not in (0, _DEFAULT_EXPONENT):
        raise TpmRefused("unsupported", "The RSA key is not one of 2048 bits with the exponent 65537.")
    if len(modulus) != RSA_BITS // 8 or n.bit_length() != RSA_BITS or n % 2 == 0:
        raise TpmRefused("malformed", "The RSA modulus has not 2048 bits, or is even.")
    try:
        return RSAPublicNumbers(_DEFAULT_EXPONENT, n).public_key()
    except ValueError:
        raise TpmRefused("malformed", "The RSA key is not valid.") from None


def _ecc(r: _Reader) -> EllipticCurvePublicKey:
    if r.u16() != _NIST_P256:
        raise TpmRefused("unsupported", "The elliptic curve is not NIST P-256.")
    r.algorithm("key derivation", Alg.NULL)
    x, y = (int.from_bytes(r.sized(P256_BYTES), "big") for _ in "xy")
    try:
        return EllipticCurvePublicNumbers(x, y, SECP256R1()).public_key()
    except ValueError:
        raise TpmRefused("malformed", "The point is not on its curve.") from None
