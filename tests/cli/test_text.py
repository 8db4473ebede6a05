"""Text from machines must not reach the terminal as more than text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmetal.text import LONGEST, ago, at_port, clean, defused, https_url, sha256_fingerprint, size, span


@given(st.text())
def test_no_control_character_survives(text: str) -> None:
    out = clean(text)
    assert all(c.isprintable() or c == " " or ord(c) > 127 for c in out)
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_an_escape_sequence_and_a_line_break_become_plain_text() -> None:
    assert clean("a\x1b]0;owned\x07\nb\u202ec") == "a]0;owned bc"


def test_endless_text_ends() -> None:
    assert len(clean("x" * 100_000)) == LONGEST + 1


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "59 s"), (65, "1 min 5 s"), (7260, "2 h 1 min"), (90000, "1 d 1 h"), (-5, "0 s")],
)
def test_a_span_is_said_in_two_units_at_most(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_ago_counts_from_an_rfc_3339_time() -> None:
    now = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
    assert ago((now - timedelta(seconds=30)).isoformat(), now) == "30 s ago"
    assert ago(None) == "-"
    assert ago("not a time") == "-"


@pytest.mark.parametrize(
    "text",
    [
        "ab" * 32,
        "AB" * 32,
        ":".join(["AB"] * 32),
        " SHA256:" + "Ab" * 32,
        "SHA256:" + ":".join(["AB"] * 32),
        "sha256 Fingerprint=" + ":".join(["AB"] * 32) + "\n",
        "SHA256 Fingerprint=" + ":".join(["ab"] * 32),
        "SHA-256 Fingerprint: " + " ".join(["AB"] * 32),
    ],
)
def test_a_fingerprint_is_read_as_tools_print_it(text: str) -> None:
    assert sha256_fingerprint(text) == "ab" * 32


@pytest.mark.parametrize(
    "text", ["", "ab" * 31, "ab" * 33, "zz" * 32, "sha1 Fingerprint=" + "ab" * 32, "MD5:" + "ab" * 32]
)
def test_what_is_no_sha_256_fingerprint_is_none(text: str) -> None:
    assert sha256_fingerprint(text) is None


def test_sizes_are_decimal_as_on_the_drive_s_label() -> None:
    assert size(960_197_124_096) == "960.2 GB"
    assert size(None) == "-"


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@x", " =1", "\tx", "\r=1"])
def test_a_formula_is_defused(cell: str) -> None:
    assert defused(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["", "SN1X", "3c:ec:ef:00:00:01", "a=b"])
def test_other_cells_stay_as_they_are(cell: str) -> None:
    assert defused(cell) == cell


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("join.example", "https://join.example:8445"),
        ("192.0.2.7", "https://192.0.2.7:8445"),
        ("2001:db8::7", "https://[2001:db8::7]:8445"),
        ("[2001:db8::7]", "https://[2001:db8::7]:8445"),
    ],
)
def test_an_ipv6_address_stands_in_brackets(host: str, url: str) -> None:
    assert https_url(host, 8445) == url


def test_another_port_of_the_same_host_keeps_its_brackets() -> None:
    assert at_port("https://[2001:db8::7]:8445", 8444) == "https://[2001:db8::7]:8444"
    assert at_port("https://join.example", "8444") == "https://join.example:8444"
