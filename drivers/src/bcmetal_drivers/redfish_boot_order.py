"""The boot order over Redfish (ComputerSystem.Boot.BootOrder, BootOption): the lasting choice of a BMC that knows no lasting override.

Which device an option starts is told by its Alias where it has one, else guessed from its UEFI device path, else from its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from bcmetal_drivers.errors import MaybeSent, NotAsAsked, Unsupported
from bcmetal_drivers.redfish_document import Doc, dig, link, text
from bcmetal_drivers.redfish_settings import named_settings
from bcmetal_drivers.redfish_tasks import until
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import BootDevice

ALIASES: Final[Mapping[str, BootDevice]] = {
    "Pxe": BootDevice.PXE,
    "Hdd": BootDevice.DISK,
    "Cd": BootDevice.CD,
    "UsbCd": BootDevice.CD,
    "BiosSetup": BootDevice.BIOS_SETUP,
}
PATHS: Final = (
    (re.compile(r"CDROM\(", re.IGNORECASE), BootDevice.CD),
    (re.compile(r"MAC\(.*IPv[46]\((?!.*Uri\()", re.IGNORECASE), BootDevice.PXE),
    (re.compile(r"HD\(|NVMe\(|Sata\(|Scsi\(|SAS\(", re.IGNORECASE), BootDevice.DISK),
)
NAMES: Final = (
    (re.compile(r"\b(?:CD|DVD)\b|CDROM|DVDROM|optical|virtual (?:cd|media)", re.IGNORECASE), BootDevice.CD),
    (re.compile(r"setup", re.IGNORECASE), BootDevice.BIOS_SETUP),
    (re.compile(r"\bPXE", re.IGNORECASE), BootDevice.PXE),
    (
        re.compile(r"hard ?(?:disk|drive)|\bHDD\b|\bSSD\b|\bNVMe\b|\bRAID\b|logical drive", re.IGNORECASE),
        BootDevice.DISK,
    ),
    (re.compile(r"^network$", re.IGNORECASE), BootDevice.PXE),
)


def put_first(tree: Tree, device: BootDevice) -> None:
    """All options of that kind come first, each keeping its place among the others; read back. Raises Unsupported where none is."""
    system = tree.system()
    now = _order(system)
    found = kinds(tree, system)
    first = [name for name in now if found.get(name) is device]
    if not first:
        raise Unsupported(
            f"{tree.address}: the BMC knows no lasting boot override, and no boot option for {device.value}"
        )
    wanted = first + [name for name in now if name not in first]
    if wanted == (_waiting(tree, system) or now):
        return
    path = _written_at(tree, system)
    try:
        answer = tree.patch(path, {"Boot": {"BootOrder": wanted}}, follow=False)
    except MaybeSent:
        if not _is_so(tree, wanted):
            raise
        return
    if until(tree.door, answer, lambda: [] if _is_so(tree, wanted) else ["BootOrder"]):
        raise NotAsAsked(f"{tree.door.origin}{path}: acknowledged, and the boot order is as it was")


def kind_of(option: Doc) -> BootDevice | None:
    alias = ALIASES.get(text(option, "Alias") or "")
    if alias is not None:
        return alias
    path, name = (
        text(option, "UefiDevicePath", limit=1024) or "",
        text(option, "DisplayName") or text(option, "Name") or "",
    )
    for pattern, device in PATHS:
        if pattern.search(path):
            return device
    return next((device for pattern, device in NAMES if pattern.search(name)), None)


def kinds(tree: Tree, system: Doc) -> dict[str, BootDevice]:
    """By the reference that the boot order names (`BootOptionReference`)."""
    found: dict[str, BootDevice] = {}
    for _, option in tree.documents(link(system, "Boot", "BootOptions")):
        reference, kind = text(option, "BootOptionReference"), kind_of(option)
        if reference and kind and option.get("BootOptionEnabled") is not False:
            found[reference] = kind
    return found


def _order(doc: Doc | None) -> list[str]:
    listed = dig(doc, "Boot", "BootOrder")
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []


def _waiting(tree: Tree, system: Doc) -> list[str]:
    return _order(tree.find(named_settings(system)))


def _written_at(tree: Tree, system: Doc) -> str:
    settings = named_settings(system)
    return settings if settings is not None and _waiting(tree, system) else tree.system_path()


def _is_so(tree: Tree, wanted: list[str]) -> bool:
    """In force, or waiting for the next boot."""
    system = tree.system()
    return wanted in (_order(system), _waiting(tree, system))
