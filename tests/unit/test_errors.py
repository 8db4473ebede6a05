"""No error is forgotten: not in the trees that the docstrings draw, not in the vocabulary, not in the answers of the API."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import TypeVar

import pytest

import bcmetal
from bcmetal import errors
from bcmetal.errors import LAST_ERRORS, BcmetalError, Fault, InvalidInput, hint_for
from bcmetal_drivers import errors as driver_errors
from bcmetal_drivers.errors import MESSAGE_LIMIT, DriverError, LockedOut, Permanent, Transient

# The page's own table.
API_CODES = {
    "INVALID_INPUT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "CONFLICT": 409,
    "INVALID_STATE": 409,
    "RATE_LIMITED": 429,
    "UNAVAILABLE": 503,
    "INTERNAL": 500,
}

OWN_STATUS = frozenset({405, 413, 415})  # input that never becomes an input keeps the status that HTTP has for it

E = TypeVar("E", bound=Exception)


def family(root: type[E]) -> Iterator[type[E]]:
    """The class and all that descend from it."""
    yield root
    for child in root.__subclasses__():
        yield from family(child)


def import_everything() -> None:
    """Errors that live beside their cause count too; the demonstration and the migrations hold none."""
    for module in pkgutil.walk_packages(bcmetal.__path__, "bcmetal."):
        if not {"migrations", "demo", "__main__"} & set(module.name.split(".")):
            importlib.import_module(module.name)


import_everything()
OURS = sorted(set(family(BcmetalError)), key=lambda c: c.__name__)
AT_THE_BMC = sorted(set(family(DriverError)), key=lambda c: c.__name__)
named = pytest.mark.parametrize("error", [*OURS, *AT_THE_BMC], ids=lambda c: c.__name__)


@named
def test_each_error_says_what_it_means(error: type[Exception]) -> None:
    assert error.__doc__, error
    assert error.__doc__ != error.__mro__[1].__doc__


@pytest.mark.parametrize("error", OURS, ids=lambda c: c.__name__)
def test_each_error_of_the_daemon_has_an_answer_of_the_api(error: type[BcmetalError]) -> None:
    own_status = OWN_STATUS if error.api_code == "INVALID_INPUT" else frozenset()
    assert error.http in {API_CODES[error.api_code], *own_status}


def test_each_code_of_the_api_has_an_error() -> None:
    assert {error.api_code for error in OURS} == set(API_CODES)


@pytest.mark.parametrize("error", AT_THE_BMC, ids=lambda c: c.__name__)
def test_each_error_of_a_driver_has_a_word_in_the_vocabulary(error: type[DriverError]) -> None:
    kind = LAST_ERRORS[error.code]
    if error is not DriverError and error not in (Transient, Permanent):
        assert kind.retryable == (issubclass(error, Transient)), error


def test_no_two_errors_of_the_drivers_share_a_word() -> None:
    """One that has none of its own is its parent to everybody outside."""
    codes = [vars(error)["code"] for error in AT_THE_BMC if "code" in vars(error)]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    ("root", "module"), [(BcmetalError, errors), (DriverError, driver_errors)], ids=["daemon", "drivers"]
)
def test_the_tree_in_the_docstring_names_every_class_of_its_file_and_no_other(
    root: type[Exception], module: object
) -> None:
    drawn = set(re.findall(r"(?:├──|└──) (\w+)", getattr(module, "__doc__", "") or ""))
    there = {c.__name__ for c in family(root) if c.__module__ == getattr(module, "__name__", "")} - {root.__name__}
    assert drawn == there


def test_the_tree_in_the_docstring_hangs_each_class_on_its_parent() -> None:
    for module in (errors, driver_errors):
        parents: list[str] = []
        for line in (module.__doc__ or "").splitlines():
            found = re.match(r"    ([│ ]*)(?:[├└]── )?([A-Z]\w+)", line)
            if found is None:
                continue
            depth = 0 if "── " not in line else len(found[1]) // 4 + 1
            parents[depth:] = [found[2]]
            if depth:
                assert getattr(module, found[2]).__mro__[1].__name__ == parents[depth - 1]


@pytest.mark.parametrize("error", [c for c in OURS if c is not InvalidInput], ids=lambda c: c.__name__)
def test_an_error_without_words_says_its_docstring(error: type[BcmetalError]) -> None:
    assert error.__doc__ is not None
    if error.__init__ is BcmetalError.__init__:
        assert str(error()) == error.__doc__.strip()


def test_the_answer_to_a_bad_input_names_every_fault() -> None:
    error = InvalidInput([Fault("name", "is too long"), Fault("bmc.address", "is of no known form")])
    assert str(error) == "name: is too long; bmc.address: is of no known form"
    assert error.details["faults"] == [
        {"field": "name", "message": "is too long"},
        {"field": "bmc.address", "message": "is of no known form"},
    ]


def test_what_a_bmc_says_is_shortened_and_made_printable() -> None:
    error = LockedOut("a\x1b[31m\n" + "b" * 1000, retry_after_s=30)
    assert len(str(error)) == MESSAGE_LIMIT
    assert str(error).isprintable()
    assert error.retry_after_s == 30


@pytest.mark.parametrize("code", LAST_ERRORS)
def test_each_word_of_the_vocabulary_is_lower_case_with_a_meaning_and_a_hint(code: str) -> None:
    kind = LAST_ERRORS[code]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert kind.meaning
    assert not kind.meaning.endswith(".")
    assert re.fullmatch(r"[^.\s].*\w.*\.", kind.hint)


def test_a_hint_names_the_node_and_an_unknown_word_gets_that_of_a_bug() -> None:
    assert "bcmetal retry r1u07" in hint_for("bmc-fault", "r1u07")
    assert hint_for("never-heard", "r1u07") == hint_for("internal", "r1u07")
