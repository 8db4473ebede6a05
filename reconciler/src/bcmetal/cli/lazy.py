"""A click group whose commands are imported when they are called; the help of the group itself imports none."""

from __future__ import annotations

import importlib
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, entries in self.sections:
            with formatter.section(heading):
                formatter.write_dl([(name, entry.help) for name, entry in entries.items()])
