from __future__ import annotations

import json
import shutil
import struct
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bcmetal.boot.config_drive import LIMIT, TEXT_LIMIT, Drive, build, check
from bcmetal.errors import InvalidInput

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFvS admin@site"
TOKEN = b"bcjt_a.b\n"
PLAIN = Drive("nocloud", "op_1", "r3u17", (KEY,), files={"bcmetal/join.json": b"{}", "bcmetal/token": TOKEN})
NETWORK = json.dumps({"interfaces": [{"mac": "52:54:00:00:00:01", "dhcp4": True}]})


def read_back(image: bytes, folder: Path) -> dict[str, bytes]:
    """By xorriso, which knows nothing of pycdlib."""
    if shutil.which("xorriso") is None:
        pytest.skip("no xorriso: sh scripts/machine-packages.sh")
    out = folder / "out"
    (folder / "drive.iso").write_bytes(image)
    command = ["xorriso", "-osirrox", "on", "-indev", str(folder / "drive.iso"), "-extract", "/", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=20)
    subprocess.run(["chmod", "-R", "u+w", str(out)], check=True, timeout=20)
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def label_of(image: bytes) -> str:
    return image[16 * 2048 + 40 : 16 * 2048 + 72].decode().rstrip()


def faults_of(drive: Drive) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        build(drive)
    return [fault.path for fault in caught.value.faults]


def test_a_nocloud_drive_says_who_the_machine_is_and_whom_it_joins(tmp_path: Path) -> None:
    image = build(replace(PLAIN, network_data=NETWORK))
    files = read_back(image, tmp_path)
    assert label_of(image) == "cidata"
    assert sorted(files) == [
        *("bcmetal/join.json", "bcmetal/token", "meta-data", "network-config", "user-data", "vendor-data")
    ]
    assert files["bcmetal/token"] == TOKEN
    meta = json.loads(files["meta-data"])
    assert (meta["instance-id"], meta["local-hostname"], meta["public-keys"]) == ("op_1", "r3u17", [KEY])
    assert files["user-data"].startswith(b"#cloud-config\n")
    assert json.loads(files["user-data"].partition(b"\n")[2]) == {"ssh_authorized_keys": [KEY]}
    assert json.loads(files["network-config"])["version"] == 2


def test_a_config_2_drive_says_the_same_in_openstacks_words(tmp_path: Path) -> None:
    image = build(replace(PLAIN, kind="config-2", user_data="#!/bin/sh\n", network_data=NETWORK))
    files = read_back(image, tmp_path)
    assert label_of(image) == "config-2"
    latest = {name.removeprefix("openstack/latest/"): data for name, data in files.items() if "latest" in name}
    assert sorted(latest) == ["meta_data.json", "network_data.json", "user_data", "vendor_data.json"]
    meta = json.loads(latest["meta_data.json"])
    assert (meta["hostname"], meta["public_keys"]) == ("r3u17", {"key0": KEY})
    assert len(meta["uuid"]) == 36
    assert latest["user_data"] == b"#!/bin/sh\n"
    assert files["bcmetal/token"] == TOKEN


def test_what_was_given_goes_onto_the_drive_as_it_is(tmp_path: Path) -> None:
    user_data = "Content-Type: multipart/mixed\r\n\r\n# Grüße \N{SNOWMAN}\r\n"
    given = json.dumps({"local-hostname": "db", "role": ["a", "b"]})
    yaml = "version: 2  # ours\nethernets: {}\n"
    drive = replace(PLAIN, user_data=user_data, meta_data=given, network_data=yaml)
    files = read_back(build(drive), tmp_path)
    assert files["user-data"] == user_data.encode()
    assert files["network-config"] == yaml.encode()
    meta = json.loads(files["meta-data"])
    assert (meta["local-hostname"], meta["role"], meta["public-keys"]) == ("db", ["a", "b"], [KEY])
    # The small system of the whole-machine tests looks for this at the begin of a line.
    assert any(line.strip().startswith(b'"local-hostname": "db"') for line in files["meta-data"].splitlines())


def test_the_same_drive_is_the_same_bytes_whenever_it_is_built() -> None:
    first = build(PLAIN)
    second = int(time.time())
    while int(time.time()) == second:
        time.sleep(0.02)
    assert build(PLAIN) == first
    assert build(replace(PLAIN, instance_id="op_2")) != first


def test_joliet_names_are_there_for_who_reads_no_rock_ridge() -> None:
    image = build(PLAIN)
    assert struct.unpack_from("<B5s", image, 17 * 2048) == (2, b"CD001")
    assert "join.json".encode("utf-16-be") in image


def test_text_that_no_drive_can_hold_is_told_by_its_field() -> None:
    big = "x" * (TEXT_LIMIT + 1)
    assert faults_of(replace(PLAIN, user_data=big, meta_data="\ud800", network_data="a\0")) == [
        *("userData", "metaData", "networkData")
    ]
    assert faults_of(replace(PLAIN, meta_data="[]", network_data="ethernets: {}")) == ["metaData", "networkData"]
    assert faults_of(replace(PLAIN, meta_data='{"instance-id": "i-1"}')) == ["metaData"]
    assert faults_of(replace(PLAIN, meta_data='{"local-hostname": 5}')) == ["metaData.local-hostname"]
    assert faults_of(replace(PLAIN, meta_data="[" * 100_000)) == ["metaData"]
    assert faults_of(replace(PLAIN, files={"bcmetal/big": bytes(LIMIT)})) == ["userData"]
    with pytest.raises(InvalidInput, match="half of a character"):
        check("nocloud", "\udfff", None, None)
    full = "\N{SNOWMAN}" * (TEXT_LIMIT // 3)
    assert len(build(replace(PLAIN, user_data=full))) <= LIMIT


def test_network_data_are_held_to_the_kind_of_the_drive() -> None:
    assert faults_of(replace(PLAIN, kind="config-2", network_data="version: 2\n")) == ["networkData"]
    assert faults_of(replace(PLAIN, network_data='{"links": [], "networks": []}')) == ["networkData"]
