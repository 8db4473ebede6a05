"""Who a presented certificate is: read strictly, and traced to the issuer that signed it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import ExtendedKeyUsageOID

from bcmetal.decisions import Micros
from bcmetal.errors import Unauthenticated
from bcmetal.join.ca import NODE_ID, IssuerKind, kind_of, micros_of, serial_text
from bcmetal.join.public_keys import is_allowed, key_sha256

_SPIFFE: Final = re.compile(rf"spiffe://(?P<domain>[^/]+)/(?P<kind>node|node-tenant)/(?P<node>{NODE_ID.pattern})")
UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.UnsupportedGeneralNameType,
)


class PeerRefused(Unauthenticated):
    """The presented certificate is no node's of this trust domain."""


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """Who a certificate says it is; its serial must still be looked up. `serial` as `serial_text` writes it."""

    node_id: str
    kind: IssuerKind  # node or node-tenant
    serial: str
    not_after: Micros
    key_sha256: str


def certificate_from_pem(pem: str) -> x509.Certificate:
    """Raises PeerRefused, for whatever does not read: the library has several exceptions for that, not all of them ValueError."""
    try:
        return x509.load_pem_x509_certificate(pem.encode("ascii"))
    except UNREADABLE as error:
        raise PeerRefused("what was shown is no certificate") from error


def certificate_from_der(der: bytes) -> x509.Certificate:
    """Raises PeerRefused."""
    try:
        return x509.load_der_x509_certificate(der)
    except UNREADABLE as error:
        raise PeerRefused("what was shown is no certificate") from error


def identity_of(certificate: x509.Certificate, trust_domain: str) -> PeerIdentity:
    """The chain and the time are the caller's to check (TLS did, or `issuer_of`). Raises PeerRefused."""
    try:
        return _read(certificate, trust_domain)
    except UNREADABLE as error:  # the library reads most parts only when they are asked for
        raise PeerRefused("the certificate lacks what a node's has, or cannot be read") from error


def _read(certificate: x509.Certificate, trust_domain: str) -> PeerIdentity:
    extensions = certificate.extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName)
    constraints = extensions.get_extension_for_class(x509.BasicConstraints).value
    usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if constraints.ca or ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
        raise PeerRefused("the certificate is for no node")
    if len(certificate.subject) or not names.critical or len(names.value) != 1:
        raise PeerRefused("a node's certificate has one name, a critical URI")
    (name,) = names.value
    match = _SPIFFE.fullmatch(name.value) if isinstance(name, x509.UniformResourceIdentifier) else None
    if match is None or match["domain"] != trust_domain:
        raise PeerRefused("the certificate names no node of this trust domain")
    kind = IssuerKind(match["kind"])
    if kind_of(certificate.issuer) is not kind:
        raise PeerRefused("the certificate was issued by another issuer than its name says")
    key, serial = certificate.public_key(), certificate.serial_number
    if serial <= 0:
        raise PeerRefused("the certificate's serial number is not positive")
    if not is_allowed(key):
        raise PeerRefused("the certificate's key is not of the policy")
    return PeerIdentity(
        match["node"],
        kind,
        serial_text(serial),
        micros_of(certificate.not_valid_after_utc),
        key_sha256(key),
    )


def issuer_of(certificate: x509.Certificate, issuers: Iterable[x509.Certificate]) -> x509.Certificate | None:
    """Which of these signed it; for a certificate that came outside of TLS. None: none of them."""
    for issuer in issuers:
        try:
            certificate.verify_directly_issued_by(issuer)
        except (InvalidSignature, *UNREADABLE):
            continue
        return issuer
    return None
