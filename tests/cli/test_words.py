"""What the command line makes of the API's words: commands that can be typed, options that answer a refusal, honest progress."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from bcmetal.cli.main import cli
from bcmetal.cli.outcome import Outcome
from bcmetal.cli.progress import waits_for
from bcmetal.cli.session import error_lines
from bcmetal.cli.words import COMMANDS, verb_words
from bcmetal.states import SideVerb, Verb

ASKED = [verb for verb in (*Verb, *SideVerb) if verb not in (Verb.ENROLL, SideVerb.CLEANUP)]


@pytest.mark.parametrize("verb", [*ASKED, *COMMANDS])
def test_what_is_allowed_can_be_typed(verb: str) -> None:
    [words] = verb_words([{"verb": str(verb)}])
    result = CliRunner().invoke(cli, [*words.split(), "--help"])
    assert result.exit_code == 0, words


@pytest.mark.parametrize(
    ("verb", "needs", "words"),
    [
        ("deploy", "rebuild", "deploy --rebuild"),
        ("commission", "confirmErase", "commission --confirm-erase SERIAL"),
        ("remove", "abandon", "remove --abandon REASON"),
        ("setPower", None, "power"),
    ],
)
def test_what_a_verb_needs_is_said_as_its_option(verb: str, needs: str | None, words: str) -> None:
    assert verb_words([{"verb": verb} | ({"needs": needs} if needs else {})]) == [words]
    if needs:
        assert words.split()[1] in CliRunner().invoke(cli, [verb, "--help"]).output


@pytest.mark.parametrize(
    ("details", "option"),
    [
        ({"reason": "needs-rebuild", "field": "rebuild"}, "--rebuild"),
        ({"reason": "needs-abandon", "field": "abandon"}, "--abandon REASON"),
        ({"reason": "needs-confirm-erase", "field": "confirmErase", "confirmErase": "S1"}, "--confirm-erase S1"),
    ],
)
def test_a_refusal_names_the_option_that_answers_it(details: dict[str, Any], option: str) -> None:
    lines = error_lines({"code": "INVALID_STATE", "message": "no", "details": details}, "n1")
    assert f"  say: {option}" in lines


def test_a_refusal_that_no_option_answers_names_none() -> None:
    details = {"reason": "wrong-rebuild", "field": "rebuild"}
    assert not [
        line for line in error_lines({"code": "INVALID_STATE", "message": "no", "details": details}) if "say" in line
    ]


def test_progress_is_of_the_operation_and_never_an_older_error() -> None:
    old = {"code": "bmc-credentials-rejected", "message": "no"}
    assert waits_for({"state": "inspect-failed", "lastError": old, "operation": None}) == ""
    assert waits_for({"lastError": old, "operation": {"verb": "setBmcCredentials", "waitingFor": None}}) == ""
    assert waits_for({"lastError": old, "operation": {"waitingFor": "the BMC", "attempts": 3}}) == "the BMC (try 3)"


def test_a_removed_node_is_said_to_be_gone() -> None:
    last_view = {"name": "n1", "state": "enrolled", "removedAt": "2026-01-01T00:00:00.000Z"}
    line = Outcome("n1", "done", last_view).line("remove")
    assert "gone" in line
    assert "enrolled" not in line
