"""Issuers' keys: sealed for one certificate, opened after a restart, and beside no other certificate."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import SecretStr
from sqlalchemy import Connection

from bcmetal.errors import InvalidInput, VaultError
from bcmetal.join.ca import Issuer, IssuerKind, pem_of, sha256_of
from bcmetal.join.issuer_keys import open_issuers, row_of, seal_issuer
from bcmetal.join.peers import identity_of, issuer_of
from bcmetal.join.root_file import export_root, read_root
from bcmetal.store import issuers, sealed
from bcmetal.store.issuers import CURRENT, NEXT, RETIRED, CaRows
from bcmetal.vault import Vault, VaultKey
from join.authority import NOW, TRUST, Site, a_site, later
from store.samples import Db

Rewrite = Callable[[CaRows], CaRows]


@pytest.fixture(scope="module")
def site() -> Site:
    return a_site()


@pytest.fixture(scope="module")
def key() -> VaultKey:
    return VaultKey(os.urandom(32))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Db]:
    with Db(f"sqlite:///{tmp_path / 'db'}") as opened:
        yield opened


def keep(c: Connection, site: Site, vault: Vault, state: str = CURRENT) -> None:
    issuers.add_root(c, sha256_of(site.root.certificate), pem_of([site.root.certificate]), NOW)
    for one in site.issuers.values():
        assert issuers.add(c, row_of(one, state, "sealed", NOW, "tests"))
        sealed.put(c, [seal_issuer(vault, one)])


def test_issuers_open_after_a_restart(site: Site, key: VaultKey, db: Db, tmp_path: Path) -> None:
    db.write(keep, site, Vault([key]))
    with Db(f"sqlite:///{tmp_path / 'db'}") as again:
        opened = open_issuers(again.read(issuers.rows), Vault([key]))
    assert set(opened.issuers) == set(IssuerKind)
    assert opened.roots == (site.root.certificate,)
    leaf = Site(site.root, dict(opened.issuers)).node().certificate
    assert identity_of(leaf, TRUST).kind is IssuerKind.NODE
    signer = issuer_of(leaf, opened.trusted.values())
    assert signer is not None
    assert sha256_of(signer) == site.issuers[IssuerKind.NODE].issuer_id


def test_another_vault_opens_none(site: Site, key: VaultKey, db: Db) -> None:
    db.write(keep, site, Vault([key]))
    with pytest.raises(VaultError, match="another vault key"):
        open_issuers(db.read(issuers.rows), Vault([VaultKey(os.urandom(32))]))


def swap_keys(rows: CaRows) -> CaRows:
    first, second, third = rows.keys
    moved = replace(first, owner_id=second.owner_id), replace(second, owner_id=first.owner_id), third
    return replace(rows, keys=moved)


def swap_certificates(rows: CaRows) -> CaRows:
    node = next(row for row in rows.issuers if row.kind == "node")
    return replace(
        rows,
        issuers=tuple(
            replace(row, certificate=node.certificate) if row.kind == "node-tenant" else row for row in rows.issuers
        ),
    )


def lose_keys(rows: CaRows) -> CaRows:
    return replace(rows, keys=())


@pytest.mark.parametrize("rewrite", [swap_keys, swap_certificates, lose_keys], ids=lambda fn: fn.__name__)
def test_a_row_that_was_moved_or_changed_opens_nothing(site: Site, key: VaultKey, db: Db, rewrite: Rewrite) -> None:
    db.write(keep, site, Vault([key]))
    with pytest.raises(VaultError):
        open_issuers(rewrite(db.read(issuers.rows)), Vault([key]))


def test_an_issuer_below_a_root_that_was_removed_neither_signs_nor_is_trusted(
    site: Site, key: VaultKey, db: Db
) -> None:
    db.write(keep, site, Vault([key]))
    db.write(issuers.remove_root, sha256_of(site.root.certificate), NOW)
    opened = open_issuers(db.read(issuers.rows), Vault([key]))
    assert not opened.issuers
    assert not opened.trusted
    assert opened.roots == ()


def test_next_and_retired_issuers_neither_sign_nor_are_trusted(site: Site, key: VaultKey, db: Db) -> None:
    for state in (NEXT, RETIRED):
        db.write(keep, a_site() if state == RETIRED else site, Vault([key]), state)
    opened = open_issuers(db.read(issuers.rows), Vault([key]))
    assert not opened.issuers
    assert not opened.trusted
    assert len(opened.roots) == 2, "nodes learn the next root already"


def test_a_rollover_loses_no_leaf(site: Site, key: VaultKey, db: Db) -> None:
    vault = Vault([key])
    db.write(keep, site, vault)
    before = site.node()
    new = a_site(later(3600), site.root)

    def roll(c: Connection) -> None:
        for kind in IssuerKind:
            issuers.supersede(c, kind)
        keep(c, new, vault)

    db.write(roll)
    opened = open_issuers(db.read(issuers.rows), vault)
    signer = issuer_of(before.certificate, opened.trusted.values())
    assert signer is not None
    assert sha256_of(signer) == site.issuers[IssuerKind.NODE].issuer_id
    assert opened.issuers[IssuerKind.NODE].issuer_id == new.issuers[IssuerKind.NODE].issuer_id
    assert issuer_of(new.node(now=later(3600)).certificate, opened.trusted.values()) is not None
    db.write(issuers.retire, sha256_of(signer))
    assert issuer_of(before.certificate, open_issuers(db.read(issuers.rows), vault).trusted.values()) is None


# ---------------------------------------------------------------- keys that lie elsewhere


def pem_key(issuer: Issuer) -> bytes:
    return issuer.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def rows_by_file(site: Site, refs: dict[IssuerKind, str]) -> CaRows:
    found = tuple(row_of(site.issuers[kind], CURRENT, ref, NOW, "tests") for kind, ref in refs.items())
    root = issuers.RootRow(sha256_of(site.root.certificate), pem_of([site.root.certificate]), NOW)
    return CaRows(found, (root,), ())


def test_a_key_is_read_from_a_private_file_or_a_credential(
    site: Site, key: VaultKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    for kind in IssuerKind:
        (tmp_path / f"ca-{kind}").write_bytes(pem_key(site.issuers[kind]))
        (tmp_path / f"ca-{kind}").chmod(0o600)
    refs = {
        IssuerKind.NODE: f"file:{tmp_path / 'ca-node'}",
        IssuerKind.NODE_TENANT: "credential:ca-node-tenant",
        IssuerKind.SERVER: "credential:ca-server",
    }
    opened = open_issuers(rows_by_file(site, refs), Vault([key]))
    assert {kind: one.issuer_id for kind, one in opened.issuers.items()} == {
        kind: one.issuer_id for kind, one in site.issuers.items()
    }


@pytest.mark.parametrize(
    ("content", "mode", "fault"),
    [
        ("right", 0o640, "others can read"),
        ("another", 0o600, "another one's"),
        ("", 0o600, "no private key"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", 0o600, "does not open"),
        ("x" * 70_000, 0o600, "too long"),
        (None, 0o600, "cannot be read"),
    ],
)
def test_a_file_that_is_not_that_issuers_key_is_refused(
    site: Site, key: VaultKey, tmp_path: Path, content: str | None, mode: int, fault: str
) -> None:
    path = tmp_path / "node.key"
    known = {"right": pem_key(site.issuers[IssuerKind.NODE]), "another": pem_key(site.issuers[IssuerKind.SERVER])}
    if content is not None:
        path.write_bytes(known.get(content, content.encode()))
        path.chmod(mode)
    with pytest.raises(VaultError, match=fault):
        open_issuers(rows_by_file(site, {IssuerKind.NODE: f"file:{path}"}), Vault([key]))


# ---------------------------------------------------------------- the root's file


def test_the_root_opens_with_its_passphrase_alone(site: Site) -> None:
    passphrase = SecretStr(os.urandom(12).hex())
    text = export_root(site.root, passphrase)
    assert pem_key(Issuer(IssuerKind.NODE, site.root.certificate, (), site.root.key)) not in text.encode()
    opened = read_root(text, passphrase)
    assert opened.certificate == site.root.certificate
    assert opened.key.public_key() == site.root.key.public_key()
    assert export_root(site.root, passphrase) != text, "salt and IV are fresh each time"
    with pytest.raises(InvalidInput, match="another passphrase"):
        read_root(text, SecretStr(os.urandom(12).hex()))
    with pytest.raises(InvalidInput, match="no passphrase was given"):
        read_root(text, None)


def test_a_short_passphrase_is_refused(site: Site) -> None:
    with pytest.raises(InvalidInput, match="12 characters"):
        export_root(site.root, SecretStr(os.urandom(5).hex()))


def test_a_file_that_is_no_root_is_refused(site: Site) -> None:
    certificate = pem_of([site.root.certificate])
    own = pem_key(Issuer(IssuerKind.NODE, site.root.certificate, (), site.root.key)).decode()
    other = pem_key(site.issuers[IssuerKind.NODE]).decode()
    assert read_root(certificate + own, None).certificate == site.root.certificate
    assert read_root(own + certificate, None).certificate == site.root.certificate
    for text in ("", "x", certificate, own, certificate + other, certificate + certificate + own):
        with pytest.raises(InvalidInput):
            read_root(text, None)
    with pytest.raises(InvalidInput, match="not encrypted"):
        read_root(certificate + own, SecretStr(os.urandom(12).hex()))
