"""Memory modules, and how much memory there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from bcmetal_drivers.redfish_chassis import Look
from bcmetal_drivers.redfish_document import Doc, link, number
from bcmetal_drivers.redfish_parts import Part, count, is_absent, is_told, part, place, said
from bcmetal_drivers.redfish_processors import every_system

MIB: Final = 1024**2
GIB: Final = 1024**3
LARGEST: Final = 2**60
ODD_MIB: Final = 256  # no module is of a size between; persistent ones are, but by far more than is mended here
GIB_IN_MIB: Final = 1024
OF_A_GPU: Final = (("gddr",), ("gddr", "hbm"))  # of a system, which may have HBM beside its CPUs; of a baseboard
PERSISTENT: Final = ("optane", "nvdimm", "persistent")


def dimms(look: Look) -> Iterator[Part]:
    """Without the empty slots, and without what belongs to a GPU. A module may be told without its size.

    Where the system lists none, the memory on the baseboards beside it is its own, but for that of their GPUs.
    """
    found = False
    for n, system in enumerate(every_system(look)):
        if found:
            return
        for path, doc in look.reading.documents(link(system, "Memory")):
            module = _module(path, doc)
            if module is not None and not _kind(module).startswith(OF_A_GPU[n > 0]):
                found = True
                yield module


def _module(path: str, doc: Doc) -> Part | None:
    """None for an empty slot."""
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
    return found if not is_absent(doc) and (size or is_told(found, "serial", "partNumber")) else None


def _kind(module: Part) -> str:
    return str(module.get("type") or "").lower()


def _size(doc: Doc) -> int | None:
    mib = count(doc, "CapacityMiB")
    if mib and mib % ODD_MIB:  # megabytes, made MiB as if they had been of a million bytes (Gigabyte, Accton)
        real = round(mib * MIB / 1e6)
        mib = next((one for one in (real, real + 1) if one % GIB_IN_MIB == 0), mib)
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
