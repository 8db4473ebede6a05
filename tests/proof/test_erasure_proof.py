"""Signed erasure records: written as the engine writes them, exported by the API, and verified by the very command that the export documents."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from api.site import POOL, TENANT, Site
from bcmetal.proof import keys
from bcmetal.proof.bundle import BadExport, write_folder
from bcmetal.proof.document import EXPECTED, FORMAT, canonical, samples_digest
from bcmetal.proof.signing import signed
from bcmetal.store import nodes, operations, proof_keys, rows, sealed
from bcmetal.store.values import AddErasureRecord, OperationRow, SetNode
from bcmetal.store.views import stamp
from bcmetal.vault import Vault, VaultKey

EXPORT = "/api/compute/erasureRecords/export"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


class Records:
    """A node that is inspected, and its records as a step of that operation notes them."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.node_id = site.enroll("r3u17")
        self.operation_id = str(site.of(self.node_id, "inspect").doc["operation"]["id"])

    def erased(self, serial: str = "S1", vault: Vault | None = None, **said: Any) -> str:
        """The engine's way: signed first, then written with the rest of the step. The record's id."""
        site = self.site
        record_id, now = site.new_id("er"), site.now()
        doc: dict[str, Any] = {
            "serial": serial,
            "model": "M9",
            "method": "nvme-crypto",
            "standard": "NIST SP 800-88r2 purge",
        }
        doc |= {"verifier": "daemon", "result": "erased", "startedAt": 1_000_000, "endedAt": now}
        fact = AddErasureRecord(record_id, serial, {**doc, **said})
        node = site.read(rows.node, self.node_id)
        operation = site.read(operations.get, self.operation_id)
        assert node is not None
        assert isinstance(operation, OperationRow)
        facts = site.run(signed(site.store, vault or site.vault, [SetNode({}), fact], node, operation, now))
        assert isinstance(facts[0], SetNode)
        site.write(nodes.apply, self.node_id, facts[1:], now)
        return record_id

    def unsigned(self, serial: str = "S0") -> str:
        """As an earlier release wrote it."""
        record_id = self.site.new_id("er")
        doc = {"serial": serial, "result": "erased", "verifier": "bmc", "startedAt": 1_000_000, "endedAt": 2_000_000}
        self.site.write(nodes.apply, self.node_id, [AddErasureRecord(record_id, serial, doc)], self.site.now())
        return record_id

    def export(self, who: str = "admin", **asked: Any) -> dict[str, Any]:
        answer = self.site.post(EXPORT, {"tenantId": TENANT, **asked}, who)
        assert answer.status == 200, answer.raw
        doc: dict[str, Any] = answer.doc
        return doc

    def folder(self, name: str = "proof") -> Path:
        exported = self.export()
        write_folder(self.site.folder / name, exported["records"], exported["keys"])
        return self.site.folder / name


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    site = Site(tmp_path)
    yield Records(site)
    site.close()


def documented(folder: Path) -> list[str]:
    """The commands that the folder's own README says, one for each record."""
    lines = (folder / "README.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.startswith("    openssl dgst") and "/er_" in line]


def verified(folder: Path, command: str) -> bool:
    told = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=20)  # noqa: S602 - as a person types it
    assert (told.returncode == 0) == ("Verified OK" in told.stdout)
    return told.returncode == 0


@needs_openssl
def test_openssl_alone_verifies_each_record_by_the_documented_command(records: Records) -> None:
    made = {records.erased("S1"), records.erased("S2", result="not erased", verifier="none")}
    folder = records.folder()
    commands = documented(folder)
    assert {path.stem for path in (folder / "records").glob("*.json")} == made
    assert len(commands) == 2
    assert all(verified(folder, command) for command in commands)


@needs_openssl
def test_openssl_refuses_whatever_was_changed(records: Records) -> None:
    first, second = records.erased("S1"), records.erased("S2", result="not erased")
    folder = records.folder()
    command = next(one for one in documented(folder) if second in one)
    file, signature = folder / "records" / f"{second}.json", folder / "records" / f"{second}.sig"
    text, by = file.read_bytes(), signature.read_bytes()
    for changed in (text.replace(b'"not erased"', b'"erased"'), text + b"\n", text[:-1], b" " + text, b""):
        file.write_bytes(changed)
        assert not verified(folder, command)
    file.write_bytes(text)
    for other in ((folder / "records" / f"{first}.sig").read_bytes(), bytes(len(by)), b""):
        signature.write_bytes(other)
        assert not verified(folder, command)
    signature.write_bytes(by)
    assert verified(folder, command)
    key = next((folder / "keys").iterdir())
    key.write_text(keys.fresh(records.site.vault, records.site.now()).row.public_key)
    assert not verified(folder, command), "another key"


