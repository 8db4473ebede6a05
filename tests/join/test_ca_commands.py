"""`bcmetal ca …` on the daemon's host: what it writes, what it keeps, and that the root's key is nowhere but in its file."""

from __future__ import annotations

import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import SecretStr

from bcmetal.clock import SystemClock
from bcmetal.install.local import credentials_beside
from bcmetal.join.ca import IssuerKind, pem_of
from bcmetal.join.issuer_keys import OpenIssuers, open_issuers
from bcmetal.join.peers import issuer_of
from bcmetal.join.root_file import read_root
from bcmetal.settings import load
from bcmetal.store import issuers, sealed
from bcmetal.vault import Vault, load_key
from cli.running import Ran, invoke
from join import given
from join.authority import Site
from store.samples import Db
from store.test_issuers import a_certificate


@dataclass
class Host:
    """A host where `bcmetal init` was run, and its operator's passphrase."""

    folder: Path
    safe: Path
    passphrase: SecretStr

    def run(self, *words: str, stdin: str | None = None) -> Ran:
        return invoke("ca", *words, "--config", str(self.folder / "bcmetal.toml"), stdin=stdin)

    def with_passphrase(self, *words: str) -> Ran:
        return self.run(*words, "--passphrase-file", "-", stdin=self.passphrase.get_secret_value() + "\n")

    def init(self, name: str = "root.pem", *words: str) -> Ran:
        return self.with_passphrase("init", "--root-out", str(self.safe / name), *words)

    def db(self) -> Db:
        return Db(load(self.folder / "bcmetal.toml").daemon.database)

    def opened(self) -> OpenIssuers:
        """As a daemon that starts now would."""
        config = self.folder / "bcmetal.toml"
        with credentials_beside(config), self.db() as db:
            return open_issuers(db.read(issuers.rows), Vault([load_key(load(config).daemon.vault_key)]))

    def states(self) -> dict[str, int]:
        with self.db() as db:
            rows = db.read(issuers.list)
        return {state: [row.state for row in rows].count(state) for state in {row.state for row in rows}}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    folder, safe = tmp_path / "etc", tmp_path / "safe"
    safe.mkdir()
    words = [
        "--bmc-net",
        "10.20.0.0/16",
        "--media-url",
        "http://10.20.0.5:8480",
        "--agent-url",
        "https://10.30.0.5:8445",
    ]
    made = invoke("init", "--site", "lab", *words, "--dir", str(folder))
    assert made.code == 0, made.err
    assert "bcmetal ca init --root-out FILE" in made.out
    return Host(folder, safe, SecretStr(secrets.token_urlsafe(18)))


def a_root(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


# ---------------------------------------------------------------- init


def test_init_writes_the_root_encrypted_and_keeps_three_issuers_sealed(host: Host) -> None:
    made = host.init()
    assert made.code == 0, made.err
    path = host.safe / "root.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    root = read_root(path.read_text(), host.passphrase)
    opened = host.opened()
    assert set(opened.issuers) == set(IssuerKind)
    assert opened.roots == (root.certificate,)
    assert {one.root for one in opened.issuers.values()} == {root.certificate}
    with host.db() as db:
        assert {row.key_ref for row in db.read(issuers.list)} == {"sealed"}
        assert len(db.read(sealed.every)) == 3


def test_init_tells_the_pin_and_the_join_line(host: Host) -> None:
    made = host.init()
    pin = "sha256:" + a_root(host.safe / "root.pem").fingerprint(hashes.SHA256()).hex()
    assert f"pin        {pin}" in made.out
    where = "--server https://10.30.0.5:8445 --node-server https://10.30.0.5:8444"
    assert f"join line  bcmetal-agent join {where} --ca {pin} --token-file FILE" in made.out


def test_the_roots_key_and_the_passphrase_are_nowhere_but_with_the_operator(host: Host) -> None:
    made = host.init()
    listed = host.run("list")
    key = read_root((host.safe / "root.pem").read_text(), host.passphrase).key
    der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    number = key.private_numbers().private_value  # type: ignore[union-attr]  # a root that we make is P-384
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).splitlines()[1]
    forms = (der, number.to_bytes(48), f"{number:x}".encode(), pem, host.passphrase.get_secret_value().encode())
    files = [path for path in (*host.folder.rglob("*"), *host.safe.rglob("*")) if path.is_file()]
    assert len(files) > 5
    for path in files:
        assert not any(form in path.read_bytes() for form in forms), path
    assert not any(form.decode("latin-1") in made.out + made.err + listed.out for form in forms)


