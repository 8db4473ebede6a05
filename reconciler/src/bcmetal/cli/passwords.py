"""Secrets come by a prompt, from a private file, or from standard input; never from the command line or the environment."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from pydantic import SecretStr

from bcmetal.client import read_private

STDIN = Path("-")


def take_secret(what: str, file: Path | None, *, confirm: bool = True) -> SecretStr:
    """`file` `-`, or no file and no terminal: the first line of standard input. A prompt shows nothing and asks twice."""
    if file is not None and file != STDIN:
        return read_private(file)
    if file == STDIN or not sys.stdin.isatty():
        text = sys.stdin.readline().rstrip("\r\n")
    else:
        text = click.prompt(what, hide_input=True, confirmation_prompt=confirm, err=True)
    if not text:
        raise click.UsageError(
            f"{what}: nothing was given; type it at a terminal, send it on standard input, or name a private file"
        )
    return SecretStr(text)
