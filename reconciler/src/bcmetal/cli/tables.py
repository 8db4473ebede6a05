"""Tables and key-value lists for people; text from machines never carries markup or control characters into the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from bcmetal.text import ago, clean

if TYPE_CHECKING:
    from rich.table import Table


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean("-" if cell is None or cell == "" else cell)) for cell in row))
    return table


def print_table(table: Table, *, err: bool = False) -> None:
    """As wide as the terminal; in a pipe as wide as it needs, so that a line stays a line."""
    import io

    from rich.console import Console

    if (sys.stderr if err else sys.stdout).isatty():
        Console(markup=False, stderr=err).print(table)
        return
    buffer = io.StringIO()
    Console(file=buffer, markup=False, width=1000, color_system=None).print(table)
    for line in buffer.getvalue().splitlines():
        if line.strip():
            click.echo(line.rstrip(), err=err)


def node_table(views: Sequence[Mapping[str, Any]]) -> Table:
    return table_of(
        ("node", "state", "power", "doing", "attention", "maker and model", "address", "updated"),
        (
            (
                v.get("name"),
                v.get("state"),
                (v.get("power") or {}).get("observed"),
                _doing(v),
                _attention(v),
                " ".join(str(p) for p in ((v.get("bmc") or {}).get("maker"), (v.get("bmc") or {}).get("model")) if p),
                (v.get("bmc") or {}).get("address"),
                ago(v.get("updatedAt")),
            )
            for v in views
        ),
    )


def _doing(view: Mapping[str, Any]) -> str:
    operation = view.get("operation") or {}
    return f"{operation.get('verb')}: {operation.get('step')}" if operation else ""


def _attention(view: Mapping[str, Any]) -> str:
    marks = [name for name in ("maintenance", "protected") if switched_on(view.get(name))]
    if view.get("lastError"):
        marks.insert(0, str(view["lastError"].get("code")))
    elif view.get("needsAttention"):
        marks.insert(0, "yes")
    return ", ".join(marks)


def switched_on(flag: object) -> bool:
    """`maintenance` and `protected` of a view: a flag, or an object that holds one."""
    return bool(flag.get("on", True)) if isinstance(flag, dict) and flag else bool(flag)


def print_pairs(pairs: Iterable[tuple[str, object]], *, indent: str = "", err: bool = False) -> None:
    """`name  value`, aligned; what is absent is left out."""
    kept = [(name, value) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        click.echo(f"{indent}{name:<{width}}  {clean(value)}", err=err)


def outline(doc: object, indent: int = 0) -> list[str]:
    """A JSON document as an indented outline, for inventories."""
    pad = "  " * indent
    lines: list[str] = []
    if isinstance(doc, dict):
        for key, value in doc.items():
            if isinstance(value, dict | list) and value:
                lines += [f"{pad}{clean(key)}:", *outline(value, indent + 1)]
            elif value not in (None, "", [], {}):
                lines.append(f"{pad}{clean(key)}: {clean(value)}")
    elif isinstance(doc, list):
        for item in doc:
            if isinstance(item, dict):
                first, *rest = outline(item, indent + 1) or [f"{pad}  -"]
                lines += [f"{pad}- {first.strip()}", *rest]
            else:
                lines.append(f"{pad}- {clean(item)}")
    return lines
