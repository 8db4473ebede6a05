"""Passwords that are made for BMCs: random, and by the rules of whoever keeps them."""

from __future__ import annotations

from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase, digits

import pytest

from bcmetal.clock import system_entropy
from bcmetal.decisions import SECOND, Micros
from bcmetal.login_budget import LoginBudget, locked_until, refusal
from bcmetal.passwords import SIGNS, NoSuchPassword, Rules, ladder, make_password
from bcmetal.store.logins import Tries
from bcmetal_drivers.errors import LockedOut

NOW = Micros(1_900_000_000 * SECOND)


def made(rules: Rules, username: str = "bcmetal") -> str:
    return make_password(rules, username, system_entropy).get_secret_value()


def test_passwords_differ_and_have_what_every_maker_asks_for() -> None:
    found = {made(Rules()) for _ in range(200)}
    assert len(found) == 200
    for one in found:
        assert len(one.encode()) == 20
        assert one[0].isalpha()
        assert all(set(one) & set(kind) for kind in (ascii_lowercase, ascii_uppercase, digits, SIGNS))
        assert not any(a == b for a, b in pairwise(one))
        assert not any(run in one for run in ("abc", "CBA", "123", "987"))


@pytest.mark.parametrize("username", ["ab9", "Administrator"])
def test_no_part_of_the_user_name_is_in_it_not_even_backwards(username: str) -> None:
    name = username.casefold()
    parts = {name[n : n + 3] for n in range(len(name) - 2)}
    for one in (made(Rules(), username).casefold() for _ in range(300)):
        assert not any(part in one or part[::-1] in one for part in parts)


@pytest.mark.parametrize(
    ("rules", "length"),
    [
        (Rules(longest=16), 16),
        (Rules(longest=39), 20),  # what IPMI carries, though this BMC would take more
        (Rules(longest=64, shortest=24), 24),  # unless the BMC wants more
        (Rules(longest=12), 12),
    ],
)
def test_a_password_is_as_long_as_it_may_be(rules: Rules, length: int) -> None:
    assert len(made(rules)) == length


def test_forbidden_characters_are_never_used() -> None:
    rules = Rules(signs="", forbidden="O0l1I")
    assert not set("".join(made(rules) for _ in range(100))) & set("O0l1I!#%+-_=")


@pytest.mark.parametrize(
    "rules", [Rules(longest=8), Rules(longest=16, shortest=20), Rules(forbidden=ascii_lowercase + ascii_uppercase)]
)
def test_a_bmc_that_takes_only_weak_passwords_gets_none(rules: Rules) -> None:
    with pytest.raises(NoSuchPassword):
        made(rules)


def test_what_is_tried_after_a_refusal_is_shorter_and_plainer_each_time() -> None:
    assert [(one.longest, one.signs) for one in ladder(Rules())] == [(20, SIGNS), (16, SIGNS), (16, "_-"), (16, "")]
    assert [one.longest for one in ladder(Rules(longest=14))] == [14, 14, 14]


# ---------------------------------------------------------------- how often a login may fail


def before(seconds: int) -> Micros:
    return Micros(NOW - seconds * SECOND)


def test_an_account_fails_twice_in_ten_minutes_whatever_its_passwords() -> None:
    assert refusal(Tries((before(60),), 1), NOW) is None
    found = refusal(Tries((before(500), before(60)), 0), NOW)
    assert isinstance(found, LoginBudget)
    assert found.retry_after_s == 100


def test_a_persons_new_password_has_one_try_more_and_a_good_one_any() -> None:
    twice = Tries((before(500), before(60)), 0)
    assert refusal(twice, NOW, person=True) is None
    assert isinstance(refusal(Tries((*twice.rejected_at, before(9)), 0), NOW, person=True), LoginBudget)
    assert isinstance(refusal(Tries(twice.rejected_at, 1), NOW, person=True), LoginBudget)
    assert refusal(Tries(twice.rejected_at, 1, good=True), NOW) is None


def test_a_lock_out_is_waited_for_longer_each_time_and_as_long_as_the_bmc_says() -> None:
    locked = Tries(locked_until=Micros(NOW + 30 * SECOND))
    found = refusal(locked, NOW, person=True)
    assert isinstance(found, LockedOut)
    assert found.retry_after_s == 30
    assert refusal(locked, Micros(NOW + 31 * SECOND)) is None
    waits = [(locked_until(Tries(locks=n), NOW, None) - NOW) / SECOND for n in (0, 1, 2, 9)]
    assert waits == [60, 120, 240, 600]
    assert locked_until(Tries(), NOW, 300.0) - NOW == 300 * SECOND
