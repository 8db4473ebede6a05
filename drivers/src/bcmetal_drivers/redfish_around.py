"""What stands around a system: its chassis and its managers, each read once in a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from bcmetal_drivers.redfish_document import Doc, link, links
from bcmetal_drivers.redfish_tree import Tree

CHASSIS: Final = 16
MANAGERS: Final = 8


def chassis(tree: Tree, system: Doc) -> Iterator[tuple[str, dict[str, Any]]]:
    """The chassis that the system names; where it names none, those that name it or no system at all."""
    named = links(system, "Links", "Chassis")
    if named:
        yield from _documents(tree, named[:CHASSIS])
        return
    own = tree.system_path()
    collection = link(tree.root(), "Chassis")
    for path, doc in _documents(tree, tree.members(collection)[:CHASSIS] if collection else ()):
        others = links(doc, "Links", "ComputerSystems")
        if not others or own in others:
            yield path, doc


def managers(tree: Tree) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _documents(tree, tree.manager_paths()[:MANAGERS])


def _documents(tree: Tree, paths: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in dict.fromkeys(paths):
        doc = tree.find(path)
        if doc is not None:
            yield path, doc
