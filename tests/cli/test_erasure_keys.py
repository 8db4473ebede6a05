"""`bcmetal erasure keys`, `rotate-key` and the words of `export`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.running import invoke


@pytest.fixture
def config(tmp_path: Path) -> str:
    words = ["init", "--site", "lab", "--bmc-net", "10.20.0.0/16", "--media-url", "http://10.20.0.5:8480"]
    assert invoke(*words, "--dir", str(tmp_path / "etc")).code == 0
    return str(tmp_path / "etc" / "bcmetal.toml")


def keys(config: str) -> list[str]:
    told = invoke("erasure", "keys", "--config", config)
    assert told.code == 0, told.err
    return [line for line in told.out.splitlines() if re.match(r"[0-9a-f]{64}\b", line)]


def test_a_site_has_a_key_from_its_first_look_on_and_another_one_by_rotation(config: str) -> None:
    first = keys(config)
    assert len(first) == 1
    assert "signs now" in first[0]
    assert keys(config) == first
    told = invoke("erasure", "rotate-key", "--config", config)
    assert told.code == 0, told.err
    old, new = keys(config)
    assert old.startswith(first[0][:64])
    assert "signs now" not in old
    assert new.startswith(told.out.strip())
    assert "signs now" in new


@pytest.mark.parametrize("words", [[], ["er_" + "0" * 26], ["--json", "-o", "proof"]])
def test_an_export_says_where_it_wants_to_go(words: list[str]) -> None:
    told = invoke("erasure", "export", *words)
    assert told.code == 2
    assert "-o DIR" in told.out + told.err
