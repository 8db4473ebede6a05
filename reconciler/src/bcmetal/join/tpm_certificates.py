"""EK certificates: the key they are about, and whether a TPM maker of the site's vendor bundle issued them.

By hand, not by `cryptography.x509.verification`, which refuses what these certificates are by their profile (TCG EK Credential Profile for
TPM Family 2.0): an empty subject, a critical alternative name of directory names only, a purpose of the TCG, an end in the year 9999.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from cryptography.x509.oid import NameOID

from bcmetal.join.tpm_structures import TpmRefused
from bcmetal.text import clean

CERTIFICATE_LIMIT: Final = 4096  # bytes; real ones have 800 to 1,600
NAME_LIMIT: Final = 128  # characters of an issuer's name as shown
_DEPTH: Final = 6  # certificates above the EK's own
_SIGNATURES_TRIED: Final = 32  # a bundle may hold many CAs of one name
T = TypeVar("T", bound=x509.ExtensionType)
_UNREADABLE: Final = (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)
_EK_PURPOSE: Final = x509.ObjectIdentifier("2.23.133.8.1")  # tcg-kp-EKCertificate
_HASHES: Final = (hashes.SHA256, hashes.SHA384, hashes.SHA512)

# AlgorithmIdentifier { rsaEncryption, NULL }; and id-RSAES-OAEP, with which some makers mark the same kind of key
_RSA_ENCRYPTION: Final = bytes.fromhex("300d06092a864886f70d0101010500")
_RSAES_OAEP: Final = bytes.fromhex("06092a864886f70d010107")


def certified_spki(certificate: bytes) -> bytes:
    """The SubjectPublicKeyInfo that a DER certificate is about; RSA keys marked for OAEP as plain rsaEncryption. Raises TpmRefused."""
    loaded = _load(certificate)
    try:
        return loaded.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except _UNREADABLE:
        pass
    try:
        return load_der_public_key(_as_rsa_encryption(loaded.tbs_certificate_bytes)).public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )
    except _UNREADABLE:
        raise TpmRefused("ek-certificate", "The key of the EK certificate cannot be read.") from None


def vendor_of(ek_certificate_der: bytes, bundle: Sequence[x509.Certificate], now: datetime) -> str | None:
    """The common name of the CA that issued an EK certificate, if a chain through the bundle ends at a root (its own issuer) in it.

    None also where the certificate is not valid now, is for another purpose, or cannot be read: it vouches for nothing then.
    `now` has a time zone. Whether the certificate is about the EK at hand is `check_ek_certificate`'s question; revocation is not asked.
    """
    try:
        certificate = _load(ek_certificate_der)
        if not _is_valid(certificate, now) or not _is_for_an_ek(certificate):
            return None
        issuer = _Chain(bundle, now).issuer_of(certificate, 0)
    except _UNREADABLE:
        return None
    return None if issuer is None else _shown(issuer.subject)


class _Chain:
    """A search upwards, depth first, that checks a bounded number of signatures."""

    def __init__(self, bundle: Sequence[x509.Certificate], now: datetime) -> None:
        self._bundle = bundle
        self._now = now
        self._tries = _SIGNATURES_TRIED

    def issuer_of(self, certificate: x509.Certificate, cas_below: int) -> x509.Certificate | None:
        """The CA above, where it is a root or has a way to one itself. `cas_below`: as a path length counts them."""
        if cas_below >= _DEPTH:
            return None
        for ca in self._bundle:
            if not _may_issue(ca, certificate, self._now, cas_below) or not self._signed(certificate, ca):
                continue
            if ca.subject == ca.issuer or self.issuer_of(ca, cas_below + 1) is not None:
                return ca
        return None

    def _signed(self, certificate: x509.Certificate, ca: x509.Certificate) -> bool:
        if self._tries <= 0:
            return False
        self._tries -= 1
        try:
            if not isinstance(certificate.signature_hash_algorithm, _HASHES):
                return False
            certificate.verify_directly_issued_by(ca)
        except (*_UNREADABLE, TypeError, InvalidSignature):
            return False
        return True


def _load(der: bytes) -> x509.Certificate:
    if len(der) > CERTIFICATE_LIMIT:
        raise TpmRefused("oversized", f"An EK certificate has more than {CERTIFICATE_LIMIT} bytes.")
    try:
        return x509.load_der_x509_certificate(der)
    except (ValueError, x509.InvalidVersion):
        raise TpmRefused("ek-certificate", "The EK certificate cannot be read.") from None


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _is_for_an_ek(certificate: x509.Certificate) -> bool:
    """Early certificates name no purpose; one that names others is not an EK's, and a CA's is not either."""
    purposes = _extension(certificate, x509.ExtendedKeyUsage)
    basic = _extension(certificate, x509.BasicConstraints)
    return (purposes is None or _EK_PURPOSE in purposes) and (basic is None or not basic.ca)


def _may_issue(ca: x509.Certificate, certificate: x509.Certificate, now: datetime, cas_below: int) -> bool:
    issuer = certificate.issuer
    try:
        if ca.subject != issuer or not _is_valid(ca, now):
            return False
        basic = _extension(ca, x509.BasicConstraints)
        usage = _extension(ca, x509.KeyUsage)
    except _UNREADABLE:  # one that nobody can read spoils no other
        return False
    if basic is None or not basic.ca:
        return False
    return (usage is None or usage.key_cert_sign) and (basic.path_length is None or basic.path_length >= cas_below)


def _extension(certificate: x509.Certificate, kind: type[T]) -> T | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _shown(name: x509.Name) -> str:
    common = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    text = clean(common[0].value if common else name.rfc4514_string()).strip()
    return text if len(text) <= NAME_LIMIT else text[: NAME_LIMIT - 1] + "…"


def _as_rsa_encryption(tbs: bytes) -> bytes:
    """The SubjectPublicKeyInfo of a TBSCertificate, its OAEP mark replaced. Raises ValueError."""
    fields, _ = _element(tbs)
    tag = fields[:1]
    skipped = 6 if tag == b"\xa0" else 5  # version (absent in v1), serial, signature, issuer, validity, subject
    for _ in range(skipped):
        _, fields = _element(fields)
    spki, _ = _element(fields)
    algorithm, bits = _element(spki)
    if not algorithm.startswith(_RSAES_OAEP):
        raise ValueError("not a key that is marked for OAEP")
    body = _RSA_ENCRYPTION + bits
    return b"\x30\x82" + len(body).to_bytes(2, "big") + body


def _element(raw: bytes) -> tuple[bytes, bytes]:
    """The contents of the first DER element, and what follows it. Raises ValueError."""
    if len(raw) < 2:
        raise ValueError("an element ends too early")
    size, start = raw[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(raw[2:start], "big")
    if start + size > len(raw):
        raise ValueError("an element ends too early")
    return raw[start : start + size], raw[start + size :]
