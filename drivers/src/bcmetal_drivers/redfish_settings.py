"""Where changes of a resource are written: its Settings resource (DSP0266, section "Settings resource"), where it has one.

Most name it in `@Redfish.Settings`. Some refuse a write to the resource itself and name it in the refusal only, some answer 405 and name it
nowhere; what was found so is learned.
"""

from __future__ import annotations

import re
from typing import Any, Final

from bcmetal_drivers.redfish_document import Doc, dig, link
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.refusals import all_words
from bcmetal_drivers.wire import Answer

LEARNED, NONE = "settings", "noSettings"
BELOW: Final = ("Settings", "SD", "Pending")  # the names that makers give it
PATH: Final = re.compile(r"/redfish/v1/[\w./~-]{1,500}[\w~-]")


def settings_of(tree: Tree, path: str, doc: Doc) -> tuple[str, dict[str, Any]] | None:
    """The Settings resource of the resource at this path with its document; None where there is none, or it is not there."""
    found = named_settings(doc) or (tree.learned.get(LEARNED) or {}).get(path)
    pending = tree.find(found)
    return (found, pending) if found is not None and pending is not None else None


def named_settings(doc: Doc | None) -> str | None:
    """The Settings resource that a resource names, by a reference or (some OEM firmware) by its path alone."""
    told = dig(doc, "@Redfish.Settings", "SettingsObject")
    return link({"it": told}, "it") or (told if isinstance(told, str) and PATH.fullmatch(told) else None)


def settings_below(tree: Tree, path: str) -> tuple[str, dict[str, Any]] | None:
    """The Settings resource that is there though nothing names it. That there is none is remembered for the conversation."""
    if path in (tree.learned.get(NONE) or ()):
        return None
    for name in BELOW:
        candidate = f"{path.rstrip('/')}/{name}"
        pending = tree.find(candidate)
        if pending is not None:
            _learn(tree, path, candidate)
            return candidate, pending
    tree.learned[NONE] = (*(tree.learned.get(NONE) or ()), path)
    return None


def _learn(tree: Tree, path: str, settings: str) -> None:
    tree.learned[LEARNED] = {**(tree.learned.get(LEARNED) or {}), path: settings}


def settings_after(tree: Tree, path: str, refused: Answer) -> str | None:
    """Where a write to this resource belongs, by the refusal that it met: what that names below the resource, or what is there after a 405."""
    below = f"{path.rstrip('/')}/"
    named: list[str] = [hint for hint in PATH.findall(all_words(refused)) if hint.startswith(below)]
    guessed = [below + name for name in BELOW] if refused.status_code == 405 else []
    for candidate in [*named[:2], *guessed]:
        if tree.find(candidate) is not None:
            _learn(tree, path, candidate)
            return candidate
    return None
