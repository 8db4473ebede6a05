"""What stands around a system: its chassis and its managers, each read once in a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from bcmetal_drivers.redfish_document import Doc, key, link, links, text
from bcmetal_drivers.redfish_tree import Tree

CHASSIS: Final = 16
WIDER: Final = 64
BOARDS: Final = ("Component", "Module", "Card", "Cartridge", "Zone")  # chassis that are parts of a machine
MANAGERS: Final = 8


def chassis(tree: Tree, system: Doc) -> Iterator[tuple[str, dict[str, Any]]]:
    """The chassis that the system names; where it names none, those that name it or no system at all."""
    named = links(system, "Links", "Chassis")
    if named:
        yield from _documents(tree, named[:CHASSIS])
        return
    own = key(tree.system_path())
    collection = link(tree.root(), "Chassis")
    for path, doc in _documents(tree, tree.members(collection)[:CHASSIS] if collection else ()):
        others = links(doc, "Links", "ComputerSystems")
        if not others or own in map(key, others):
            yield path, doc


def wider_chassis(tree: Tree, system: Doc) -> Iterator[tuple[str, dict[str, Any]]]:
    """The other chassis of this machine: those that name it, or a baseboard beside it; where it is the only one, also those that name none."""
    beside = tree.others()
    own = {key(path) for path in (tree.system_path(), *(beside or ()))}
    named = {key(path) for path in links(system, "Links", "Chassis")}
    collection = link(tree.root(), "Chassis")
    with tree.reading() as reading:
        listed = list(reading.documents(collection))[:WIDER]
    for path, doc in listed:
        linked = {key(one) for one in links(doc, "Links", "ComputerSystems")}
        if key(path) not in named and (linked & own or (not linked and beside is not None)):
            yield path, doc


def is_a_board(chassis: Doc) -> bool:
    return text(chassis, "ChassisType") in BOARDS


def managers(tree: Tree) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _documents(tree, tree.manager_paths()[:MANAGERS])


def _documents(tree: Tree, paths: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in dict.fromkeys(paths):
        doc = tree.find(path)
        if doc is not None:
            yield path, doc
