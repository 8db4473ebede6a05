"""`bcmetal vault …`: the key is recovered from a file and a code, which is what rotations wait for; and a password is shown to root."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from pydantic import SecretStr
from sqlalchemy import select

from bcmetal.install.local import Admin, administer
from bcmetal.store import meta, nodes, sealed, tables
from bcmetal.store.values import NewBmc, NewNode
from bcmetal.vault import bmc_binding, load_key
from cli.running import invoke

T = TypeVar("T")
TRUST = ("fingerprint", "ab" * 32)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    words = ["init", "--site", "lab", "--bmc-net", "10.20.0.0/16", "--media-url", "http://10.20.0.5:8480"]
    assert invoke(*words, "--dir", str(tmp_path / "etc")).code == 0
    return tmp_path / "etc" / "bcmetal.toml"


def inside(config: Path, work: Callable[[Admin], Awaitable[T]]) -> T:
    return administer(config, work)


def enrolled(config: Path, password: SecretStr) -> None:
    async def work(admin: Admin) -> None:
        bmc_id = admin.new_id("bm")
        new = NewNode(
            admin.new_id("nd"), "t", "lab", "p", "r3u17", bmc_id, NewBmc("bmc", "redfish", "10.20.3.17", 443, *TRUST)
        )
        await admin.store.write(nodes.insert, new, admin.now)
        binding = bmc_binding("10.20.3.17", *TRUST)
        for field, secret in (("username", SecretStr("root")), ("password", password)):
            row = admin.vault.seal("bmc", "bmc", bmc_id, field, secret, bind=binding)
            await admin.store.write(sealed.put, [row])

    inside(config, work)


def exercised(config: Path) -> bool:
    async def work(admin: Admin) -> bool:
        return await admin.store.read(meta.get, meta.RECOVERY) == admin.vault.key_id

    return inside(config, work)


def audited(config: Path) -> list[tuple[str, str]]:
    async def work(admin: Admin) -> list[tuple[str, str]]:
        rows = await admin.store.read(lambda c: c.execute(select(tables.audit.c.action, tables.audit.c.doc)).all())
        return [(row.action, row.doc) for row in rows if row.action.startswith("vault.")]

    return inside(config, work)


def test_file_and_code_give_back_the_key_that_opens_all_that_is_sealed(config: Path, tmp_path: Path) -> None:
    enrolled(config, SecretStr(secrets.token_urlsafe(9)))
    file, out = tmp_path / "recovery.json", tmp_path / "key-again"
    told = invoke("vault", "recovery", "export", str(file), "--config", str(config))
    assert told.code == 0, told.err
    assert f"bcmetal vault recovery verify {file} --config {config}" in told.err
    code = told.out.strip()
    assert file.stat().st_mode & 0o077 == 0
    key = (config.parent / "credentials" / "vault-key").read_text().strip()
    assert key not in file.read_text()
    assert not exercised(config)
    wrong = "-".join(["0000"] * 8)
    refused = invoke("vault", "recovery", "verify", str(file), "--config", str(config), stdin=f"{wrong}\n")
    assert (refused.code, exercised(config)) == (1, False)
    written = code.lower().replace("-", " ")  # as a person types it
    told = invoke("vault", "recovery", "verify", str(file), "--config", str(config), stdin=f"{written}\n")
    assert told.code == 0, told.err
    assert "opened 2 sealed secrets" in told.out
    assert exercised(config)
    told = invoke("vault", "recovery", "restore", str(file), str(out), stdin=f"{code}\n")
    assert told.code == 0, told.err
    assert load_key(f"file:{out}").key_id == load_key(f"file:{config.parent / 'credentials' / 'vault-key'}").key_id
    assert [action for action, _ in audited(config)] == ["vault.recovery.export", "vault.recovery.verify"]


def test_the_file_of_another_key_exercises_nothing(config: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    file = tmp_path / "recovery.json"
    words = ["init", "--site", "lab", "--bmc-net", "10.20.0.0/16", "--media-url", "http://10.20.0.5:8480"]
    assert invoke(*words, "--dir", str(other / "etc")).code == 0
    code = invoke("vault", "recovery", "export", str(file), "--config", str(other / "etc" / "bcmetal.toml")).out
    told = invoke("vault", "recovery", "verify", str(file), "--config", str(config), stdin=code)
    assert told.code == 1
    assert "seals now" in told.err
    assert not exercised(config)


def test_root_is_shown_a_password_and_the_audit_says_why(config: Path) -> None:
    password = secrets.token_urlsafe(9)
    enrolled(config, SecretStr(password))
    assert invoke("vault", "reveal", "r3u17", "--config", str(config)).code == 2
    told = invoke("vault", "reveal", "r3u17", "--reason", "ticket 4711", "--config", str(config))
    assert told.code == 0, told.err
    assert told.out == f"current\troot\t{password}\n"
    [(action, doc)] = audited(config)
    assert action == "vault.reveal"
    assert "ticket 4711" in doc
    assert password not in doc
    assert invoke("vault", "reveal", "r3u18", "--reason", "x", "--config", str(config)).code == 1
