"""What became of each node that a command was for, as words, as JSON, and as an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from bcmetal.cli.session import Exit, Session, error_lines, exit_of, worst
from bcmetal.text import clean

GOOD = ("accepted", "done", "unchanged")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`what`: accepted (not waited for), done, failed, aborted, timeout, refused. `error` as the API or `lastError` has it."""

    node: str
    what: str
    view: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    operation_id: str | None = None

    @property
    def exit(self) -> Exit:
        if self.what in GOOD:
            return Exit.DONE
        if self.what == "refused" and self.error is not None:
            return exit_of(str(self.error.get("code")))
        return Exit.FAILED

    def as_json(self) -> dict[str, Any]:
        doc: dict[str, Any] = {"node": self.node, "outcome": self.what}
        for name, value in (("operationId", self.operation_id), ("error", self.error), ("view", self.view)):
            if value is not None:
                doc[name] = value
        return doc

    def line(self, verb: str) -> str:
        state = (self.view or {}).get("state", "")
        if self.what == "accepted":
            return f"{self.node}: {verb} accepted, now {state}" if state else f"{self.node}: {verb} accepted"
        if self.what == "done" and (self.view or {}).get("removedAt"):
            return f"{self.node}: {verb} done, it is gone; its history stays"
        if self.what == "done":
            return f"{self.node}: {verb} done, now {state}" if state else f"{self.node}: {verb} done"
        error = self.error or {}
        because = f": {error.get('code')}: {error.get('message')}" if error else ""
        return f"{self.node}: {verb} {self.what}{f', now {state}' if state else ''}{because}"


def finish(session: Session, verb: str, outcomes: Sequence[Outcome], *, quiet: bool = False) -> Exit:
    """Says what became of the nodes; the worst of it is the exit code."""
    code = worst([o.exit for o in outcomes])
    if session.as_json:
        session.answer({"ok": code is Exit.DONE, "verb": verb, "results": [o.as_json() for o in outcomes]})
        return code
    for o in outcomes:
        if o.what == "refused" and o.error is not None:
            for line in error_lines(o.error, o.node):
                click.echo(line, err=True)
            continue
        if o.what in GOOD and quiet:
            continue
        click.echo(clean(o.line(verb)), err=o.what not in GOOD)
        hint = (o.error or {}).get("hint")
        if hint:
            click.echo(clean(f"  {str(hint).replace('NODE', o.node)}"), err=True)
        elif o.what not in GOOD:
            click.echo(f"  bcmetal why {o.node}", err=True)
    return code
