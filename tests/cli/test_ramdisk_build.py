"""`bcmetal ramdisk build` on the daemon's host: what it finds there, and what it says of what it does not find."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import invoke


@pytest.fixture
def config(tmp_path: Path) -> Path:
    words = ["init", "--site", "lab", "--bmc-net", "10.20.0.0/16", "--media-url", "http://10.20.0.5:8480"]
    assert invoke(*words, "--agent-url", "https://10.30.0.5:8445", "--dir", str(tmp_path / "etc")).code == 0
    return tmp_path / "etc" / "bcmetal.toml"


def test_without_a_configuration_every_part_is_to_be_given(tmp_path: Path) -> None:
    told = invoke("ramdisk", "build", "--site", "lab", "--config", str(tmp_path / "none.toml"))
    assert told.code == 2
    assert "no configuration at" in told.out + told.err


def test_a_site_without_an_authority_is_told_to_make_one(config: Path) -> None:
    told = invoke("ramdisk", "build", "--config", str(config))
    assert told.code == 2
    assert "bcmetal ca init" in told.out + told.err


def test_of_two_addresses_one_is_to_be_named(config: Path, tmp_path: Path) -> None:
    with config.open("a", encoding="utf-8") as file:
        file.write('\n[networks.second]\ncidrs = ["10.31.0.0/16"]\nagent_url = "https://10.31.0.5:8445"\n')
    roots = tmp_path / "roots.pem"
    roots.write_text("-----BEGIN CERTIFICATE-----\n")
    told = invoke("ramdisk", "build", "--ca", str(roots), "--config", str(config))
    assert told.code == 2
    assert "https://10.31.0.5:8445" in told.out + told.err


def test_what_the_host_says_is_where_the_build_begins(config: Path, tmp_path: Path) -> None:
    """It gets as far as the CA file, which is none."""
    roots = tmp_path / "roots.pem"
    roots.write_text("no certificate\n")
    told = invoke("ramdisk", "build", "--ca", str(roots), "--config", str(config), "--json")
    assert told.code == 1
    assert "CA" in told.out + told.err