def test_the_issuers_keys_are_nowhere_in_the_clear(host: Host) -> None:
    host.init()
    numbers = [one.key.private_numbers().private_value for one in host.opened().issuers.values()]  # type: ignore[union-attr]
    for path in host.folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"PRIVATE KEY" not in data or path.name == "tls-key"
            assert not any(number.to_bytes(32) in data for number in numbers), path


def test_a_second_init_changes_nothing_and_leaves_no_root_behind(host: Host) -> None:
    host.init()
    before = host.opened().roots
    again = host.init("second.pem")
    assert again.code == 1
    assert "bcmetal ca rollover" in again.err
    assert not (host.safe / "second.pem").exists()
    assert host.opened().roots == before


def test_a_root_is_never_written_over(host: Host) -> None:
    (host.safe / "root.pem").write_text("precious")
    refused = host.init()
    assert refused.code == 2
    assert (host.safe / "root.pem").read_text() == "precious"
    assert host.run("trust-bundle").code == 1


def test_a_root_that_cannot_be_written_installs_nothing(host: Host) -> None:
    refused = host.with_passphrase("init", "--root-out", str(host.safe / "missing" / "root.pem"))
    assert refused.code == 1
    assert host.states() == {}


def test_a_short_passphrase_or_a_wrong_name_installs_nothing(host: Host) -> None:
    short = host.run("init", "--root-out", str(host.safe / "r"), "--passphrase-file", "-", stdin="short\n")
    assert short.code == 2
    assert "12 characters" in short.err
    assert host.init("r", "--name", "a/b").code == 2
    assert not (host.safe / "r").exists()
    assert host.states() == {}


def test_init_asks_where_the_root_goes(host: Host) -> None:
    refused = host.run("init")
    assert refused.code == 2
    assert "--root-out" in refused.err


def test_a_passphrase_file_that_others_can_read_is_refused(host: Host) -> None:
    word = host.safe / "word"
    word.write_text(host.passphrase.get_secret_value())
    word.chmod(0o644)
    refused = host.run("init", "--root-out", str(host.safe / "r"), "--passphrase-file", str(word))
    assert refused.code == 2
    assert "others can read it" in refused.err


# ---------------------------------------------------------------- rollover below the same root


def roll(host: Host, name: str = "root.pem") -> Ran:
    return host.with_passphrase("rollover", "--root", str(host.safe / name))


def test_new_issuers_below_the_same_root_sign_at_once_and_no_leaf_is_lost(host: Host) -> None:
    host.init()
    before = host.opened()
    leaf = Site(None, dict(before.issuers)).node(now=SystemClock().now())  # type: ignore[arg-type]  # nobody signs issuers here
    rolled = roll(host)
    assert rolled.code == 0, rolled.err
    after = host.opened()
    assert not {one.issuer_id for one in after.issuers.values()} & {one.issuer_id for one in before.issuers.values()}
    assert after.roots == before.roots
    assert issuer_of(leaf.certificate, after.trusted.values()) == before.issuers[IssuerKind.NODE].certificate
    with host.db() as db:
        assert len(db.read(sealed.every)) == 3, "keys that sign no more are forgotten"


def test_an_old_issuer_is_retired_once_what_it_signed_has_ended(host: Host) -> None:
    host.init()
    old = host.opened().issuers[IssuerKind.NODE]
    assert host.run("retire", old.issuer_id).code == 1, "it signs"
    roll(host)
    now = SystemClock().now()
    with host.db() as db:
        db.write(a_certificate, issuer_id=old.issuer_id, issued_at=now, not_after_at=now + 3_600_000_000)
    held = host.run("retire", old.issuer_id[:12])
    assert held.code == 1
    assert "1 certificates below it are still good" in held.err
    assert old.issuer_id in host.opened().trusted
    assert host.run("retire", old.issuer_id[:12], "--force").code == 0
    assert old.issuer_id not in host.opened().trusted
    assert host.run("retire", old.issuer_id).code == 4


