from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmetal_agent.boot_token import SIZE, BadBootToken, parse, placeholder, render

_ID = st.text(string.digits + string.ascii_lowercase, min_size=26, max_size=26)
_SECRET = st.text(string.ascii_letters + string.digits + "_-", min_size=43, max_size=43)
TOKENS = st.builds("bcbt_{}.{}".format, _ID, _SECRET)


def a_token() -> str:
    return f"bcbt_{'0a' * 13}.{'Zz_-0' * 8}abc"


@given(TOKENS)
def test_a_token_is_read_as_it_was_written(token: str) -> None:
    raw = render(token)
    assert len(raw) == SIZE
    assert parse(raw) == token
    assert raw.split(b"\n")[:2] == [b"bcmetal-boot-token/1", f"token={token}".encode()]


@given(TOKENS, st.integers(0, SIZE - 1), st.integers(1, 255))
def test_one_byte_changed_is_another_token_or_none(token: str, at: int, change: int) -> None:
    raw = bytearray(render(token))
    raw[at] ^= change
    try:
        other = parse(bytes(raw))
    except BadBootToken:
        return
    assert other != token
    assert render(other) == bytes(raw)


@given(st.binary(max_size=2 * SIZE))
def test_bytes_that_are_no_token_file_are_refused(raw: bytes) -> None:
    with pytest.raises(BadBootToken):
        parse(raw)


@given(TOKENS, st.integers(0, SIZE - 1))
def test_a_file_cut_short_is_refused(token: str, size: int) -> None:
    with pytest.raises(BadBootToken):
        parse(render(token)[:size])


@pytest.mark.parametrize(
    "raw",
    [
        render(a_token()) + b"\n",
        render(a_token()).replace(b"token=", b"Token="),
        render(a_token()).replace(b"/1\n", b"/2\n"),
        render(a_token()).replace(b"  \n", b" \0\n"),
        render(a_token()).replace(b"\n    ", b"\r    "),
        (f"bcmetal-boot-token/1\ntoken={a_token()}\ntoken={a_token()}\n").encode().ljust(SIZE - 1) + b"\n",
        (f"bcmetal-boot-token/1\n\ntoken={a_token()}\n").encode().ljust(SIZE - 1) + b"\n",
        (f"bcmetal-boot-token/1\ntoken= {a_token()}\n").encode().ljust(SIZE - 1) + b"\n",
    ],
    ids=[
        "longer",
        "another name",
        "another version",
        "a zero",
        "no second newline",
        "two tokens",
        "an empty line",
        "a space",
    ],
)
def test_every_other_form_is_refused(raw: bytes) -> None:
    with pytest.raises(BadBootToken):
        parse(raw)


def test_a_medium_without_a_token_says_so_and_has_the_same_size() -> None:
    assert len(placeholder()) == SIZE
    assert placeholder().startswith(b"bcmetal-boot-token/1\n")
    with pytest.raises(BadBootToken, match="template"):
        parse(placeholder())


@pytest.mark.parametrize(
    "token",
    ["", "bcbt_", a_token() + "\n", a_token().upper(), a_token()[:-1], a_token().replace("_", "\u0661", 1)],
    ids=["empty", "a prefix", "a newline", "upper case", "short", "another digit"],  # made anew, they are no names
)
def test_what_is_no_token_is_not_written(token: str) -> None:
    with pytest.raises(BadBootToken):
        render(token)


def test_a_refusal_never_shows_what_was_there() -> None:
    secret = a_token().rpartition(".")[2]
    with pytest.raises(BadBootToken) as refused:
        parse(render(a_token()).replace(b"token=", b"tokem="))
    assert secret not in str(refused.value)
