"""Drives over Redfish, and the BMC's own erase of them (Drive.SecureErase)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bcmetal_drivers.capabilities import Drive, Job
from bcmetal_drivers.errors import Refused, Unsupported
from bcmetal_drivers.redfish_power import health_of
from bcmetal_drivers.redfish_tasks import read_job, started
from bcmetal_drivers.redfish_tree import Doc, Tree, action_target, dig, link, links, number, text

SECURE_ERASE: Final = "#Drive.SecureErase"
MEDIA: Final = {"SSD": "ssd", "HDD": "hdd"}


@dataclass(frozen=True, slots=True)
class _Found:
    path: str
    doc: Doc
    with_volumes: bool  # its storage keeps volumes


def drives(tree: Tree) -> tuple[Drive, ...]:
    """Those that have a serial number: without one nobody can say which drive was meant."""
    return tuple(drive for drive in map(_drive, _all(tree)) if drive.serial)


def erase(tree: Tree, serial: str) -> Job:
    """Starts it, or finds the one that runs already. A lost answer is MaybeSent: ask again, or look at the drive."""
    for found in _all(tree):
        if text(found.doc, "SerialNumber") == serial:
            running = _running(found.doc)
            if running is not None:
                return read_job(tree.door, running)
            target = action_target(found.doc, SECURE_ERASE)
            if target is None:
                raise Unsupported(f"{tree.door.origin}{found.path}: the BMC offers no erase of this drive")
            return started(tree.door, tree.door.post(target, data={}))
    raise Refused(f"{tree.address}: the BMC shows no drive with serial number {serial}")


def erase_job(tree: Tree, ref: str) -> Job:
    return read_job(tree.door, ref)


def _all(tree: Tree) -> Iterator[_Found]:
    """All drives of all storage of the system, each once."""
    seen: set[str] = set()
    for _, storage in tree.documents(link(tree.system(), "Storage")):
        for path in links(storage, "Drives"):
            if path not in seen:
                seen.add(path)
                doc = tree.find(path)
                if doc is not None:
                    yield _Found(path, doc, link(storage, "Volumes") is not None)


def _running(doc: Doc) -> str | None:
    """The Task of an erase under way."""
    operations = dig(doc, "Operations")
    for operation in operations if isinstance(operations, list) else []:
        name = (text(operation, "OperationName") or text(operation, "Operation") or "").lower()
        if "sanitize" in name or "erase" in name:
            return link(operation, "AssociatedTask")
    return None


def _drive(found: _Found) -> Drive:
    doc = found.doc
    capacity = number(doc, "CapacityBytes")
    media = "nvme" if _is_nvme(doc) else MEDIA.get((text(doc, "MediaType") or "").upper())
    return Drive(
        serial=text(doc, "SerialNumber") or "",
        model=text(doc, "Model"),
        capacity_bytes=int(capacity) if capacity else None,
        media=media,
        wwn=_wwn(doc),
        path=found.path,
        erasable=action_target(doc, SECURE_ERASE) is not None,
        has_data=_has_data(found),
        health=health_of(doc),
    )


def _has_data(found: _Found) -> bool | None:
    """Volumes on the drive are data. That there are none says something only where a controller keeps volumes.

    NVMe drives that hang on the processor list none, full or empty (seen on Lenovo XCC 2.83 and HPE iLO 5 2.72).
    """
    volumes = dig(found.doc, "Links", "Volumes")
    if not isinstance(volumes, list):
        return None
    if volumes:
        return True
    return False if found.with_volumes and not _is_nvme(found.doc) else None


def _is_nvme(doc: Doc) -> bool:
    return (text(doc, "Protocol") or "").lower().startswith("nvme")


def _wwn(doc: Doc) -> str | None:
    identifiers = dig(doc, "Identifiers")
    for identifier in identifiers if isinstance(identifiers, list) else []:
        if text(identifier, "DurableNameFormat") in ("NAA", "EUI", "UUID"):
            return text(identifier, "DurableName")
    return None
