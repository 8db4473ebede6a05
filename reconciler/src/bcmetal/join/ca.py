"""The site's certificate authority, pure over keys in memory.

A root, kept by people, signs three issuers of one year: `node` and `node-tenant` for machines, `server` for the daemon's own listeners.
An issuer says what it is for in its subject (OU), which its root signed; whoever checks a peer looks at that and at the name, never at
the chain alone, so no node can play the control plane and no `node-tenant` can vouch for a `node`.

The issuers of nodes are also constrained to issue for no host name and no address at all: a client that checks host names then refuses
them whatever their certificates say. There is no constraint on URIs: few verifiers read one, and OpenSSL alone would honour it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    SECP384R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import Unavailable
from bcmetal.join.public_keys import POLICY, AllowedKey, is_allowed, key_sha256

IssuerKey = EllipticCurvePrivateKey | Ed25519PrivateKey | RSAPrivateKey

ROOT_YEARS: Final = 10
ISSUER_DAYS: Final = 365
LEAF_S: Final = 24 * 3600
BACKDATED: Final = timedelta(minutes=5)  # clocks of machines are not exact
SERIAL_BYTES: Final = 16
JITTER: Final = 0.1  # of a certificate's life
NODE_ID: Final = re.compile(r"nd_[0-9a-hjkmnp-tv-z]{26}")
TRUST_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,253}[a-z0-9])?")
_CA_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9 ._-]{0,30}[A-Za-z0-9])?")
_BOTH: Final = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH)


class IssuerKind(StrEnum):
    """Also the word in the SPIFFE id, for the two that issue to nodes."""

    NODE = "node"
    NODE_TENANT = "node-tenant"
    SERVER = "server"


class IssuerUnusable(Unavailable):
    """The issuer is not valid now: `bcmetal ca rollover`."""


@dataclass(frozen=True, slots=True)
class Root:
    """A root with its key: in memory only while it signs issuers."""

    certificate: x509.Certificate
    key: IssuerKey = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Issuer:
    """`chain` is what stands above it, up to and with its root."""

    kind: IssuerKind
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    key: IssuerKey = field(repr=False, compare=False)

    @property
    def issuer_id(self) -> str:
        """SHA-256 of its certificate: its sealed key is bound to that, and opens beside no other certificate."""
        return sha256_of(self.certificate)

    @property
    def root(self) -> x509.Certificate:
        return self.chain[-1]


@dataclass(frozen=True, slots=True)
class Issued:
    """A leaf. `serial` as `serial_text` writes it; `chain`: PEM of the leaf and its issuers, without the root."""

    certificate: x509.Certificate = field(repr=False)
    serial: str
    chain: str = field(repr=False)
    not_before_at: Micros
    not_after_at: Micros
    key_sha256: str


# ---------------------------------------------------------------- roots and issuers


def make_root(name: str, now: Micros) -> Root:
    """`name` is the site's or the company's, at most 32 plain characters. Raises ValueError."""
    if not _CA_NAME.fullmatch(name):
        raise ValueError("a CA's name is at most 32 letters, digits, spaces, dots and hyphens")
    key = generate_private_key(SECP384R1())
    start = _moment(now)
    public = key.public_key()
    subject = _subject(name, None, public)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - BACKDATED)
        .not_valid_after(start + timedelta(days=365 * ROOT_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, SHA384())
    )
    return Root(certificate, key)


def make_issuer(kind: IssuerKind, root: Root, now: Micros) -> Issuer:
    """For a year, or as long as its root. Raises IssuerUnusable: the root is past its end."""
    key = generate_private_key(SECP256R1())
    public = key.public_key()
    organization = _only(root.certificate.subject, NameOID.ORGANIZATION_NAME) or "bcmetal"
    builder = _below(root.certificate, public, _subject(organization, kind, public), now, timedelta(days=ISSUER_DAYS))
    builder = (
        builder.serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_BOTH if kind in NODE_KINDS else _BOTH[1:]), critical=False)
    )
    if kind in NODE_KINDS:
        builder = builder.add_extension(NO_HOSTS, critical=True)
    return Issuer(kind, builder.sign(root.key, _hash(root.key)), (root.certificate,), key)


NODE_KINDS: Final = frozenset({IssuerKind.NODE, IssuerKind.NODE_TENANT})
NO_HOSTS: Final = x509.NameConstraints(
    permitted_subtrees=None,
    excluded_subtrees=[
        x509.DNSName(""),
        x509.IPAddress(ipaddress.ip_network("0.0.0.0/0")),
        x509.IPAddress(ipaddress.ip_network("::/0")),
    ],
)


def kind_of(subject: x509.Name) -> IssuerKind | None:
    """What an issuer is for, by its subject (a leaf's issuer name): `OU=bcmetal node` and so on. None: it is none of ours."""
    unit = _only(subject, NameOID.ORGANIZATIONAL_UNIT_NAME)
    return next((kind for kind in IssuerKind if unit == unit_of(kind)), None)


def unit_of(kind: IssuerKind) -> str:
    """The OU by which an issuer says what it is for."""
    return f"bcmetal {kind}"


# ---------------------------------------------------------------- leaves


def issue_node_certificate(
    issuer: Issuer,
    public_key: AllowedKey,
    node_id: str,
    trust_domain: str,
    now: Micros,
    serial: int,
    lifetime_s: int = LEAF_S,
) -> Issued:
    """The SPIFFE id's middle word is the issuer's kind. Ends no later than its issuer. Raises IssuerUnusable."""
    if issuer.kind not in NODE_KINDS:
        raise ValueError(f"the issuer {issuer.kind} issues to no node")
    uri = spiffe_id(trust_domain, issuer.kind, node_id)
    san = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
    return _leaf(issuer, public_key, x509.Name([]), (san, True), _BOTH, now, timedelta(seconds=lifetime_s), serial)


def issue_server_certificate(
    issuer: Issuer, public_key: AllowedKey, names: Sequence[str], now: Micros, days: int, serial: int
) -> Issued:
    """`names` are host names and addresses. Raises IssuerUnusable."""
    if issuer.kind is not IssuerKind.SERVER:
        raise ValueError(f"the issuer {issuer.kind} issues to no server")
    if not names:
        raise ValueError("a server has at least one name")
    san = x509.SubjectAlternativeName([_general(name) for name in dict.fromkeys(names)])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bcmetald")])
    return _leaf(issuer, public_key, subject, (san, False), _BOTH[1:], now, timedelta(days=days), serial)


def spiffe_id(trust_domain: str, kind: IssuerKind, node_id: str) -> str:
    """Raises ValueError when one of them is of no such form."""
    if not TRUST_DOMAIN.fullmatch(trust_domain) or not NODE_ID.fullmatch(node_id) or kind not in NODE_KINDS:
        raise ValueError("a node's SPIFFE id needs a trust domain, a kind of node and a node's id")
    return f"spiffe://{trust_domain}/{kind}/{node_id}"


def new_serial(entropy: bytes) -> int:
    """127 bits of the system's randomness; never zero. `entropy` is 16 bytes."""
    if len(entropy) != SERIAL_BYTES:
        raise ValueError(f"a serial number is made of {SERIAL_BYTES} bytes")
    return int.from_bytes(entropy) >> 1 or 1


def serial_text(serial: int) -> str:
    """How the store spells it: 32 lower-case hexadecimal digits."""
    return f"{serial:032x}"


def renew_after(not_before: Micros, not_after: Micros, entropy: bytes) -> Micros:
    """Between half of its life and a tenth of its life later, so that a rack which joined at once does not renew at once."""
    life = not_after - not_before
    share = int.from_bytes(entropy) / (1 << 8 * len(entropy)) if entropy else 0.0
    return Micros(not_before + life // 2 + int(life * JITTER * share))


# ---------------------------------------------------------------- as text


def pem_of(certificates: Iterable[x509.Certificate]) -> str:
    return "".join(one.public_bytes(Encoding.PEM).decode("ascii") for one in certificates)


def sha256_of(certificate: x509.Certificate) -> str:
    """Of its DER, in lower-case hexadecimal; of a root it is what joining machines pin."""
    return certificate.fingerprint(SHA256()).hex()


def micros_of(moment: datetime) -> Micros:
    """Of a certificate's beginning or end, which are whole seconds."""
    return Micros(int(moment.timestamp()) * SECOND)


def pin_of(root: x509.Certificate) -> str:
    """As the join line has it: `sha256:…`."""
    return f"sha256:{sha256_of(root)}"


# ---------------------------------------------------------------- the parts


def _leaf(
    issuer: Issuer,
    public_key: AllowedKey,
    subject: x509.Name,
    san: tuple[x509.SubjectAlternativeName, bool],
    usages: Sequence[x509.ObjectIdentifier],
    now: Micros,
    life: timedelta,
    serial: int,
) -> Issued:
    if not is_allowed(public_key):
        raise ValueError(f"a certificate is for a key of {POLICY}")
    names, critical = san
    certificate = (
        _below(issuer.certificate, public_key, subject, now, life)
        .serial_number(serial)
        .add_extension(names, critical=critical)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(issuer.key, _hash(issuer.key))
    )
    return Issued(
        certificate,
        serial_text(serial),
        pem_of((certificate, issuer.certificate, *issuer.chain[:-1])),
        micros_of(certificate.not_valid_before_utc),
        micros_of(certificate.not_valid_after_utc),
        key_sha256(public_key),
    )


def _below(
    above: x509.Certificate, public: AllowedKey, subject: x509.Name, now: Micros, life: timedelta
) -> x509.CertificateBuilder:
    start = _moment(now)
    if not above.not_valid_before_utc <= start < above.not_valid_after_utc:
        raise IssuerUnusable(
            f"the certificate of {above.subject.rfc4514_string()} is good from {above.not_valid_before_utc:%Y-%m-%d} "
            f"to {above.not_valid_after_utc:%Y-%m-%d}, and not now: `bcmetal ca rollover`"
        )
    ski = above.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(above.subject)
        .public_key(public)
        .not_valid_before(max(start - BACKDATED, above.not_valid_before_utc))
        .not_valid_after(min(start + life, above.not_valid_after_utc))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ski), critical=False)
    )


def _subject(name: str, kind: IssuerKind | None, public: AllowedKey) -> x509.Name:
    """Told from every other by the first digits of its key's digest: an old issuer and its successor have other names."""
    unit = [] if kind is None else [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit_of(kind))]
    common = f"{name[:32]} {kind or 'root'} {key_sha256(public)[:8]}"
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, name),
            *unit,
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _only(name: x509.Name, oid: x509.ObjectIdentifier) -> str | None:
    found = name.get_attributes_for_oid(oid)
    return str(found[0].value) if len(found) == 1 else None


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _hash(key: IssuerKey) -> SHA256 | SHA384 | None:
    if isinstance(key, Ed25519PrivateKey):
        return None
    return SHA384() if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP384R1) else SHA256()


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _moment(now: Micros) -> datetime:
    return datetime.fromtimestamp(now // SECOND, UTC)
