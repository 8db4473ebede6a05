"""Ranges, lists and patterns of nodes."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmetal.cli.targets import MOST, expand, is_glob


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("r3u17", ["r3u17"]),
        ("demo-[08-11]", ["demo-08", "demo-09", "demo-10", "demo-11"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[1,5-6,x]", ["n1", "n5", "n6", "nx"]),
        ("r[1-2]u[01-02]", ["r1u01", "r1u02", "r2u01", "r2u02"]),
        ("gpu-*", ["gpu-*"]),
    ],
)
def test_a_range_becomes_its_names_in_order(pattern: str, names: list[str]) -> None:
    assert expand(pattern) == names


@pytest.mark.parametrize(
    "pattern", ["n[1-", "n1]", "n[]", "n[9-1]", "n[a-c-]x[", "n[1-99999999]", "n[1-9999]m[1-9999]"]
)
def test_a_malformed_or_endless_range_is_refused_in_words(pattern: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        expand(pattern)
    assert any(word in refused.value.message for word in ("not closed", "no range", "backwards", "more than"))


@given(first=st.integers(0, 5000), more=st.integers(0, 200))
def test_a_range_has_as_many_names_as_numbers_and_keeps_its_width(first: int, more: int) -> None:
    names = expand(f"n[{first:05d}-{first + more:05d}]")
    assert len(names) == more + 1 <= MOST
    assert {len(name) for name in names} == {6}
    assert [int(name[1:]) for name in names] == list(range(first, first + more + 1))


def test_only_stars_and_question_marks_make_a_pattern() -> None:
    assert is_glob("gpu-*")
    assert is_glob("r3u1?")
    assert not is_glob("r3u17")
