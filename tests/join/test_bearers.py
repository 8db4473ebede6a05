"""A token's id is a function of who asked and the key; its bearer is known by the digest of its secret alone."""

from __future__ import annotations

import hashlib
import os

import pytest

from bcmetal.join.bearers import Bearer, crockford, new_bearer, parse_bearer, token_id

KEY = bytes(range(32))


@pytest.mark.parametrize(
    ("identity", "key", "expected"),
    [
        ("user:alice", "k1", "jt_cpk358gxwrza5e6ymxa5v27cea9yrpzzj0w335rqtqgv03f5zym0"),
        ("user:alic", "ek1", "jt_3w1ygbmshxwx7644qxft69rqjh1a6vd8777181nbx1vn68tnsc40"),
    ],
)
def test_the_id_vectors_hold(identity: str, key: str, expected: str) -> None:
    assert token_id(KEY, "tenant-a", identity, key) == expected


def test_fields_that_hold_separators_do_not_run_into_each_other() -> None:
    ids = {
        token_id(KEY, *fields)
        for fields in (("a", "b:c", "d"), ("a:b", "c", "d"), ("a", "b", "c:d"), ("a:b:c", "", "d"), ("", "a:b:c", "d"))
    }
    assert len(ids) == 5
    assert token_id(os.urandom(32), "a", "b:c", "d") not in ids


def test_crockford_leaves_out_what_is_misread() -> None:
    assert crockford(b"") == ""
    assert crockford(b"\xff") == "zw"
    assert crockford(b"\x00" * 32) == "0" * 52
    assert not set("ilou") & set(crockford(os.urandom(4096)))


def test_a_bearer_is_read_with_the_inner_prefix_and_without() -> None:
    made = new_bearer(token_id(KEY, "t", "i", "k"), os.urandom(32))
    whole = made.text()
    assert whole.startswith("bcjt_jt_")
    for text in (whole, whole.replace("bcjt_jt_", "bcjt_")):
        read = parse_bearer(text)
        assert read is not None
        assert (read.token_id, read.secret_sha256) == (made.token_id, made.secret_sha256)
    secret = whole.rpartition(".")[2]
    assert made.secret_sha256 == hashlib.sha256(secret.encode()).digest()
    assert len(secret) == 43


@pytest.mark.parametrize("change", ["", "x", " ", "\n", "="])
def test_what_is_not_of_the_form_is_no_bearer(change: str) -> None:
    whole = new_bearer(token_id(KEY, "t", "i", "k"), os.urandom(32)).text()
    assert parse_bearer(whole) is not None
    assert parse_bearer(whole + change if change else whole[:-1]) is None
    assert parse_bearer((change or "u") + whole) is None


def test_a_secret_proves_its_own_token_and_a_missing_one_never() -> None:
    one, other = (new_bearer(token_id(KEY, "t", "i", key), os.urandom(32)) for key in ("1", "2"))
    assert one.proves(one.secret_sha256)
    assert not one.proves(other.secret_sha256)
    assert not one.proves(None)


def test_a_bearer_that_is_shown_or_logged_hides_its_secret() -> None:
    made: Bearer = new_bearer(token_id(KEY, "t", "i", "k"), os.urandom(32))
    assert made.text().rpartition(".")[2] not in f"{made!r} {made}"
