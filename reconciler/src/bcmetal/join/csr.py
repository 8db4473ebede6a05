"""Certificate requests of machines that join: one PEM block, read strictly, of which only the public key is ever used.

1. csr_der       the text is one block and nothing else; its SHA-256 is what a retry is known by
2. the key       is of the policy, judged by its size before anything is computed with it
3. extensions    none that asks for a name or for an authority
4. signature     whoever sent the request holds the key
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512
from cryptography.x509.oid import ExtensionOID, ObjectIdentifier

from bcmetal.errors import Fault, InvalidInput
from bcmetal.join.public_keys import POLICY, AllowedKey, is_allowed, key_sha256

CSR_LIMIT: Final = 8192  # characters
_PEM: Final = re.compile(
    "-----BEGIN CERTIFICATE REQUEST-----\r?\n([A-Za-z0-9+/=\r\n]+)-----END CERTIFICATE REQUEST-----[\r\n]*"
)
_LINE: Final = re.compile("[A-Za-z0-9+/]{1,76}={0,2}")
_REQUESTS: Final = frozenset({ObjectIdentifier("1.2.840.113549.1.9.14"), ObjectIdentifier("1.3.6.1.4.1.311.2.1.14")})
_NAMES: Final = frozenset({ExtensionOID.SUBJECT_ALTERNATIVE_NAME, ExtensionOID.ISSUER_ALTERNATIVE_NAME})
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
_HARMLESS: Final = frozenset(
    {
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.SUBJECT_KEY_IDENTIFIER,
    }
)


class CsrRefused(InvalidInput):
    """The certificate request is not taken. `reason` is one word for the event, `sentence` what the caller is told."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__([Fault("csr", sentence)])
        self.reason = reason
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Csr:
    """`sha256` is of `der`, `key_sha256` of the key's SubjectPublicKeyInfo; both lower-case hexadecimal.

    Whoever saw a request can make another one of the same key (an ECDSA signature has a twin), so `sha256` tells a retry, and nothing
    else; only its key is proven.
    """

    public_key: AllowedKey
    der: bytes
    sha256: str
    key_sha256: str


def csr_der(pem: str) -> bytes:
    """What stands in the one block, undecoded: cheap, and the same bytes for every way to break the lines. Raises CsrRefused."""
    if len(pem) > CSR_LIMIT:
        raise CsrRefused("size", f"is longer than {CSR_LIMIT} characters")
    block = _PEM.fullmatch(pem)
    if block is None:
        raise CsrRefused("pem", "must be exactly one PEM block CERTIFICATE REQUEST, with nothing around it")
    lines = block[1].splitlines()
    if not all(map(_LINE.fullmatch, lines)) or any("=" in line for line in lines[:-1]):
        raise CsrRefused("pem", "has lines that are no base64")
    try:
        der = base64.b64decode("".join(lines), validate=True)
    except (binascii.Error, ValueError) as error:
        raise CsrRefused("pem", "is no base64") from error
    if base64.b64encode(der).decode("ascii") != "".join(lines):
        raise CsrRefused("pem", "is base64 with something left over at its end")
    return der


def read_csr(pem: str) -> Csr:
    """All of it, the signature last. Raises CsrRefused."""
    der = csr_der(pem)
    try:
        request = x509.load_der_x509_csr(der)
        key = request.public_key()
    except _UNREADABLE as error:
        raise CsrRefused("malformed", "is no PKCS#10 request with a key of a known kind") from error
    if not is_allowed(key):
        raise CsrRefused("key", f"its key must be {POLICY}")
    check_extensions(request)
    if der[-len(request.signature) - 1] != 0:  # bits of the signature that do not count: the library does not look
        raise CsrRefused("malformed", "has a signature that is no whole number of bytes")
    check_self_signature(request)
    return Csr(key, der, hashlib.sha256(der).hexdigest(), key_sha256(key))


def check_extensions(request: x509.CertificateSigningRequest) -> None:
    """What a certificate says is decided here, never asked for. Raises CsrRefused."""
    try:
        asked = sum(attribute.oid in _REQUESTS for attribute in request.attributes)
        extensions = list(request.extensions)
    except _UNREADABLE as error:
        raise CsrRefused("malformed", "has attributes or extensions that cannot be read") from error
    if asked > 1:
        raise CsrRefused("malformed", "asks for extensions twice")
    for extension in extensions:
        value = extension.value
        if extension.oid in _NAMES:
            raise CsrRefused("names", "asks for names: a machine's name is given to it")
        if isinstance(value, x509.BasicConstraints) and value.ca:
            raise CsrRefused("authority", "asks to be an authority")
        if isinstance(value, x509.KeyUsage) and (value.key_cert_sign or value.crl_sign):
            raise CsrRefused("authority", "asks to sign certificates")
        if extension.critical and extension.oid not in _HARMLESS:
            raise CsrRefused(
                "extension", f"has a critical extension that is not known here: {extension.oid.dotted_string}"
            )


def check_self_signature(request: x509.CertificateSigningRequest) -> None:
    """Costs what a signature of this key costs: judge the key first. Raises CsrRefused."""
    try:
        strong = isinstance(request.public_key(), Ed25519PublicKey) or isinstance(
            request.signature_hash_algorithm, SHA256 | SHA384 | SHA512
        )
        valid = strong and request.is_signature_valid
    except (*_UNREADABLE, InternalError) as error:
        raise CsrRefused("signature", "has a signature that cannot be checked") from error
    if not strong:
        raise CsrRefused("signature", "must be signed with SHA-256, SHA-384 or SHA-512")
    if not valid:
        raise CsrRefused("signature", "is not signed by its own key")
