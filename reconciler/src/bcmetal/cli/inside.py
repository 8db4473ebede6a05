"""What the agent saw inside a machine, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from bcmetal.cli.tables import print_pairs, print_table, table_of
from bcmetal.text import ago, clean, size

Doc = Mapping[str, Any]


def print_inside(view: Doc) -> None:
    """`view`: the answer's `deep`, whose `doc` is the agent's own message."""
    doc = view.get("doc") or {}
    click.echo(clean(f"  from inside, {ago(view.get('takenAt'))}:"))
    board, firmware = doc.get("board") or {}, doc.get("firmware") or {}
    print_pairs(
        [
            ("machine", _words(board, "maker", "product", "serial")),
            ("firmware", ", ".join(_firmware(firmware))),
            ("CPUs", _counted(f"{_words(one, 'model')}, {one.get('cores')} cores" for one in _list(doc, "cpus"))),
            (
                "memory",
                f"{size(doc.get('memoryBytes'))}{_modules(_list(doc, 'dimms'))}" if doc.get("memoryBytes") else None,
            ),
            ("GPUs", _counted(_words(one, "model") or str(one.get("pci")) for one in _list(doc, "gpus"))),
            ("TPM", _words(doc.get("tpm") or {}, "version", "maker", "firmware")),
            ("kernel", doc.get("kernel")),
        ],
        indent="  ",
    )
    _disks(_list(doc, "disks"))
    _nics(_list(doc, "nics"))
    for line in _list(doc, "complaints"):
        click.echo(clean(f"  the kernel complains: {line}"))
    for section, why in (doc.get("notes") or {}).items():
        click.echo(clean(f"  {section}: {why}"))


def _list(doc: Doc, name: str) -> Sequence[Any]:
    found = doc.get(name)
    return found if isinstance(found, list) else ()


def _words(doc: Doc, *names: str) -> str:
    return " ".join(str(doc[name]) for name in names if doc.get(name))


def _counted(words: Iterator[str]) -> str:
    return ", ".join(f"{n} × {word}" for word, n in Counter(words).items())


def _firmware(firmware: Doc) -> Iterator[str]:
    yield from filter(None, [_words(firmware, "version", "date"), firmware.get("bootMode")])
    if firmware.get("secureBoot") is not None:
        yield f"secure boot {'on' if firmware['secureBoot'] else 'off'}"


def _modules(dimms: Sequence[Doc]) -> str:
    told = _counted(f"{size(one.get('sizeBytes'))} {_words(one, 'type', 'speedMts')}".strip() for one in dimms)
    return f" ({told})" if told else ""


def _disks(disks: Sequence[Doc]) -> None:
    if disks:
        rows = (
            (
                one.get("serial"),
                one.get("model"),
                size(one.get("sizeBytes")),
                one.get("transport"),
                one.get("health"),
                str(one.get("byPath") or one.get("name")).rpartition("/")[2],
                ", ".join(word for word, name in _MARKS if one.get(name)),
            )
            for one in disks
        )
        print_table(table_of(("disk", "model", "size", "transport", "health", "place", "marks"), rows))


_MARKS = (
    ("shared", "shared"),
    ("removable", "removable"),
    ("read-only", "readOnly"),
    ("a BMC's medium", "virtualMedium"),
)


_LINKS = {"True": "up", "False": "no link"}


def _nics(nics: Sequence[Doc]) -> None:
    if nics:
        rows = (
            (
                one.get("name"),
                one.get("permanentMac") or one.get("mac"),
                one.get("model") or one.get("driver"),
                _LINKS.get(str(one.get("carrier")), "down"),
                f"{one['speedMbps']} Mbit/s" if one.get("speedMbps") else None,
                _words(one.get("neighbour") or {}, "system", "port"),
            )
            for one in nics
        )
        print_table(table_of(("card", "address", "model", "link", "speed", "neighbour"), rows))
