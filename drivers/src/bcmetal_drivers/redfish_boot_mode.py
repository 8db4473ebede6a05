"""The boot mode as a BIOS setting: found by its name and by what it says, for each maker calls it something else.

Seen: BootMode (Dell, HPE), BootModeSelect_0042 (Supermicro), BootModes_SystemBootMode (Lenovo).
"""

from __future__ import annotations

import re
from typing import Final

from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.redfish_bios import attributes_of, document, registry, set_bios
from bcmetal_drivers.redfish_document import Doc, dig, text
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import BootMode

NAME: Final = re.compile(r"(?<!secure)(?<!onetime)boot_?mode(?:select)?(?:_[0-9a-f]{4})?$", re.IGNORECASE)
SAYS: Final = {
    BootMode.UEFI: re.compile(r"(?!.*(?:legacy|dual|both)).*uefi", re.IGNORECASE),
    BootMode.LEGACY: re.compile(r"(?!.*(?:uefi|dual|both)).*(?:legacy|bios)", re.IGNORECASE),
}
PAIRS: Final = (
    ("Uefi", "Bios"),
    ("UEFIMode", "LegacyMode"),
    ("UefiOptimized", "LegacyBios"),
    ("UEFI", "LEGACY"),
    ("UEFI", "Legacy"),
)


def by_bios_setting(tree: Tree, mode: BootMode) -> bool:
    """Write it, for the next boot. False where the BIOS has no such setting, or it cannot be told what to write there."""
    try:
        doc = document(tree)
    except Unsupported:
        return False
    for name, value in attributes_of(doc).items():
        if NAME.search(name) and isinstance(value, str) and any(says.match(value) for says in SAYS.values()):
            word = _word(tree, doc, name, value, mode)
            if word is not None:
                set_bios(tree, {name: word})
                return True
    return False


def _word(tree: Tree, doc: Doc, name: str, now: str, mode: BootMode) -> str | None:
    says = SAYS[mode]
    if says.match(now):
        return now
    values = dig(registry(tree, doc).get(name), "Value")
    words = [text(value, "ValueName") or "" for value in (values if isinstance(values, list) else [])]
    pairs = [word for pair in PAIRS if now in pair for word in pair]
    return next((word for word in words or pairs if says.match(word)), None)
