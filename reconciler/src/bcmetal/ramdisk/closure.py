"""Which packages are needed for some packages: pure, over what `apt-cache show` prints.

Simpler than apt's own answer on purpose: versions are not compared (one suite is consistent), conflicts are not looked for (nothing
is configured, nothing runs its scripts), and what a ramdisk has no use for is left out by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9+.-]*")
_STANZA_FIELDS: Final = ("Package", "Version", "Architecture", "SHA256", "Size", "Filename")


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """One version of a package, as the signed index has it. `needs`: groups of alternatives, each a tuple of names."""

    name: str
    version: str
    architecture: str
    sha256: str
    size_bytes: int
    needs: tuple[tuple[str, ...], ...] = ()
    source: str = ""


class NotFound(Exception):
    """Packages that apt does not offer; `names`, each with who asked for it."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(", ".join(f"{name} (for {by})" if by else name for name, by in sorted(names.items())))
        self.names = dict(names)


def stanzas(text: str) -> Iterator[Package]:
    """The packages of an answer of `apt-cache show`."""
    for block in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        for line in block.splitlines():
            name, colon, value = line.partition(":")
            if colon and name and not name[0].isspace():
                fields[name] = value.strip()
        if not all(fields.get(name) for name in _STANZA_FIELDS):
            continue
        if not _NAME.fullmatch(fields["Package"]) or not fields["Size"].isdecimal():
            continue
        yield Package(
            name=fields["Package"],
            version=fields["Version"],
            architecture=fields["Architecture"],
            sha256=fields["SHA256"].lower(),
            size_bytes=int(fields["Size"]),
            needs=tuple(_groups(f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}")),
            source=fields.get("Source", fields["Package"]),
        )


def _groups(text: str) -> Iterator[tuple[str, ...]]:
    """`a (>= 1) | b, c:any` as (a, b), (c)."""
    for group in text.split(","):
        names = [m.group() for one in group.split("|") if (m := _NAME.match(one.strip()))]
        if names:
            yield tuple(names)


def closure(
    wanted: Sequence[str],
    show: Callable[[Collection[str]], Mapping[str, Package]],
    providers: Callable[[Collection[str]], Mapping[str, Sequence[str]]],
    left_out: Collection[str] = (),
) -> list[Package]:
    """The wanted packages and all that they need, by name.

    `show` answers for the names that are real packages; `providers` names the packages that provide a virtual one. An alternative that
    is chosen already, or left out, is as good as the first. Raises NotFound.
    """
    out = frozenset(left_out)
    chosen: dict[str, Package] = {}
    known: dict[str, Package | None] = {}
    fresh: dict[str, str] = dict.fromkeys(wanted, "")
    while fresh:
        _look_up(fresh, show, known)
        missing = {name: by for name, by in fresh.items() if known[name] is None}
        if missing:
            raise NotFound(missing)
        chosen |= {name: package for name in fresh if (package := known[name]) is not None}
        groups = [(group, p.name) for name in sorted(fresh) if (p := chosen[name]) for group in p.needs]
        open_groups = [(g, by) for g, by in groups if not any(name in chosen or name in out for name in g)]
        _look_up({name for group, _ in open_groups for name in group}, show, known)
        virtual = {name for g, _ in open_groups if not any(known[n] for n in g) for name in g}
        provided = providers(virtual) if virtual else {}
        fresh = {}
        for group, by in open_groups:
            real = [name for name in group if known[name]]
            real = real or [p for name in group for p in sorted(provided.get(name, ()))]
            if any(name in out or name in chosen or name in fresh for name in real):
                continue
            fresh[real[0] if real else group[0]] = by
    return sorted(chosen.values())


def _look_up(
    names: Collection[str],
    show: Callable[[Collection[str]], Mapping[str, Package]],
    known: dict[str, Package | None],
) -> None:
    unknown = sorted(name for name in names if name not in known)
    if unknown:
        found = show(unknown)
        known.update({name: found.get(name) for name in unknown})
