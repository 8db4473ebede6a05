"""Which nodes a command is for: names, ids, ranges such as `r1u[01-20,31]`, and patterns such as `gpu-*`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from bcmetal.cli.session import Session

_RANGE: Final = re.compile(r"\[([^\[\]]*)\]")
_PART: Final = re.compile(r"(?P<first>\d+)(?:-(?P<last>\d+))?|(?P<word>[a-z0-9-]+)")
MOST: Final = 10_000


def expand(pattern: str) -> list[str]:
    """`n[08-10]` is n08, n09, n10: as many digits as the first number has. `n[a,c]` lists words. Several brackets multiply."""
    found = _RANGE.search(pattern)
    if found is None:
        if "[" in pattern or "]" in pattern:
            raise click.BadParameter(f"{pattern!r}: a bracket is not closed")
        return [pattern]
    tails = expand(pattern[found.end() :])
    return [
        f"{pattern[: found.start()]}{middle}{tail}"
        for middle in _middles(pattern, found.group(1), MOST // len(tails))
        for tail in tails
    ]


def _middles(pattern: str, inside: str, most: int) -> list[str]:
    out: list[str] = []
    for part in inside.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise click.BadParameter(f"{pattern!r}: [{inside}] is no range such as [01-08] and no list such as [a,b]")
        if match["last"] is None:
            out.append(part.strip())
            continue
        first, last = int(match["first"]), int(match["last"])
        if last < first:
            raise click.BadParameter(f"{pattern!r}: {part.strip()} runs backwards")
        if last - first >= most:
            raise click.BadParameter(f"{pattern!r}: more than {MOST} nodes")
        width = len(match["first"])
        out += [f"{n:0{width}d}" for n in range(first, last + 1)]
    return out


def is_glob(name: str) -> bool:
    return "*" in name or "?" in name


def resolve(session: Session, patterns: Sequence[str]) -> list[str]:
    """Names and ids in the order given, each once; patterns are matched against the pool's nodes."""
    names = [name for pattern in patterns for name in expand(pattern)]
    known: list[str] | None = None
    out: dict[str, None] = {}
    for name in names:
        if not is_glob(name):
            out[name] = None
            continue
        if known is None:
            known = [str(view["name"]) for view in every_node(session, {})]
        matching = sorted(n for n in known if fnmatchcase(n, name))
        if not matching:
            raise click.BadParameter(f"{name!r} matches no node of the pool")
        out.update(dict.fromkeys(matching))
    return list(out)


def every_node(session: Session, wanted: dict[str, Any], *, all_pools: bool = False) -> Iterator[dict[str, Any]]:
    """The views of all nodes that match, page by page."""
    body = {**(session.of_tenant() if all_pools else session.where()), "limit": 200, **wanted}
    while True:
        page = session.client.call("metal", "list", body)
        yield from page["nodes"]
        if not page.get("cursor"):
            return
        body["cursor"] = page["cursor"]