@needs_openssl
def test_a_keys_id_is_what_openssl_says_of_it(records: Records) -> None:
    records.erased()
    folder = records.folder()
    line = next(one for one in (folder / "README.txt").read_text().splitlines() if "openssl pkey" in one)
    key = next((folder / "keys").glob("*.pem"))
    told = subprocess.run(  # noqa: S602 - as a person types it
        line.strip().replace("KEY", key.stem), shell=True, cwd=folder, capture_output=True, text=True, timeout=20
    )
    assert told.stdout.split()[-1] == key.stem
    public = load_pem_public_key(key.read_bytes())
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert hashlib.sha256(spki).hexdigest() == key.stem


def test_a_record_says_all_of_it_by_itself(records: Records) -> None:
    samples = samples_digest(["zero", "ab" * 32])
    record_id = records.erased("S1", samplesSha256=samples, notCovered=["boot partitions", "RPMB"])
    one = records.export()["records"][0]
    said = json.loads(one["document"])
    assert said == {
        "format": FORMAT,
        "keyId": one["keyId"],
        "recordId": record_id,
        "at": said["at"],
        "serial": "S1",
        "model": "M9",
        "method": "nvme-crypto",
        "standard": "NIST SP 800-88r2 purge",
        "startedAt": stamp(1_000_000),
        "endedAt": said["at"],
        "verifier": "daemon",
        "result": "erased",
        "samplesSha256": samples,
        "notCovered": ["boot partitions", "RPMB"],
        "nodeId": records.node_id,
        "nodeName": "r3u17",
        "machineSerial": None,
        "tenantId": TENANT,
        "poolId": POOL,
        "siteId": "site-a",
        "operationId": records.operation_id,
    }
    records.erased("S2", verifiedAt=3_000_000, readBack={"sectors": [0, 4096], "samples": ["zero", "ab" * 32]})
    other = json.loads(records.export(serial="S2")["records"][0]["document"])
    assert (other["verifiedAt"], other["samplesSha256"]) == (stamp(3_000_000), samples), "of the samples that it names"
    records.erased("S3")
    assert set(EXPECTED) <= set(json.loads(records.export(serial="S3")["records"][0]["document"])), "null, not absent"


def test_a_record_reads_the_same_in_the_list_and_as_it_was_signed(records: Records) -> None:
    record_id = records.erased("S1")
    body = {"tenantId": TENANT, "recordId": record_id}
    shown = records.site.post("/api/compute/erasureRecords/get", body).doc
    assert shown["signed"] is True
    said = json.loads(records.export(recordIds=[record_id])["records"][0]["document"])
    assert {name: shown[name] for name in said} == said


@needs_openssl
@pytest.mark.parametrize("text", ["ünïcode 日本", "\x1b[31mred", 'quo"te\\', "\ud800 lone", "a\nb", "\u2028"])
def test_whatever_a_drive_calls_itself_is_signed_as_ascii(records: Records, text: str) -> None:
    records.erased("S1", model=text)
    folder = records.folder()
    raw = next((folder / "records").glob("*.json")).read_bytes()
    assert raw.isascii()
    assert b"\n" not in raw
    assert json.loads(raw)["model"] == text
    assert all(verified(folder, command) for command in documented(folder))


@needs_openssl
def test_after_a_rotation_the_old_records_still_verify_and_the_old_private_key_is_gone(records: Records) -> None:
    site = records.site
    old = records.erased("S1")
    before = site.read(proof_keys.current)
    assert before is not None
    site.skip(1)
    new = keys.fresh(site.vault, site.now())
    assert site.write(proof_keys.rotate, new.row, new.sealed) == (before.row.key_id,)
    young = records.erased("S2")
    assert site.read(sealed.get, "proof", before.row.key_id) == ()
    exported = records.export()
    by_id = {one["recordId"]: one["keyId"] for one in exported["records"]}
    assert by_id == {old: before.row.key_id, young: new.row.key_id}
    assert [(one["keyId"], one["retiredAt"] is None) for one in exported["keys"]] == [
        (before.row.key_id, False),
        (new.row.key_id, True),
    ]
    folder = records.folder()
    assert len(documented(folder)) == 2
    assert all(verified(folder, command) for command in documented(folder))


