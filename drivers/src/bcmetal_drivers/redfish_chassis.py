"""What is in the chassis: power supplies, fans, PCIe devices, and a TPM that only the chassis tells of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from bcmetal_drivers.redfish_document import Doc, dig, key, link, links, objects, text
from bcmetal_drivers.redfish_parts import Part, count, is_absent, is_told, order, part, said
from bcmetal_drivers.redfish_reading import Reading
from bcmetal_drivers.redfish_tree import Tree

DEVICES: Final = 512
PRESENT: Final = ("model", "serial", "partNumber", "capacityWatts")  # one of these a power supply says that is there
TRUSTED: Final = 4  # chassis that are looked into for a TPM where the system names none


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one machine. `others`: systems beside it that are no machines."""

    tree: Tree
    reading: Reading
    system: Doc
    chassis: tuple[tuple[str, Doc], ...] = ()
    others: tuple[str, ...] = ()


def around(look: Look) -> Look:
    """The same look, with the chassis that the system is in and what they contain; where it is the BMC's only machine, all that there are.

    A chassis whose links name other machines only is another's.
    """
    tree, reading = look.tree, look.reading
    beside = tree.others()
    found: dict[str, tuple[str, Doc]] = {}
    if beside is not None:
        found = {key(path): (path, doc) for path, doc in reading.documents(link(tree.root(), "Chassis"))}
    waiting = [path for _, doc in found.values() for path in links(doc, "Links", "Contains")]
    waiting += links(look.system, "Links", "Chassis")
    while waiting and len(found) < DEVICES:
        path = waiting.pop()
        if key(path) not in found:
            doc = reading.lenient(path)
            if doc is not None:
                found[key(path)] = (path, doc)
                waiting += links(doc, "Links", "Contains")
    ordered = sorted(found.values(), key=lambda one: order(one[0]))
    return replace(look, chassis=tuple(ordered), others=beside or ())


# ---------------------------------------------------------------- power and cooling


def power_supplies(look: Look) -> Iterator[Part]:
    """Of the Power resource; where it is not there, of the PowerSubsystem that took its place."""
    seen: set[str] = set()
    for _, chassis in look.chassis:
        for path, doc in _either(
            look.reading, chassis, ("Power", "PowerSupplies"), ("PowerSubsystem", "PowerSupplies")
        ):
            found = part(doc, path, capacityWatts=count(doc, "PowerCapacityWatts"))
            name = str(found.get("serial") or path)
            if not is_absent(doc) and is_told(found, *PRESENT) and name not in seen:
                seen.add(name)
                yield found


def fans(look: Look) -> Iterator[Part]:
    for _, chassis in look.chassis:
        for path, doc in _either(look.reading, chassis, ("Thermal", "Fans"), ("ThermalSubsystem", "Fans")):
            if not is_absent(doc):
                yield part(doc, path, name=said(doc, "Name") or said(doc, "FanName"))


def _either(
    reading: Reading, chassis: Doc, old: tuple[str, str], new: tuple[str, str]
) -> Iterator[tuple[str | None, Doc]]:
    inside = objects(reading.lenient(link(chassis, old[0])), old[1], limit=DEVICES)
    whole = [one for one in inside if set(one) - {"@odata.id"}]
    if whole:
        yield from ((text(one, "@odata.id", limit=1024), one) for one in whole)
    else:
        yield from reading.documents(link(reading.lenient(link(chassis, new[0])), new[1]))


# ---------------------------------------------------------------- PCIe devices


def pcie_devices(look: Look) -> Iterator[tuple[str, Doc]]:
    """Those of the chassis, and those that only the system lists: several makers list each under both, by the same id."""
    seen: set[str] = set()
    ids: set[str] = set()
    for _, chassis in look.chassis:
        collection = link(chassis, "PCIeDevices")
        listed = links(chassis, "PCIeDevices") or links(chassis, "Links", "PCIeDevices")
        for path, doc in look.reading.documents(collection) if collection else _read(look.reading, listed, seen, ids):
            if key(path) not in seen and not is_absent(doc):
                seen.add(key(path))
                ids.add(_id(path))
                yield path, doc
    for path, doc in _read(look.reading, links(look.system, "PCIeDevices"), seen, ids):
        if not is_absent(doc):
            yield path, doc


def _read(reading: Reading, paths: tuple[str, ...], seen: set[str], ids: set[str]) -> Iterator[tuple[str, Doc]]:
    for path in paths[:DEVICES]:
        if key(path) not in seen and _id(path) not in ids:
            doc = reading.lenient(path)
            if doc is not None:
                yield path, doc


def _id(path: str) -> str:
    return key(path).rpartition("/")[2]


def pcie_part(path: str, doc: Doc) -> Part:
    return part(doc, path, type=said(doc, "DeviceType"))


# ---------------------------------------------------------------- TPM


def tpm_of(look: Look) -> Part | None:
    """The system's TrustedModules; else the chassis' TrustedComponents of its kind."""
    modules = dig(look.system, "TrustedModules")
    for module in modules if isinstance(modules, list) else [modules]:
        found = _tpm(module, text(module, "InterfaceType"))
        if found is not None:
            return found
    named = {key(path) for path in links(look.system, "Links", "Chassis")}
    own = [one for one in look.chassis if key(one[0]) in named] or look.chassis[:TRUSTED]
    for _, chassis in own:  # not of all: each GPU of a baseboard has a root of trust of its own
        for _, doc in look.reading.documents(link(chassis, "TrustedComponents")):
            words = " ".join(str(text(doc, name) or "") for name in ("Id", "Name", "Model", "Description"))
            if "tpm" in words.lower():
                found = _tpm(doc, "TPM2_0" if "2.0" in words or "2_0" in words else "TPM")
                if found is not None:
                    return found
    return None


def _tpm(doc: Any, kind: str | None) -> Part | None:
    if kind is None or is_absent(doc):
        return None
    told = {"type": kind, "state": text(doc, "Status", "State"), "firmware": said(doc, "FirmwareVersion")}
    return {name: value for name, value in told.items() if value is not None}
