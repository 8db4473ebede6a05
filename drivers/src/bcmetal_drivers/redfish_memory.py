"""Memory modules, and how much memory there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from bcmetal_drivers.redfish_chassis import Look
from bcmetal_drivers.redfish_parts import Part, count, is_absent, is_told, part, place, said
from bcmetal_drivers.redfish_tree import Doc, link, number

MIB: Final = 1024**2
GIB: Final = 1024**3
LARGEST: Final = 2**60
NOT_THE_SYSTEMS: Final = "gddr"  # a GPU's own
PERSISTENT: Final = ("optane", "nvdimm", "persistent")


def dimms(look: Look) -> Iterator[Part]:
    """Without the empty slots, and without what belongs to a GPU. A module may be told without its size."""
    for path, doc in look.reading.documents(link(look.system, "Memory")):
        size = _size(doc)
        found = part(
            doc,
            path,
            capacityBytes=size,
            type=said(doc, "MemoryDeviceType"),
            memory=said(doc, "MemoryType"),
            speedMhz=count(doc, "OperatingSpeedMhz"),
            slot=place(doc),
            ranks=count(doc, "RankCount"),
        )
        kind = str(found.get("type") or "").lower()
        if is_absent(doc) or kind.startswith(NOT_THE_SYSTEMS) or not (size or is_told(found, "serial", "partNumber")):
            continue
        yield found


def _size(doc: Doc) -> int | None:
    mib = count(doc, "CapacityMiB")
    return mib * MIB if mib and mib * MIB < LARGEST else None


def memory_bytes(system: Doc, modules: Iterable[Part], all_told: bool) -> int | None:
    """The modules' sum where all of them told their sizes, else the system's summary, which some makers round; None: not known.

    Modules that keep what is on them are no memory of the system's (Intel Optane, NVDIMM).
    """
    counted = [one for one in modules if not _is_persistent(one)]
    sizes = [size for one in counted if isinstance(size := one.get("capacityBytes"), int)]
    summed = sum(sizes) or None
    if summed and all_told and len(sizes) == len(counted):
        return summed
    gib = number(system, "MemorySummary", "TotalSystemMemoryGiB")
    return int(gib * GIB) if gib and 0 < gib * GIB < LARGEST else summed


def _is_persistent(module: Part) -> bool:
    words = f"{module.get('memory', '')} {module.get('type', '')}".lower()
    return any(word in words for word in PERSISTENT)
