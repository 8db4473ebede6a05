"""CPUs and GPUs. A machine that is off may tell of none: then the summaries tell, or nothing is known, which is not none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from bcmetal_drivers.redfish_chassis import Look
from bcmetal_drivers.redfish_document import Doc, dig, link, links, text
from bcmetal_drivers.redfish_parts import Part, count, is_absent, is_told, part, place, said, serial_of

GPU_TYPES: Final = ("gpu", "accelerator")
CPU_TYPES: Final = ("cpu", "")
SUMMED: Final = 64  # CPUs that a summary may count
GPU_CLASSES: Final = ("displaycontroller", "processingaccelerators", "coprocessor")
CLASS_CODES: Final = (0x0300, 0x0302, 0x0B40, 0x1200)  # VGA, 3D controller, co-processor, processing accelerator
VENDORS: Final = (0x10DE,)  # NVIDIA, whose other devices have the words of a network or of a switch
CONSOLES: Final = (0x1A03, 0x102B)  # PCI vendors of the graphics of BMCs: ASPEED, Matrox
CONSOLE_WORDS: Final = ("embedded", "integrated", "onboard", "aspeed", "matrox", "vga")
OTHER_WORDS: Final = (
    "ethernet",
    "network",
    "nic",
    "nvme",
    "ssd",
    "raid",
    "sata",
    "sas",
    "usb",
    "chipset",
    "switch",
    "bridge",
)
ASKED: Final = 64  # PCIe devices whose functions are looked at


def processors(look: Look, system: Doc) -> Iterator[tuple[str, Doc]]:
    for path, doc in look.reading.documents(link(system, "Processors")):
        if not is_absent(doc):
            yield path, doc


def is_gpu(doc: Doc) -> bool:
    return _type(doc) in GPU_TYPES


def cpus(look: Look) -> Iterator[Part]:
    """Sockets that say nothing of what is in them are empty. Where the system lists none, those on the baseboards beside it are its own."""
    found = False
    for system in every_system(look):
        if found:
            return
        for path, doc in processors(look, system):
            told = _cpu(path, doc) if _type(doc) in CPU_TYPES else {}
            if is_told(told, "model", "cores", "manufacturer", "serial", "partNumber"):
                found = True
                yield told


def every_system(look: Look) -> Iterator[Doc]:
    """The machine's system, then those beside it that are no machines."""
    yield look.system
    for path in look.others:
        yield look.reading.lenient(path) or {}


def from_summary(system: Doc) -> Iterator[Part]:
    """As many CPUs as the system's summary counts, of what it says of them."""
    summary = dig(system, "ProcessorSummary")
    sockets = count(summary, "Count") or 0
    if not 0 < sockets <= SUMMED:
        return
    for _ in range(sockets):
        told = {
            "model": said(summary, "Model"),
            "cores": _share(count(summary, "CoreCount"), sockets),
            "threads": _share(count(summary, "LogicalProcessorCount"), sockets),
        }
        yield {name: value for name, value in told.items() if value is not None}


def of_model(system: Doc, cpu: Part) -> Part:
    """One that does not say its model is of the summary's."""
    model = None if "model" in cpu else said(system, "ProcessorSummary", "Model")
    return cpu if model is None else {**cpu, "model": model}


def _share(whole: int | None, sockets: int) -> int | None:
    return None if whole is None or whole % sockets else whole // sockets


def _type(doc: Doc) -> str:
    return (text(doc, "ProcessorType") or "").lower()


def _cpu(path: str, doc: Doc) -> Part:
    ids = dig(doc, "ProcessorId")
    return part(
        doc,
        path,
        cores=count(doc, "TotalCores"),
        threads=count(doc, "TotalThreads"),
        socket=place(doc),
        maxSpeedMhz=count(doc, "MaxSpeedMHz"),
        architecture=said(doc, "InstructionSet"),
        microcode=said(ids, "MicrocodeInfo"),
        stepping=said(ids, "Step"),
    )


# ---------------------------------------------------------------- GPUs


def gpus(look: Look, devices: Iterable[tuple[str, Doc]], others: Iterable[Part]) -> Iterator[Part]:
    """Processors of that type, of the system and of baseboards beside it; where there are none, PCIe devices that are GPUs.

    `others`: drives and network cards, which need not be looked at.
    """
    by_serial = {serial: doc for _, doc in devices if (serial := serial_of(doc))}
    found = False
    for system in every_system(look):
        for path, doc in processors(look, system):
            if is_gpu(doc):
                found = True
                yield _gpu(path, doc, by_serial.get(serial_of(doc) or ""))
    if not found:
        known = {one["serial"] for one in others if "serial" in one}
        for path, doc in list(devices)[:ASKED]:
            if serial_of(doc) not in known and _shows_pictures_or_computes(look, doc):
                yield _gpu(path, doc, None)


def _gpu(path: str, doc: Doc, device: Doc | None) -> Part:
    """A processor that does not say its model is told by the PCIe device of the same serial number."""
    return part(
        doc,
        path,
        model=said(doc, "Model") or said(device, "Model") or said(device, "Name"),
        memoryBytes=_memory(doc),
        slot=place(doc),
        uuid=text(doc, "UUID"),
    )


def _memory(doc: Doc) -> int | None:
    mib = count(doc, "MemorySummary", "TotalMemorySizeMiB")
    return mib * 1024 * 1024 if mib else None


def _shows_pictures_or_computes(look: Look, device: Doc) -> bool:
    words = " ".join(str(text(device, name) or "") for name in ("Id", "Name", "Model", "Description")).lower()
    if any(word in words for word in CONSOLE_WORDS) or set(OTHER_WORDS) & set(_LETTERS.split(words)):
        return False
    named = links(device, "Links", "PCIeFunctions")
    functions: Iterable[Any] = (
        (look.reading.lenient(path) for path in named)
        if named
        else (doc for _, doc in look.reading.documents(link(device, "PCIeFunctions")))
    )
    for function in functions:
        if _is_of_a_gpu(function):
            return _hex(function, "VendorId") not in CONSOLES
    return False


def _is_of_a_gpu(function: Any) -> bool:
    """By its class, in words or as PCI's number; one that tells neither by its vendor (Cisco CIMC 4.2)."""
    told = said(function, "DeviceClass"), said(function, "ClassCode")
    if told == (None, None):
        return _hex(function, "VendorId") in VENDORS
    return (told[0] or "").lower() in GPU_CLASSES or _hex(function, "ClassCode") >> 8 in CLASS_CODES


_LETTERS: Final = re.compile(r"[^a-z]+")


def _hex(function: Any, name: str) -> int:
    try:
        return int(text(function, name) or "0", 16)
    except ValueError:
        return 0
