"""Sessions at a Redfish BMC beside our own: one that was opened with an account may outlive it, and a change of its password (DSP0266)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import MaybeSent, Refused, ServerFault, Unsupported
from bcmetal_drivers.redfish_document import key, link, text
from bcmetal_drivers.redfish_tree import Tree

LIMIT: Final = 64


def end_others(tree: Tree) -> tuple[str, ...]:
    """The user names of those that are there afterwards: some BMCs let nobody end what came by SSH, or by their own page."""
    for path in _others(tree):
        with tolerated(Refused, Unsupported, MaybeSent, ServerFault):
            tree.door.delete(path)
    left = (tree.find(path) for path in _others(tree))
    return tuple(text(doc, "UserName") or "" for doc in left if doc is not None)


def _others(tree: Tree) -> Iterator[str]:
    listed = link(tree.root(), "Links", "Sessions")
    if listed is None:
        listed = link(tree.find(link(tree.root(), "SessionService")), "Sessions")
    if listed is None:
        return
    own = tree.door.session_path
    for path in tree.members(listed)[:LIMIT]:
        if own is None or key(path) != key(own):
            yield path
