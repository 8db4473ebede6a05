"""What minting one token and minting a list of them have in common: what is asked for, where the bearers go, the join line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from bcmetal.cli.join_line import NO_CA, JoinLine
from bcmetal.cli.node_options import given
from bcmetal.cli.session import Session


@dataclass(frozen=True, slots=True)
class Wanted:
    """What all tokens of one call have in common."""

    uses: int
    ttl_s: int
    allow_reclaim: bool
    hosted: str | None

    def body(self, session: Session, expect: Mapping[str, str], key: str) -> dict[str, Any]:
        fields = given(hosted=self.hosted, expect=dict(expect) or None, allowReclaim=self.allow_reclaim or None)
        return {
            **session.where(),
            "maxUses": self.uses,
            "ttlSeconds": self.ttl_s,
            "idempotencyKey": key,
            **fields,
        }


@contextlib.contextmanager
def private_file(path: Path | None) -> Iterator[IO[str] | None]:
    """A new file, 0600, there before anything is minted for it; gone again when nothing was written."""
    if path is None:
        yield None
        return
    import os

    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise click.UsageError(f"{path} is there already, and not written over") from None
    except OSError as e:
        raise click.UsageError(f"{path}: {e.strerror}") from e
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        try:
            yield file
        finally:
            file.flush()
            os.fsync(descriptor)
            if file.tell() == 0:
                path.unlink(missing_ok=True)


def tell_line(line: JoinLine, token_file: str, fresh: bool = True) -> None:
    if not line.pins:
        click.echo(f"bcmetal: {NO_CA}", err=True)
        return
    if fresh:
        click.echo(f"join line: {line.text(token_file)}", err=True)
        for note in line.notes():
            click.echo(f"  {note}", err=True)
