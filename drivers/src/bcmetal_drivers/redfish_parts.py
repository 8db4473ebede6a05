"""How the parts of a machine are told: plain mappings, with nothing in them that the BMC does not say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from bcmetal_drivers.redfish_document import Doc, dig, health, number, text

Part = Mapping[str, object]

NOTHING: Final = frozenset(
    {
        "n/a", "na", "none", "null", "nil", "(null)", "(null string)", "unknown", "undefined", "unspecified", "invalid", "empty",
        "not available", "not applicable", "not specified", "not present", "not provided", "no dimm", "default string",
        "to be filled by o.e.m.", "to be filled by oem", "o.e.m.", "oem",
        "system serial number", "chassis serial number", "base board serial number",
    }
)  # fmt: skip
LARGEST: Final = 2**63


def said(doc: Any, *keys: str) -> str | None:
    """A text that says something: the words that makers put where they have none count as none."""
    found = text(doc, *keys)
    return None if found is None or found.lower() in NOTHING or not re.search(r"[^\W_]", found) else found


def serial_of(doc: Doc) -> str | None:
    """None too for a row of zeros, which is no number of anything."""
    found = said(doc, "SerialNumber")
    return None if found is None or not found.strip("0xX-. ") else found


def count(doc: Any, *keys: str) -> int | None:
    """A whole number above nought."""
    found = number(doc, *keys)
    return int(found) if found is not None and 1 <= found < LARGEST else None


def first(value: Any) -> Any:
    """Some firmware writes a list where the standard has one value."""
    return value[0] if isinstance(value, list) and value else value


def is_absent(doc: Doc) -> bool:
    """Whether it is an empty slot."""
    return (text(doc, "Status", "State") or "").lower() == "absent"


def place(doc: Doc) -> str | None:
    """Where it sits, in the words on the machine."""
    for keys in (("DeviceLocator",), ("Location", "PartLocation", "ServiceLabel"), ("Socket",)):
        found = said(doc, *keys)
        if found:
            return found
    located = first(dig(doc, "PhysicalLocation")) or first(dig(doc, "Location"))
    return said(located, "PartLocation", "ServiceLabel") or said(located, "Info")


def part(doc: Doc, path: str | None, **more: object) -> dict[str, object]:
    """What all parts have, with `more` of their own; what is None is left out."""
    told: dict[str, object] = {
        "id": text(doc, "Id") or text(doc, "MemberId"),
        "name": said(doc, "Name"),
        "manufacturer": said(doc, "Manufacturer"),
        "model": said(doc, "Model"),
        "partNumber": said(doc, "PartNumber"),
        "serial": serial_of(doc),
        "firmware": said(doc, "FirmwareVersion"),
        "health": health(doc),
        "path": path,
    }
    return {name: value for name, value in {**told, **more}.items() if value is not None}


def is_told(found: Part, *names: str) -> bool:
    """Whether it says one of these of itself; by default, what tells that there is something in the slot."""
    return any(name in found for name in names or ("model", "serial", "partNumber"))


def order(path: str) -> tuple[Any, ...]:
    """Sorts `Slot.2` before `Slot.10`: the order that BMCs list members in changes."""
    return tuple((0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in _PIECES.split(path.lower()))


_PIECES: Final = re.compile(r"(\d{1,18})")
