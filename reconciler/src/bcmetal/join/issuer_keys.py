"""Issuers sealed for the store and opened from it, each key proven to be its certificate's."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import SecretStr

from bcmetal.decisions import Micros
from bcmetal.errors import InvalidInput, VaultError
from bcmetal.join.ca import Issuer, IssuerKind, micros_of, pem_of, sha256_of
from bcmetal.join.root_file import read_key
from bcmetal.settings import secret_path
from bcmetal.store.issuers import CURRENT, OWNER, PREVIOUS, RETIRED, SEALED, CaRows, IssuerRow
from bcmetal.store.values import Sealed
from bcmetal.vault import Vault

FIELD: Final = "key"
PEM_LIMIT: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class OpenIssuers:
    """`issuers` sign now; `trusted`, by their ids, are those whose leaves are taken; `roots` is the trust bundle, newest first."""

    issuers: Mapping[IssuerKind, Issuer]
    trusted: Mapping[str, x509.Certificate]
    roots: tuple[x509.Certificate, ...]


def seal_issuer(vault: Vault, issuer: Issuer) -> Sealed:
    """Bound to the issuer's id, which is its certificate's digest."""
    key = SecretStr(issuer.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii"))
    return vault.seal(OWNER, OWNER, issuer.issuer_id, FIELD, key)


def row_of(issuer: Issuer, state: str, key_ref: str, now: Micros, by: str) -> IssuerRow:
    return IssuerRow(
        issuer_id=issuer.issuer_id,
        kind=issuer.kind,
        state=state,
        certificate=pem_of([issuer.certificate]),
        chain=pem_of(issuer.chain),
        root_sha256=sha256_of(issuer.root),
        not_before_at=micros_of(issuer.certificate.not_valid_before_utc),
        not_after_at=micros_of(issuer.certificate.not_valid_after_utc),
        key_ref=key_ref,
        created_at=now,
        created_by=by,
    )


def open_issuers(rows: CaRows, vault: Vault) -> OpenIssuers:
    """Empty where there is no CA yet. Raises VaultError: a key does not open, or it is not its certificate's."""
    bundle = {row.sha256 for row in rows.roots}
    live = [row for row in rows.issuers if row.state != RETIRED and row.root_sha256 in bundle]
    issuers = {IssuerKind(row.kind): _open(row, rows.keys, vault) for row in live if row.state == CURRENT}
    trusted = {row.issuer_id: _certificate(row) for row in live if row.state in (CURRENT, PREVIOUS)}
    roots = tuple(x509.load_pem_x509_certificate(row.certificate.encode()) for row in rows.roots)
    return OpenIssuers(issuers, trusted, roots)


def _open(row: IssuerRow, keys: tuple[Sealed, ...], vault: Vault) -> Issuer:
    certificate = _certificate(row)
    text = _key_text(row, keys, vault)
    try:
        key = read_key(text.get_secret_value(), None, f"the issuer {row.kind}")
    except InvalidInput as error:
        raise VaultError(str(error)) from None
    if key.public_key() != certificate.public_key():
        raise VaultError(f"the key of the issuer {row.kind} ({row.issuer_id[:12]}) is another one's")
    return Issuer(IssuerKind(row.kind), certificate, tuple(x509.load_pem_x509_certificates(row.chain.encode())), key)


def _certificate(row: IssuerRow) -> x509.Certificate:
    certificate = x509.load_pem_x509_certificate(row.certificate.encode())
    if sha256_of(certificate) != row.issuer_id:
        raise VaultError(f"the certificate of the issuer {row.kind} ({row.issuer_id[:12]}) was changed in the database")
    return certificate


def _key_text(row: IssuerRow, keys: tuple[Sealed, ...], vault: Vault) -> SecretStr:
    if row.key_ref == SEALED:
        found = next((key for key in keys if key.owner_id == row.issuer_id and key.field == FIELD), None)
        if found is None:
            raise VaultError(
                f"the sealed key of the issuer {row.kind} ({row.issuer_id[:12]}) is missing: `bcmetal ca rollover` makes new ones"
            )
        return vault.open(found, OWNER)
    if row.key_ref is None:
        raise VaultError(
            f"the issuer {row.kind} ({row.issuer_id[:12]}) has no key: `bcmetal ca rollover` makes new ones"
        )
    return read_key_file(row.key_ref)


def read_key_file(place: str) -> SecretStr:
    """The whole file behind `file:PATH` or `credential:NAME`, which nobody else may read. Raises VaultError."""
    try:
        with secret_path(place).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(PEM_LIMIT + 1)
    except OSError as error:
        raise VaultError(f"the key at {place} cannot be read: {error.strerror}") from error
    if stat.S_ISREG(mode) and mode & 0o077:
        raise VaultError(f"others can read the key at {place}: `chmod 600` it first")
    if len(data) > PEM_LIMIT:
        raise VaultError(f"what lies at {place} is no key: it is too long")
    return SecretStr(data.decode("ascii", errors="replace"))
