"""Keys, requests and certificates, by what python3-cryptography of Debian 12 (38.0) already has."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NODE_URI: Final = re.compile(r"spiffe://[a-z0-9._-]+/(node|node-tenant)/([A-Za-z0-9._-]{1,64})")
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")

T = TypeVar("T")
E = TypeVar("E", bound=x509.ExtensionType)

_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    x509.InvalidVersion,
)


class BadCertificate(ValueError):
    """A certificate that cannot be read, or is not what it must be; the text is safe to show."""


def new_key() -> ec.EllipticCurvePrivateKey:
    """P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def read_key(pem: str) -> ec.EllipticCurvePrivateKey:
    """Raises ValueError."""
    key = serialization.load_pem_private_key(pem.encode(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key


def request_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """A PKCS#10 with an empty subject: the daemon takes the public key and nothing else of it."""
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()


def request_der(pem: str) -> bytes:
    return x509.load_pem_x509_csr(pem.encode()).public_bytes(serialization.Encoding.DER)


def public_der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    """ECDSA with SHA-256, DER."""
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


# ---------------------------------------------------------------- certificates


@dataclass(frozen=True)
class Facts:
    """What the agent asks of a certificate. `spki`: DER. `uris`, `names`: of its alternative names."""

    serial: int
    spki: bytes
    not_before: datetime
    not_after: datetime
    issuer_units: frozenset[str]
    uris: tuple[str, ...]
    names: tuple[str, ...]
    server: bool
    client: bool
    authority: bool

    @property
    def node_id(self) -> str | None:
        """From the only URI that a node's certificate has, `spiffe://<trust domain>/node[-tenant]/<node id>`."""
        found = [NODE_URI.fullmatch(uri) for uri in self.uris]
        return found[0].group(2) if len(found) == 1 and found[0] else None


def split_pem(text: str) -> list[x509.Certificate]:
    """Every certificate of a PEM text, in order. Raises BadCertificate, also for none."""
    found = [_readable(partial(x509.load_pem_x509_certificate, block.encode())) for block in _PEM.findall(text)]
    if not found:
        raise BadCertificate("no certificate in PEM form")
    return found


def load_der(der: bytes) -> x509.Certificate:
    """Raises BadCertificate."""
    return _readable(partial(x509.load_der_x509_certificate, der))


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the DER, in hex."""
    return hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


def facts(certificate: x509.Certificate) -> Facts:
    """Raises BadCertificate."""
    return _readable(partial(_facts, certificate))


def _facts(certificate: x509.Certificate) -> Facts:
    names = _extension(certificate, x509.SubjectAlternativeName)
    usage = _extension(certificate, x509.ExtendedKeyUsage)
    constraints = _extension(certificate, x509.BasicConstraints)
    units = certificate.issuer.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    return Facts(
        serial=certificate.serial_number,
        spki=certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
        not_before=_time(certificate, "not_valid_before"),
        not_after=_time(certificate, "not_valid_after"),
        issuer_units=frozenset(str(unit.value) for unit in units),
        uris=tuple(names.get_values_for_type(x509.UniformResourceIdentifier)) if names else (),
        names=(
            *(names.get_values_for_type(x509.DNSName) if names else ()),
            *(str(address) for address in (names.get_values_for_type(x509.IPAddress) if names else ())),
        ),
        server=usage is not None and ExtendedKeyUsageOID.SERVER_AUTH in usage,
        client=usage is not None and ExtendedKeyUsageOID.CLIENT_AUTH in usage,
        authority=constraints is not None and constraints.ca,
    )


def verify_issued(child: x509.Certificate, issuer: x509.Certificate) -> None:
    """Names, authority and signature of one link. Raises BadCertificate."""
    if child.issuer != issuer.subject or not facts(issuer).authority:
        raise BadCertificate("the certificate does not come from the issuer that is beside it")
    _readable(partial(_verify_signature, child, issuer))


def _verify_signature(child: x509.Certificate, issuer: x509.Certificate) -> None:
    key, algorithm = issuer.public_key(), child.signature_hash_algorithm
    try:
        if isinstance(key, ec.EllipticCurvePublicKey) and algorithm is not None:
            key.verify(child.signature, child.tbs_certificate_bytes, ec.ECDSA(algorithm))
        elif isinstance(key, rsa.RSAPublicKey) and algorithm is not None:
            key.verify(child.signature, child.tbs_certificate_bytes, padding.PKCS1v15(), algorithm)
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(child.signature, child.tbs_certificate_bytes)
        else:
            raise BadCertificate("the issuer's key is of a kind that the agent does not know")
    except InvalidSignature:
        raise BadCertificate("the issuer's signature does not hold") from None


def _extension(certificate: x509.Certificate, kind: type[E]) -> E | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _time(certificate: x509.Certificate, name: str) -> datetime:
    """cryptography 42 names the aware time `…_utc` and warns at the naive one, the only one that 38 has."""
    aware = getattr(certificate, f"{name}_utc", None)
    found: datetime = aware if aware is not None else getattr(certificate, name).replace(tzinfo=UTC)
    return found


def _readable(read: Callable[[], T]) -> T:
    """`cryptography` only warns at some faults yet, as at a serial number below zero: those are the daemon's to avoid."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            return read()
    except BadCertificate:
        raise
    except _UNREADABLE:
        raise BadCertificate("a certificate that cannot be read") from None
