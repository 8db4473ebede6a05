"""`bcmetal init`, `key` and `credential`: files, their modes, and what is never shown."""

from __future__ import annotations

import hashlib
import os
import secrets
import ssl
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bcmetal.client import load_profile, read_private
from bcmetal.install.local import credentials_beside
from bcmetal.settings import load
from cli.running import Ran, invoke


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "etc"


def init(folder: Path, *more: str) -> Ran:
    words = ["init", "--site", "lab", "--bmc-net", "10.20.0.0/16", "--media-url", "http://10.20.0.5:8480"]
    return invoke(*words, "--dir", str(folder), *more)


def test_init_writes_a_configuration_that_the_daemon_takes(folder: Path) -> None:
    made = init(folder)
    assert made.code == 0, made.err
    settings = load(folder / "bcmetal.toml")
    assert set(settings.sites) == {"lab"}
    assert settings.networks["bmc"].media_url == "http://10.20.0.5:8480"


def test_init_leaves_a_profile_with_which_the_client_knows_the_daemon(folder: Path) -> None:
    init(folder)
    profile = load_profile(folder / "client.toml")
    assert profile.address == "https://127.0.0.1:8443"
    der = ssl.PEM_cert_to_DER_cert((folder / "api.crt").read_text())
    assert profile.fingerprint == hashlib.sha256(der).hexdigest()
    assert read_private(profile.key_file).get_secret_value().startswith("bcmk_")


def test_every_secret_of_init_is_private_and_none_is_shown(folder: Path) -> None:
    made = init(folder)
    private = [folder / "admin.key", folder / "credentials" / "vault-key", folder / "credentials" / "tls-key"]
    for path in private:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert path.read_text().strip() not in made.out + made.err
    assert stat.S_IMODE((folder / "credentials").stat().st_mode) == 0o700
    assert tomllib.loads((folder / "bcmetal.toml").read_text())["daemon"]["vault_key"] == "credential:vault-key"


def test_a_second_init_writes_over_nothing(folder: Path) -> None:
    init(folder)
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and "state" not in p.parts}
    again = init(folder)
    assert again.code == 2
    assert "not written over" in again.err
    assert {p: p.read_bytes() for p in before} == before


def test_an_init_that_fails_half_way_leaves_nothing_that_blocks_the_next(folder: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    failed = init(folder, "--state-dir", str(blocked))
    assert failed.code != 0
    assert init(folder).code == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ("--bmc-net", "10.20.0.1/16"),
        ("--media-url", "ftp://10.20.0.5"),
        ("--media-url", "http://10.20.0.5/path"),
        ("--site", "Fra 1"),
    ],
)
def test_wrong_answers_are_usage_errors_and_leave_nothing(folder: Path, wrong: tuple[str, str]) -> None:
    words = ["init", "--site", "lab", "--bmc-net", "10.20.0.0/16", "--media-url", "http://10.20.0.5:8480"]
    refused = invoke(*words, "--dir", str(folder), *wrong)
    assert refused.code == 2
    assert not folder.exists()


def test_a_key_is_shown_once_and_listed_without_it(folder: Path) -> None:
    init(folder)
    config = ("--config", str(folder / "bcmetal.toml"))
    made = invoke("key", "create", "ci", "--expires", "90d", *config)
    assert made.code == 0, made.err
    secret = made.out.strip()
    listed = invoke("key", "list", *config)
    assert "key:ci" in listed.out
    assert "key:admin" in listed.out
    assert secret not in listed.out + listed.err + made.err


def test_two_live_keys_of_one_name_are_refused_until_the_first_is_revoked(folder: Path) -> None:
    init(folder)
    config = ("--config", str(folder / "bcmetal.toml"))
    assert invoke("key", "create", "ci", *config).code == 0
    second = invoke("key", "create", "ci", *config)
    assert second.code == 2
    assert "revoke it first" in second.err
    assert invoke("key", "revoke", "ci", *config).code == 0
    assert invoke("key", "revoke", "ci", *config).code == 4
    assert invoke("key", "create", "ci", *config).code == 0


def test_a_sealed_credential_is_nowhere_in_the_clear(folder: Path) -> None:
    init(folder)
    config = ("--config", str(folder / "bcmetal.toml"))
    secret = secrets.token_urlsafe(24)
    answer = invoke("credential", "set", "fleet", "--file", "-", *config, stdin=secret + "\n")
    assert answer.code == 0, answer.err
    listed = invoke("credential", "list", *config)
    assert "fleet  sealed" in listed.out
    assert secret not in answer.out + answer.err + listed.out + listed.err
    assert not [p for p in folder.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]


def test_a_credential_that_the_configuration_does_not_name_is_told(folder: Path) -> None:
    init(folder)
    config = ("--config", str(folder / "bcmetal.toml"))
    answer = invoke("credential", "set", "flet", "--file", "-", *config, stdin="x" * 12 + "\n")
    assert answer.code == 0
    assert "no credential with `sealed:flet`" in answer.err
    assert invoke("credential", "remove", "flet", *config).code == 0
    assert invoke("credential", "remove", "flet", *config).code == 4


def test_a_secret_file_that_others_can_read_is_refused(folder: Path, tmp_path: Path) -> None:
    init(folder)
    file = tmp_path / "secret"
    file.write_text(secrets.token_urlsafe(12))
    file.chmod(0o644)
    refused = invoke("credential", "set", "fleet", "--file", str(file), "--config", str(folder / "bcmetal.toml"))
    assert refused.code == 2
    assert "others can read it" in refused.err


def test_credentials_outside_of_systemd_lie_beside_the_configuration(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with credentials_beside(folder / "bcmetal.toml"):
        assert os.environ["CREDENTIALS_DIRECTORY"] == str(folder / "credentials")
    assert "CREDENTIALS_DIRECTORY" not in os.environ
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "given-by-systemd")
    with credentials_beside(folder / "bcmetal.toml"):
        assert os.environ["CREDENTIALS_DIRECTORY"] == "given-by-systemd"


def test_the_top_folder_is_no_distribution_and_names_the_three_that_are() -> None:
    top = Path(__file__).parents[2]
    system = tomllib.loads((top / "pyproject.toml").read_text())["build-system"]
    asked = f"import {system['build-backend']} as backend; backend.get_requires_for_build_wheel({{}})"
    path = {**os.environ, "PYTHONPATH": str(top / system["backend-path"][0])}
    ended = subprocess.run([sys.executable, "-c", asked], env=path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    named = ended.stderr.partition("pip install ")[2].split()
    assert sorted(top / part / "pyproject.toml" for part in named) == sorted(top.glob("*/pyproject.toml"))
