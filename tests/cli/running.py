"""Runs the command line as a person would, in this process, and tells what it answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from bcmetal.cli.main import cli


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def doc(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Run = Callable[..., Ran]


def invoke(*words: str, stdin: str | None = None) -> Ran:
    result = CliRunner().invoke(cli, list(words), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)
