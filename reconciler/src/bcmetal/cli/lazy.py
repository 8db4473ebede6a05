"""A click group whose commands are imported when they are called; the help of the group itself imports none."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Entry:
    """`where` is `module:attribute`, `help` the line that the group's own help shows."""

    where: str
    help: str


class LazyGroup(click.Group):
    """`sections` gives the help page its headings and the order of the commands."""

    def __init__(self, *args: Any, sections: Sequence[tuple[str, Mapping[str, Entry]]] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.entries = {name: entry for _, entries in sections for name, entry in entries.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.where.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if not isinstance(found, click.Command):
            raise TypeError(f"{entry.where} is no command")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """An unknown command is refused with the one that was likely meant."""
        name = args[0]
        if name not in self.entries and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.entries, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, entries in self.sections:
            with formatter.section(heading):
                formatter.write_dl([(name, entry.help) for name, entry in entries.items()])


class TopGroup(LazyGroup):
    """The whole command line. Under --json what click itself finds wrong with the usage is told as one JSON document, too."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **more: Any) -> Any:
        """Exit codes stay click's: 2 for wrong usage."""
        words = sys.argv[1:] if args is None else list(args)
        before_names = words[: words.index("--")] if "--" in words else words
        if "--json" not in before_names:
            return super().main(words, *rest, **more)
        try:
            code = super().main(words, *rest, **{**more, "standalone_mode": False})
        except click.ClickException as fault:
            from bcmetal.cli.session import Session, say_fault

            say_fault(Session(as_json=True), "USAGE", fault.format_message())
            sys.exit(fault.exit_code)
        except click.Abort:
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)