def test_another_root_or_another_passphrase_rolls_nothing_over(host: Host) -> None:
    host.init()
    before = host.states()
    wrong = host.run(
        "rollover",
        "--root",
        str(host.safe / "root.pem"),
        "--passphrase-file",
        "-",
        stdin=secrets.token_urlsafe(12) + "\n",
    )
    assert wrong.code == 2
    assert "another passphrase" in wrong.err
    stranger = given.make_all(host.safe / "own")
    (host.safe / "other.pem").write_text((stranger / "root.pem").read_text() + (stranger / "root.key").read_text())
    other = host.run("rollover", "--root", str(host.safe / "other.pem"))
    assert other.code == 1
    assert "not the root of the present issuers" in other.err
    assert host.states() == before


def test_nothing_is_rolled_over_before_init(host: Host) -> None:
    early = host.with_passphrase("rollover", "--new-root-out", str(host.safe / "r.pem"))
    assert early.code == 1
    assert "bcmetal ca init" in early.err
    assert not (host.safe / "r.pem").exists()


@pytest.mark.parametrize("words", [(), ("--promote", "--root", "x"), ("--early",), ("--promote", "--name", "x")])
def test_a_rollover_is_of_one_kind(host: Host, words: tuple[str, ...]) -> None:
    host.init()
    (host.folder / "x").write_text("")
    assert host.run("rollover", *(str(host.folder / "x") if word == "x" else word for word in words)).code == 2


# ---------------------------------------------------------------- another root


def test_a_new_root_takes_two_steps_and_both_are_trusted_until_the_old_one_retires(host: Host) -> None:
    host.init()
    old, new = host.safe / "root.pem", host.safe / "root-2.pem"
    before = host.opened()
    begun = host.with_passphrase("rollover", "--new-root-out", str(new))
    assert begun.code == 0, begun.err
    assert "--promote" in begun.out
    assert read_root(new.read_text(), host.passphrase).certificate == a_root(new)
    between = host.opened()
    assert between.roots == (a_root(new), a_root(old))
    assert between.issuers == before.issuers
    assert host.with_passphrase("rollover", "--new-root-out", str(host.safe / "third.pem")).code == 1
    assert not (host.safe / "third.pem").exists()
    assert host.run("retire", pin(new)).code == 1, "its issuers are next"
    ended = host.run("rollover", "--promote")
    assert ended.code == 0, ended.err
    assert pin(new) in ended.out
    after = host.opened()
    assert after.roots == (a_root(new), a_root(old))
    assert {one.root for one in after.issuers.values()} == {a_root(new)}
    assert len(after.trusted) == 6
    assert host.run("retire", pin(new)).code == 1, "its issuers sign"
    retired = host.run("retire", pin(old))
    assert retired.code == 0, retired.err
    assert host.opened().roots == (a_root(new),)
    assert len(host.opened().trusted) == 3
    assert host.run("trust-bundle").out == pem_of([a_root(new)])
    assert host.run("rollover", "--promote").code == 1


def pin(root: Path) -> str:
    return "sha256:" + a_root(root).fingerprint(hashes.SHA256()).hex()


def test_a_node_that_does_not_know_the_new_root_holds_the_change(host: Host) -> None:
    host.init()
    now = SystemClock().now()
    with host.db() as db:
        db.write(a_certificate, issuer_id="i", issued_at=now, not_after_at=now + 86_400_000_000, node_id="nd_offline")
    host.with_passphrase("rollover", "--new-root-out", str(host.safe / "root-2.pem"))
    held = host.run("rollover", "--promote")
    assert held.code == 1
    assert "nd_offline" in held.err
    assert host.states() == {"current": 3, "next": 3}
    assert host.run("rollover", "--promote", "--early").code == 0
    assert host.states() == {"current": 3, "previous": 3}


