"""The vault: what was sealed for one row and one address opens there alone."""

from __future__ import annotations

import copy
import os
import pickle
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from bcmetal.errors import StartRefused, VaultError
from bcmetal.store.values import Sealed
from bcmetal.vault import Vault, VaultKey, bmc_binding, load_key, new_key

HOST = bmc_binding("192.0.2.7", "fingerprint", "ab" * 32)


@pytest.fixture
def secret() -> SecretStr:
    return SecretStr(os.urandom(12).hex())


@pytest.fixture
def vault() -> Vault:
    return Vault([VaultKey(os.urandom(32))])


@pytest.fixture
def row(vault: Vault, secret: SecretStr) -> Sealed:
    return vault.seal("bmc", "bmc", "bm_1", "password", secret, bind=HOST)


def test_what_was_sealed_opens(vault: Vault, row: Sealed, secret: SecretStr) -> None:
    assert vault.open(row, "bmc", HOST).get_secret_value() == secret.get_secret_value()
    assert (row.owner_kind, row.owner_id, row.field, row.slot) == ("bmc", "bm_1", "password", "current")


def test_a_secret_is_sealed_differently_each_time(vault: Vault, row: Sealed, secret: SecretStr) -> None:
    again = vault.seal("bmc", "bmc", "bm_1", "password", secret, bind=HOST)
    assert len(row.nonce) == 12
    assert again.nonce != row.nonce
    assert again.blob != row.blob
    assert secret.get_secret_value().encode() not in row.blob


@pytest.mark.parametrize(
    "moved",
    [
        {"owner_id": "bm_2"},
        {"owner_kind": "credential"},
        {"field": "username"},
        {"blob": b""},
        {"nonce": bytes(12)},
        {"nonce": b""},
    ],
    ids=lambda moved: next(iter(moved)),
)
def test_a_row_that_was_moved_or_changed_does_not_open(vault: Vault, row: Sealed, moved: dict[str, object]) -> None:
    with pytest.raises(VaultError):
        vault.open(replace(row, **moved), "bmc", HOST)  # type: ignore[arg-type]  # one field each, of its own type


@pytest.mark.parametrize(
    "binding",
    [
        bmc_binding("192.0.2.8", "fingerprint", "ab" * 32),
        bmc_binding("192.0.2.7", "fingerprint", "cd" * 32),
        bmc_binding("192.0.2.7", "off", "ab" * 32),
        "",
    ],
)
def test_a_password_does_not_open_for_another_address_or_another_trust(
    vault: Vault, row: Sealed, secret: SecretStr, binding: str
) -> None:
    with pytest.raises(VaultError) as refused:
        vault.open(row, "bmc", binding)
    assert secret.get_secret_value() not in str(refused.value)


def test_another_purpose_does_not_open_it(vault: Vault, row: Sealed) -> None:
    with pytest.raises(VaultError):
        vault.open(row, "operation", HOST)


def test_parts_that_join_to_the_same_text_bind_differently(vault: Vault, secret: SecretStr) -> None:
    row = vault.seal("bmc", "bmc", "bm_1", "pass", secret, bind="word")
    with pytest.raises(VaultError):
        vault.open(replace(row, field="passw"), "bmc", "ord")
    assert bmc_binding("a", "bc", "") != bmc_binding("ab", "c", "")


def test_a_candidate_opens_once_it_is_the_current_one(vault: Vault, secret: SecretStr) -> None:
    row = vault.seal("bmc", "bmc", "bm_1", "password", secret, bind=HOST, slot="candidate")
    assert vault.open(replace(row, slot="current"), "bmc", HOST) == secret


def test_the_wrong_key_opens_nothing(row: Sealed) -> None:
    with pytest.raises(VaultError, match="another vault key"):
        Vault([VaultKey(os.urandom(32))]).open(row, "bmc", HOST)


def test_an_old_key_still_opens_and_the_first_one_seals(secret: SecretStr) -> None:
    old, new = VaultKey(os.urandom(32)), VaultKey(os.urandom(32))
    before = Vault([old]).seal("credential", "credential", "fleet", "password", secret)
    both = Vault([new, old])
    assert both.open(before, "credential") == secret
    assert both.seal("credential", "credential", "fleet", "password", secret).key_id == new.key_id
    with pytest.raises(VaultError):
        Vault([])


def test_a_digest_is_the_same_for_the_same_text_and_purpose_under_one_key(vault: Vault) -> None:
    assert vault.digest("input", "x") == vault.digest("input", "x")
    assert len({vault.digest("input", "x"), vault.digest("input", "y"), vault.digest("login", "x")}) == 3
    assert Vault([VaultKey(os.urandom(32))]).digest("input", "x") != vault.digest("input", "x")


def test_a_key_is_neither_shown_nor_copied() -> None:
    raw = os.urandom(32)
    key = VaultKey(raw)
    assert raw.hex() not in repr(key)
    assert raw.hex()[:16] != key.key_id
    with pytest.raises(TypeError):
        pickle.dumps(key)
    with pytest.raises(TypeError):
        copy.copy(key)
    with pytest.raises(VaultError):
        VaultKey(b"short")


# ---------------------------------------------------------------- keys from files


def test_a_new_key_is_its_owners_alone_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "vault.key"
    new_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key(f"file:{path}").key_id == load_key(f"file:{path}").key_id
    with pytest.raises(FileExistsError):
        new_key(path)
    new_key(tmp_path / "other")
    assert load_key(f"file:{tmp_path / 'other'}").key_id != load_key(f"file:{path}").key_id


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "vault.key"
    new_key(path)
    path.chmod(mode)
    with pytest.raises(StartRefused, match="chmod 600"):
        load_key(f"file:{path}")


def test_a_key_comes_from_systemds_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_key(tmp_path / "vault-key")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert load_key("credential:vault-key").key_id == load_key(f"file:{tmp_path / 'vault-key'}").key_id
    with pytest.raises(StartRefused, match="cannot be read"):
        load_key("credential:other")
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    with pytest.raises(StartRefused, match="LoadCredential"):
        load_key("credential:vault-key")


@pytest.mark.parametrize("spec", ["", "file:", "vault.key", "env:KEY", "credential:../vault-key"])
def test_a_key_that_is_named_in_another_way_is_refused(spec: str) -> None:
    with pytest.raises(StartRefused, match="file:PATH or credential:NAME"):
        load_key(spec)


@pytest.mark.parametrize("text", ["", "zz" * 32, "ab" * 31, "ab" * 33, "é" * 64])
def test_a_file_that_holds_no_key_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "vault.key"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(StartRefused, match="32 bytes in hexadecimal") as refused:
        load_key(f"file:{path}")
    assert not text or text not in str(refused.value)