def test_records_from_before_stay_and_are_told_as_unsigned(records: Records) -> None:
    old, young = records.unsigned(), records.erased()
    body = {"tenantId": TENANT}
    listed = records.site.post("/api/compute/erasureRecords/list", body).doc["records"]
    assert {one["recordId"]: one["signed"] for one in listed} == {old: False, young: True}
    exported = {one["recordId"]: one for one in records.export()["records"]}
    assert (exported[old]["signature"], exported[old]["keyId"]) == (None, None)
    folder = records.folder()
    assert json.loads((folder / "unsigned" / f"{old}.json").read_text())["startedAt"] == stamp(1_000_000)
    assert [path.stem for path in (folder / "records").glob("*.json")] == [young]
    assert not any(old in command for command in documented(folder))


def test_one_site_has_one_key_and_makes_it_once(records: Records) -> None:
    site = records.site
    first = site.run(keys.current(site.store, site.vault, site.now()))
    assert site.run(keys.current(site.store, site.vault, site.now())).key_id == first.key_id
    late = keys.fresh(site.vault, site.now())
    assert site.write(proof_keys.begin, late.row, late.sealed).row.key_id == first.key_id, "a daemon that came second"
    raw = os.urandom(64)
    assert keys.verifies(site.read(proof_keys.every)[0].public_key, raw, first.sign(raw))
    assert not keys.verifies(late.row.public_key, raw, first.sign(raw))


def test_the_private_key_lies_sealed_and_shows_itself_nowhere(records: Records) -> None:
    site = records.site
    records.erased()
    there = site.read(proof_keys.current)
    assert there is not None
    assert there.key is not None
    opened = site.vault.open(there.key, "proof").get_secret_value()
    assert "PRIVATE KEY" in opened
    inner = opened.splitlines()[1]
    assert inner not in repr(site.run(keys.current(site.store, site.vault, site.now())))
    assert inner not in json.dumps(records.export())
    assert all(inner.encode() not in path.read_bytes() for path in site.folder.rglob("*") if path.is_file())


def test_a_key_that_does_not_open_leaves_the_record_unsigned_and_says_so(
    records: Records, caplog: pytest.LogCaptureFixture
) -> None:
    records.erased("S1")
    with caplog.at_level(logging.ERROR):
        record_id = records.erased("S2", vault=Vault([VaultKey(os.urandom(32))]))
    assert "its erasure records are not signed" in caplog.text
    one = records.export(recordIds=[record_id])["records"][0]
    assert one["signature"] is None
    assert json.loads(one["document"])["result"] == "erased", "what was done to the drive is kept"


def test_what_may_be_listed_may_be_exported_and_nothing_else(records: Records) -> None:
    made = [records.erased(f"S{n}") for n in range(3)]
    page = records.export(limit=2)
    rest = records.export(limit=2, cursor=page["cursor"])
    assert [one["recordId"] for one in (*page["records"], *rest["records"])] == made[::-1]
    assert [one["recordId"] for one in records.export(recordIds=[made[0]])["records"]] == [made[0]]
    assert [one["recordId"] for one in records.export(serial="s1")["records"]] == [made[1]]
    assert records.site.post(EXPORT, {"tenantId": TENANT}, "nobody").code == "PERMISSION_DENIED"
    foreign = records.site.post(EXPORT, {"tenantId": "tenant-b", "recordIds": made}, "other")
    assert foreign.doc["records"] == []


def test_the_spelling_knows_no_numbers_that_json_has_no_word_for() -> None:
    assert canonical({"b": 1, "a": [None, True]}) == '{"a":[null,true],"b":1}'
    with pytest.raises(ValueError):
        canonical({"a": float("nan")})


RECORD = {
    "recordId": "er_" + "0" * 26,
    "document": "{}",
    "signature": base64.b64encode(b"s").decode(),
    "keyId": "0" * 64,
}
KEY = {"keyId": "0" * 64, "publicKey": "PEM"}


@pytest.mark.parametrize(
    ("record", "key"),
    [
        ({**RECORD, "recordId": "../../etc/cron.d/x"}, KEY),
        ({**RECORD, "recordId": None}, KEY),
        ({**RECORD, "keyId": "1" * 64}, KEY),
        ({**RECORD, "keyId": "$(reboot)"}, KEY),
        ({**RECORD, "signature": "no base64!"}, KEY),
        (RECORD, {**KEY, "keyId": "../x"}),
    ],
)
def test_an_answer_that_leads_out_of_the_folder_writes_nothing(
    tmp_path: Path, record: dict[str, Any], key: dict[str, Any]
) -> None:
    with pytest.raises(BadExport):
        write_folder(tmp_path / "proof", [record], [key])
    assert not (tmp_path / "proof").exists()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError):
        write_folder(tmp_path, [RECORD], [KEY])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
