"""An operator's own issuers, made elsewhere: checked before anything relies on them, with every fault named at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID
from pydantic import SecretStr

from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import Fault, InvalidInput
from bcmetal.join.ca import NODE_KINDS, Issuer, IssuerKind, kind_of, unit_of
from bcmetal.join.peers import UNREADABLE
from bcmetal.join.public_keys import POLICY, is_allowed
from bcmetal.join.root_file import read_key

T = TypeVar("T", bound=x509.ExtensionType)

LONGEST_CHAIN: Final = 4  # certificates above an issuer


def load_issuer(kind: IssuerKind, certificate_pem: str, key_pem: SecretStr, root_pem: str, now: Micros) -> Issuer:
    """`certificate_pem`: the issuer first, then what stands between it and the root; `root_pem`: the root alone.

    The key is not encrypted: the vault seals it, or the file is private. Raises InvalidInput with every fault.
    """
    certificate, *between = _certificates(certificate_pem, f"{kind}.certificate")
    roots = _certificates(root_pem, "root")
    if len(roots) != 1:
        raise InvalidInput([Fault("root", "must hold one certificate")])
    chain = (*between, *roots)
    key = read_key(key_pem.get_secret_value(), None, f"{kind}.key")
    faults = [
        *(Fault(f"{kind}.certificate", fault) for fault in _faults_of_issuer(kind, certificate)),
        *(Fault(f"{kind}.certificate", fault) for fault in _faults_of_time(certificate, now)),
        *_faults_of_chain(kind, (certificate, *chain), now),
    ]
    if certificate.public_key() != key.public_key():
        faults.append(Fault(f"{kind}.key", "is not the key of this issuer's certificate"))
    if faults:
        raise InvalidInput(faults)
    return Issuer(kind, certificate, chain, key)


def _certificates(pem: str, path: str) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(pem.encode())
        for one in found:
            _ = one.extensions, one.public_key(), one.subject, one.issuer  # read on demand: here, where it can be told
    except UNREADABLE as error:
        raise InvalidInput([Fault(path, "holds no certificate in PEM form that can be read")]) from error
    return found


def _faults_of_issuer(kind: IssuerKind, certificate: x509.Certificate) -> Iterator[str]:
    yield from _faults_of_authority(certificate)
    constraints = _extension(certificate, x509.BasicConstraints)
    if constraints is not None and constraints.ca and constraints.path_length != 0:
        yield "must say pathlen:0: nothing below it may be an authority"
    if kind_of(certificate.subject) is not kind:
        yield f"its subject must hold OU={unit_of(kind)} and no other OU: peers tell issuers apart by it"
    if _extension(certificate, x509.SubjectKeyIdentifier) is None:
        yield "has no subject key identifier"
    if not is_allowed(certificate.public_key()):
        yield f"its key must be {POLICY}"
    usages = _extension(certificate, x509.ExtendedKeyUsage)
    needed = {ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if kind in NODE_KINDS else [])}
    if usages is not None and not needed <= set(usages):
        yield "its extended key usage forbids what it is to issue"
    if kind is IssuerKind.SERVER and usages is None:
        yield "must be limited to extended key usage serverAuth"
    elif kind is IssuerKind.SERVER and usages is not None and ExtendedKeyUsageOID.CLIENT_AUTH in usages:
        yield "must not allow extended key usage clientAuth: it is for listeners alone"


def _faults_of_authority(certificate: x509.Certificate) -> Iterator[str]:
    constraints = _extension(certificate, x509.BasicConstraints)
    if constraints is None or not constraints.ca:
        yield "is no authority (CA:TRUE)"
    usage = _extension(certificate, x509.KeyUsage)
    if usage is None or not usage.key_cert_sign:
        yield "may not sign certificates (key usage keyCertSign)"


def _faults_of_time(certificate: x509.Certificate, now: Micros) -> Iterator[str]:
    seconds = now / SECOND
    if seconds < certificate.not_valid_before_utc.timestamp():
        yield f"is not good before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    if seconds >= certificate.not_valid_after_utc.timestamp():
        yield f"ended on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"


def _faults_of_chain(kind: IssuerKind, chain: tuple[x509.Certificate, ...], now: Micros) -> Iterator[Fault]:
    *below, root = chain
    if len(below) > LONGEST_CHAIN:
        yield Fault(f"{kind}.certificate", f"has more than {LONGEST_CHAIN} certificates up to its root")
    for lower, upper in pairwise(chain):
        if not _signed(lower, upper):
            path = "root" if upper is root else f"{kind}.certificate"
            yield Fault(path, f"{upper.subject.rfc4514_string()} did not sign {lower.subject.rfc4514_string()}")
    for upper in chain[1:]:
        told = (*_faults_of_authority(upper), *_faults_of_time(upper, now))
        yield from (Fault(*_place(kind, upper, root, fault)) for fault in told)
    if not _signed(root, root):
        yield Fault("root", "is no root: it is not signed by its own key")
    for depth, upper in enumerate(chain[1:]):
        constraints = _extension(upper, x509.BasicConstraints)
        if constraints is not None and constraints.path_length is not None and constraints.path_length < depth + 1:
            yield Fault(*_place(kind, upper, root, "its pathlen allows no such chain below it"))


def _place(kind: IssuerKind, upper: x509.Certificate, root: x509.Certificate, fault: str) -> tuple[str, str]:
    """Whose file, and whose fault where several certificates are in it."""
    if upper is root:
        return "root", fault
    return f"{kind}.certificate", f"{upper.subject.rfc4514_string()} {fault}"


def _signed(lower: x509.Certificate, upper: x509.Certificate) -> bool:
    try:
        lower.verify_directly_issued_by(upper)
    except (InvalidSignature, *UNREADABLE):
        return False
    return True


def _extension(certificate: x509.Certificate, kind: type[T]) -> T | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