def test_the_next_issuers_can_be_given_up(host: Host) -> None:
    host.init()
    host.with_passphrase("rollover", "--new-root-out", str(host.safe / "root-2.pem"))
    with host.db() as db:
        waiting = [row.issuer_id for row in db.read(issuers.list) if row.state == "next"]
    for issuer_id in waiting:
        assert host.run("retire", issuer_id).code == 0
    assert host.run("retire", pin(host.safe / "root-2.pem")).code == 0
    assert host.opened().roots == (a_root(host.safe / "root.pem"),)
    assert roll(host).code == 0


def test_a_name_that_is_too_short_unknown_or_nobodys_retires_nothing(host: Host) -> None:
    host.init()
    assert host.run("retire", "abc").code == 2
    assert host.run("retire", "0" * 64).code == 4
    assert host.run("retire", "%%%%%%%%").code == 4
    assert host.states() == {"current": 3}


# ---------------------------------------------------------------- one's own


@pytest.mark.parametrize("keys", ["sealed", "file", "credential"])
def test_an_operators_own_issuers_are_taken_with_their_keys_where_they_shall_stay(host: Host, keys: str) -> None:
    own = given.make_all(host.safe / "own")
    if keys == "credential":
        for kind in IssuerKind:
            os.rename(own / f"{kind}.key", host.folder / "credentials" / f"ca-{kind}")
    made = host.run("init", "--from-files", str(own), "--keys", keys)
    assert made.code == 0, made.err
    assert pin(own / "root.pem") in made.out
    assert {kind: pem_of([one.certificate]) for kind, one in host.opened().issuers.items()} == {
        kind: (own / f"{kind}.pem").read_text() for kind in IssuerKind
    }
    with host.db() as db:
        assert len(db.read(sealed.every)) == (3 if keys == "sealed" else 0)
        refs = {row.key_ref or "" for row in db.read(issuers.list)}
    assert {ref.partition(":")[0] for ref in refs} == {keys}
    second = given.make_all(host.safe / "second")
    assert host.run("rollover", "--from-files", str(second)).code == 0
    assert host.states() == {"current": 3, "next": 3}


def test_faults_of_ones_own_issuers_are_told_together(host: Host) -> None:
    own = given.make_all(host.safe / "own")
    (own / "node.key").chmod(0o644)
    refused = host.run("init", "--from-files", str(own))
    assert refused.code == 1
    assert "others can read the key" in refused.err
    (own / "node.key").chmod(0o600)
    given.make(own, "server", given.NODES, subject="/CN=x", signer="root")
    (own / "node-tenant.key").write_text((own / "node.key").read_text())
    refused = host.run("init", "--from-files", str(own))
    assert refused.code == 2
    assert "server.certificate" in refused.err
    assert "node-tenant.key" in refused.err
    (own / "node.pem").unlink()
    assert host.run("init", "--from-files", str(own)).code == 1
    assert host.states() == {}
    assert host.run("init", "--from-files", str(own), "--name", "x").code == 2


# ---------------------------------------------------------------- what is shown


def test_list_shows_issuers_roots_and_until_when_they_are_good(host: Host) -> None:
    assert host.run("list").code == 0
    host.init()
    shown = host.run("list").out
    for kind in IssuerKind:
        assert re.search(rf"issuer {kind}\s+current\s+[0-9a-f]{{64}}\s+\d{{4}}-\d\d-\d\dT.*sealed", shown)
    assert re.search(rf"root\s+current\s+{pin(host.safe / 'root.pem').removeprefix('sha256:')}\s+\d{{4}}-", shown)


def test_the_trust_bundle_is_written_where_it_shall_be(host: Host) -> None:
    host.init()
    out = host.safe / "bundle.pem"
    assert host.run("trust-bundle", "--out", str(out)).code == 0
    assert a_root(out) == a_root(host.safe / "root.pem")
    assert host.run("trust-bundle", "--out", str(out)).code == 1, "not written over"


def test_every_change_is_audited(host: Host) -> None:
    host.init()
    roll(host)
    host.with_passphrase("rollover", "--new-root-out", str(host.safe / "root-2.pem"))
    host.run("rollover", "--promote")
    host.run("retire", pin(host.safe / "root.pem"))
    with host.db() as db:
        actions = [row[0] for row in db.rows("select action from audit where action like 'ca.%' order by audit_id")]
    assert actions == ["ca.init", "ca.rollover", "ca.rollover", "ca.promote", "ca.retire"]
