"""Help texts: every command has one, with examples; and showing them imports nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from bcmetal.cli.lazy import LazyGroup
from bcmetal.cli.main import cli
from bcmetal.states import Verb


def _commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*words, name)
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name))


ALL = list(_commands(cli))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_explains_itself_with_examples(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.output
    examples = result.output.partition("Example")[2]
    assert "bcmetal " in examples
    assert words[-1] in examples


def test_every_verb_of_the_table_has_a_command() -> None:
    names = {words[0] for words in ALL}
    assert {str(v) for v in Verb} - {"enroll"} <= names
    assert ("node", "enroll") in ALL


def test_every_listed_command_can_be_imported() -> None:
    assert isinstance(cli, LazyGroup)
    assert {words[0] for words in ALL} == set(cli.entries)


def test_an_unknown_command_is_a_usage_error() -> None:
    for words, meant in (
        (["comission", "n"], "commission"),
        (["node", "lst"], "list"),
        (["--json", "dploy"], "deploy"),
    ):
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 2
        assert "No such command" in result.output
        assert f"Did you mean '{meant}'?" in result.output
    assert "Did you mean" not in CliRunner().invoke(cli, ["xyzzy"]).output


def test_a_plan_of_what_is_no_verb_lists_the_verbs() -> None:
    result = CliRunner().invoke(cli, ["plan", "fly", "n"])
    assert result.exit_code == 2
    for verb in ("VERB", "commission", "power", "rotate-credentials"):
        assert verb in result.output
    assert "cleanup" not in result.output, "the daemon's own"


@pytest.mark.parametrize(
    ("module", "words"), [("bcmetal_drivers.emulated", []), ("bcmetal.cli.main", ["serve", "--demo"])]
)
def test_without_the_emulator_is_said_what_to_install(module: str, words: list[str]) -> None:
    code = f"import runpy, sys; sys.modules['cheroot'] = None; runpy.run_module({module!r}, run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "cheroot is missing" in ended.stderr
    assert "pip install './drivers[emulator]'" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("comission", "n", "--json"),
        ("--json", "node", "list", "--no-such-option"),
        ("power", "sideways", "n", "--json"),
        ("inspect", "--json"),
        ("node", "update", "n", "--json"),
        ("plan", "power", "n", "--json"),
    ],
    ids=" ".join,
)
def test_wrong_usage_under_json_is_one_document(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, list(words))
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "USAGE"
    assert error["message"]
    assert set(error) == {"code", "message", "details", "traceId"}
    assert result.stderr == ""


def test_what_follows_two_dashes_is_no_option() -> None:
    result = CliRunner().invoke(cli, ["comission", "--", "--json"])
    assert result.exit_code == 2
    assert "No such command" in result.stderr


def test_help_under_json_is_still_help() -> None:
    result = CliRunner().invoke(cli, ["inspect", "--json", "--help"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Usage: " in result.stdout


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(cli, ["--version"])
    assert result.exit_code == 0
    assert "bcmetal" in result.output


def test_the_first_help_page_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from bcmetal.cli.main import cli\n"
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0\n"
        "heavy = {'pydantic', 'sqlalchemy', 'rich', 'fastapi', 'cryptography', 'ssl'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 0, ran.stderr
