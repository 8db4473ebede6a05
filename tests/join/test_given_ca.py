"""An operator's own issuers: taken when they can do their work safely, and otherwise told every reason at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from pydantic import SecretStr

from bcmetal.clock import SystemClock
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import InvalidInput
from bcmetal.join.ca import NO_HOSTS, Issuer, IssuerKind, pem_of
from bcmetal.join.given_ca import load_issuer
from bcmetal.join.peers import identity_of
from join import given
from join.authority import TRUST, Site, a_key


def soon() -> Micros:
    """Past the moment at which the fixtures were made; taken when it is asked, since a whole test run may lie before it."""
    return Micros(SystemClock().now() + 60 * SECOND)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return given.make_all(tmp_path_factory.mktemp("own"))


def load(
    folder: Path,
    kind: IssuerKind,
    *,
    certificate: str = "",
    key: str = "",
    root: str = "root",
    now: Micros | None = None,
) -> Issuer:
    return load_issuer(
        kind,
        (folder / f"{certificate or kind}.pem").read_text(),
        SecretStr((folder / f"{key or certificate or kind}.key").read_text()),
        (folder / f"{root}.pem").read_text(),
        soon() if now is None else now,
    )


def faults(folder: Path, kind: IssuerKind = IssuerKind.NODE, **how: str) -> str:
    with pytest.raises(InvalidInput) as refused:
        load(folder, kind, **how)  # type: ignore[arg-type]  # names of files alone
    return str(refused.value)


def test_issuers_by_openssl_sign_leaves_that_are_taken(folder: Path, tmp_path: Path) -> None:
    issuers = {kind: load(folder, kind) for kind in IssuerKind}
    site = Site(None, issuers)  # type: ignore[arg-type]  # nobody signs issuers here
    leaf = site.node(IssuerKind.NODE_TENANT, now=soon())
    assert identity_of(leaf.certificate, TRUST).kind is IssuerKind.NODE_TENANT
    for name, text in (("leaf", pem_of([leaf.certificate])), ("chain", leaf.chain)):
        (tmp_path / f"{name}.pem").write_text(text)
    given.openssl(
        "verify",
        "-CAfile",
        str(folder / "root.pem"),
        "-untrusted",
        str(tmp_path / "chain.pem"),
        str(tmp_path / "leaf.pem"),
    )


@pytest.mark.parametrize("key", [("rsa:2048",), ("ed25519",)], ids=lambda key: key[0])
def test_an_issuer_with_another_kind_of_key_signs_too(folder: Path, key: tuple[str, ...]) -> None:
    name = f"by-{key[0][:3]}"
    given.make(folder, name, given.NODES, subject="/OU=bcmetal node/CN=x", signer="root", key=key)
    issuer = load(folder, IssuerKind.NODE, certificate=name)
    leaf = Site(None, {IssuerKind.NODE: issuer}).node(now=soon()).certificate  # type: ignore[arg-type]
    leaf.verify_directly_issued_by(issuer.certificate)


def test_the_constraint_that_the_documentation_recommends_is_ours(folder: Path) -> None:
    given.make(folder, "constrained", given.CONSTRAINED, subject="/OU=bcmetal node/CN=x", signer="root")
    issuer = load(folder, IssuerKind.NODE, certificate="constrained")
    found = issuer.certificate.extensions.get_extension_for_class(x509.NameConstraints)
    assert found.critical
    assert found.value == NO_HOSTS


def test_an_issuer_below_an_intermediate_brings_its_chain(folder: Path) -> None:
    given.make(folder, "between", given.ROOT, subject="/CN=between", signer="root")
    given.make(folder, "deep", given.NODES, subject="/OU=bcmetal node/CN=deep", signer="between")
    assert "did not sign" in faults(folder, certificate="deep")
    (folder / "deep.pem").write_text((folder / "deep.pem").read_text() + (folder / "between.pem").read_text())
    issuer = load(folder, IssuerKind.NODE, certificate="deep")
    assert [one.subject.rfc4514_string() for one in issuer.chain] == ["CN=between", "CN=root,O=Example"]
    leaf = Site(None, {IssuerKind.NODE: issuer}).node(now=soon())  # type: ignore[arg-type]
    assert leaf.chain.count("BEGIN CERTIFICATE") == 3, "the leaf, its issuer, what stands between; not the root"


@pytest.mark.parametrize(
    ("extensions", "subject", "fault"),
    [
        (
            "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash\n",
            "node",
            "CA:TRUE",
        ),
        (
            "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash\n",
            "node",
            "pathlen:0",
        ),
        (given.NODES.replace("pathlen:0", "pathlen:1"), "node", "pathlen:0"),
        (given.NODES.replace("keyCertSign,", ""), "node", "keyCertSign"),
        (
            given.NODES.replace("subjectKeyIdentifier=hash", "subjectKeyIdentifier=none"),
            "node",
            "subject key identifier",
        ),
        (given.SERVERS, "node", "forbids what it is to issue"),
        (given.NODES, "node-tenant", "OU=bcmetal node"),
        (given.NODES, "node/OU=bcmetal server", "no other OU"),
    ],
)
def test_an_issuer_that_could_not_be_told_or_held_is_refused(
    folder: Path, tmp_path: Path, extensions: str, subject: str, fault: str
) -> None:
    for name in ("root.pem", "root.key"):
        (tmp_path / name).write_text((folder / name).read_text())
    given.make(tmp_path, "bad", extensions, subject=f"/OU=bcmetal {subject}/CN=x", signer="root")
    assert fault in faults(tmp_path, certificate="bad")


def test_the_servers_issuer_is_for_listeners_alone(folder: Path) -> None:
    subject = "/OU=bcmetal server/CN=x"
    given.make(folder, "free", given.ISSUER, subject=subject, signer="root")
    given.make(folder, "both", given.NODES, subject=subject, signer="root")
    assert "limited to extended key usage serverAuth" in faults(folder, IssuerKind.SERVER, certificate="free")
    assert "must not allow" in faults(folder, IssuerKind.SERVER, certificate="both")


def test_every_fault_is_told_at_once(folder: Path) -> None:
    given.make(folder, "worst", "basicConstraints=CA:FALSE\n", subject="/CN=x", signer="root")
    told = faults(folder, certificate="worst", key="server")
    for part in ("CA:TRUE", "keyCertSign", "OU=bcmetal node", "node.key: is not the key"):
        assert part in told


def test_an_issuer_of_another_root_is_refused(folder: Path) -> None:
    given.make(folder, "other", given.ROOT, subject="/O=Example/CN=root")
    assert "did not sign" in faults(folder, root="other")
    assert "is no root" in faults(folder, root="server")


def test_a_root_that_allows_no_issuer_below_it_is_refused(tmp_path: Path) -> None:
    given.make(tmp_path, "root", given.ISSUER, subject="/CN=root")
    given.make(tmp_path, "node", given.NODES, subject="/OU=bcmetal node/CN=x", signer="root")
    assert "pathlen allows no such chain" in faults(tmp_path)


@pytest.mark.parametrize(("seconds", "fault"), [(-86400, "not good before"), (400 * 86400, "ended on")])
def test_an_issuer_that_is_not_good_now_is_refused(folder: Path, seconds: int, fault: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load(folder, IssuerKind.NODE, now=Micros(soon() + seconds * SECOND))
    told = [one for one in refused.value.faults if fault in one.message]
    assert {one.path for one in told} == {"node.certificate", "root"}


def test_a_weak_or_an_encrypted_key_is_refused(folder: Path) -> None:
    given.make(folder, "weak", given.NODES, subject="/OU=bcmetal node/CN=x", signer="root", key=("rsa:1024",))
    assert "P-256" in faults(folder, certificate="weak")
    word = folder / "word"
    word.write_text(f"{a_key().private_numbers().private_value:x}"[:20])
    locked = str(folder / "locked.key")
    given.openssl("pkcs8", "-topk8", "-in", str(folder / "node.key"), "-passout", f"file:{word}", "-out", locked)
    assert "encrypted" in faults(folder, key="locked")


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_that_is_no_certificate_is_refused(folder: Path, tmp_path: Path, text: str) -> None:
    for name in ("root.pem", "node.key"):
        (tmp_path / name).write_text((folder / name).read_text())
    (tmp_path / "node.pem").write_text(text)
    assert "node.certificate: holds no certificate" in faults(tmp_path)
