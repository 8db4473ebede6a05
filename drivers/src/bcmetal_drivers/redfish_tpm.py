"""Clearing the TPM over Redfish: by a BIOS setting that the next boot carries out and takes back.

No standard names it. It is found by its name and by a value that says so, in the attribute registry where there is one. Seen: Tpm2Hierarchy
(Dell), TpmOperation and Tpm2Operation (HPE), PendingOperation (AMI), TrustedComputingGroup_DeviceOperation (Lenovo).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.redfish_bios import attributes_of, bios, document, registry, set_bios
from bcmetal_drivers.redfish_document import Doc, dig, text
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import BiosValue

NAME: Final = re.compile(r"tpm|trusted_?comput|tcg|pendingoperation", re.IGNORECASE)
CLEARS: Final = re.compile(r"(?:tpm2?[ _]?)?clear(?:[ _]?tpm2?)?", re.IGNORECASE)
KNOWN: Final[Mapping[str, str]] = {
    "Tpm2Hierarchy": "Clear",
    "TpmOperation": "Clear",
    "Tpm2Operation": "Clear",
    "PendingOperation": "TPM Clear",
    "TrustedComputingGroup_DeviceOperation": "Clear",
}


def clear(tree: Tree) -> None:
    """Raises Unsupported where the BIOS has no such setting."""
    name, word = _setting(tree)
    set_bios(tree, {name: word})


def waits(tree: Tree) -> bool:
    """Whether a clear still waits for a boot, or is shown as not carried out yet."""
    name, word = _setting(tree)
    state = bios(tree)
    return state.pending.get(name) == word or state.attributes.get(name) == word


def _setting(tree: Tree) -> tuple[str, BiosValue]:
    doc = document(tree)
    entries = registry(tree, doc)
    for name, value in attributes_of(doc).items():
        if not NAME.search(name) or not isinstance(value, str | bool) or dig(entries.get(name), "ReadOnly") is True:
            continue
        if isinstance(value, bool):
            if CLEARS.fullmatch(name):
                return name, True
            continue
        word = _word(entries.get(name), name)
        if word is not None:
            return name, word
    raise Unsupported(f"{tree.address}: no BIOS setting of this machine clears its TPM")


def _word(entry: Doc | None, name: str) -> str | None:
    values = dig(entry, "Value")
    words = [text(value, "ValueName") or "" for value in (values if isinstance(values, list) else [])]
    return next((word for word in words if CLEARS.fullmatch(word)), None) or KNOWN.get(name)
