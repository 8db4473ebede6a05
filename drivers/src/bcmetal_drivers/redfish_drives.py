"""Drives over Redfish, and the BMC's own erase of drives (Drive.SecureErase)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import sushy.exceptions

from bcmetal_drivers.errors import Refused, Unsupported
from bcmetal_drivers.redfish_actions import APPLY_TIME, Action, action
from bcmetal_drivers.redfish_chassis import Look, around
from bcmetal_drivers.redfish_document import Doc, dig, health, key, link, links, number, text
from bcmetal_drivers.redfish_parts import count, first, is_absent, order, place, said, serial_of
from bcmetal_drivers.redfish_tasks import read_job, started
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.refusals import all_words, refusal
from bcmetal_drivers.resources import Drive, Job
from bcmetal_drivers.wire import Answer

SECURE_ERASE: Final = "#Drive.SecureErase"
OEM_ERASES: Final = (".SecureErase", ".Sanitize")
SANITIZATIONS: Final = ("BlockErase", "CryptographicErase", "Overwrite")  # the best that the BMC offers (Drive v1.14)
MEDIA: Final = {"SSD": "ssd", "HDD": "hdd"}
NVME: Final = ("nvme", "pcie")  # protocols; iDRAC 9 says PCIe of NVMe drives
NAMES: Final = ("NAA", "EUI", "UUID", "NGUID")
VIRTUAL: Final = re.compile(r"\bvirtual (cd|dvd|floppy|h-?disk|disk|media|usb)", re.IGNORECASE)  # models of drives
MIB: Final = 1024**2
DEVICES: Final = 512

Find = Callable[[str | None], "dict[str, Any] | None"]


class Reads(Protocol):
    def documents(self, path: str | None) -> Iterator[tuple[str, dict[str, Any]]]: ...


@dataclass(frozen=True, slots=True)
class _Found:
    path: str
    doc: Doc
    storage: Doc | None = None  # None: only its chassis lists it


# ---------------------------------------------------------------- the capability


def drives(tree: Tree) -> tuple[Drive, ...]:
    """Those that have a serial number: without one nobody can say which drive was meant."""
    return tuple(drive for drive in (_drive(found, tree.find) for found in _all(tree)) if drive.serial)


def erase(tree: Tree, serial: str) -> Job:
    """Starts it, or finds the one that runs already. A lost answer is MaybeSent: ask again, or look at the drive."""
    for found in _all(tree):
        if text(found.doc, "SerialNumber") == serial:
            running = _running(found.doc)
            if running is not None:
                return read_job(tree.door, running)
            eraser = _eraser(found.doc)
            if eraser is None:
                raise Unsupported(f"{tree.door.origin}{found.path}: the BMC offers no erase of this drive")
            return started(tree.door, _asked(tree, eraser))
    raise Refused(f"{tree.address}: the BMC shows no drive with serial number {serial}")


def _eraser(doc: Doc) -> Action | None:
    """The standard's action, or a maker's of the same name (`#SmcDrive.SecureErase`, `#…Drive.Sanitize`)."""
    oem = dig(doc, "Actions", "Oem")
    names = (
        [name for name in oem if isinstance(name, str) and name.endswith(OEM_ERASES)] if isinstance(oem, dict) else []
    )
    own = (action(doc, "Oem", name) for name in names)
    return action(doc, SECURE_ERASE) or next((found for found in own if found), None)


def _asked(tree: Tree, eraser: Action) -> Answer:
    """Without saying how: the drive knows its own best. A BMC that refuses that is told how, of what it offers, and when."""
    try:
        return tree.door.post(eraser.target, data={})
    except sushy.exceptions.BadRequestError as error:
        if not isinstance(refusal(error.answer), Refused):
            raise
        kinds = eraser.allowed(tree, "SanitizationType") or ()
        kind = next((word for word in SANITIZATIONS if word in kinds), None)
        body: dict[str, str] = {"SanitizationType": kind} if kind else {}
        if "ApplyTime" in all_words(error.answer):
            body[APPLY_TIME] = "Immediate"
        if not body:
            raise
    return tree.door.post(eraser.target, data=body)


def erase_job(tree: Tree, ref: str) -> Job:
    return read_job(tree.door, ref)


def _all(tree: Tree) -> tuple[_Found, ...]:
    """All drives, each once: of the system's storage, and those that only its chassis list. Raises what keeps any of them from being seen;
    a chassis that cannot be read counts where no storage has a drive.
    """
    with tree.reading() as reading:
        look = around(Look(tree, reading, tree.system()))
        found = list(_of_storages(tree, tree.find, look.system))
        for path in links(look.system, "Links", "Chassis") if not found else ():
            tree.find(path)
        for _, chassis in look.chassis:
            found += _of_chassis(tree, tree.find, chassis)
    return tuple(_each_once(found))


def _each_once(listed: Iterable[_Found]) -> Iterator[_Found]:
    """One that the chassis list by another path is told by its serial number.

    Not the empty bays, and not the BMC's own virtual media, which AMI's BMCs list among the host's USB drives.
    """
    seen: set[str] = set()
    serials: set[str] = set()
    for found in listed:
        serial, model = serial_of(found.doc), said(found.doc, "Model")
        if key(found.path) in seen or is_absent(found.doc) or not (serial or model) or VIRTUAL.search(model or ""):
            continue
        seen.add(key(found.path))
        if found.storage is not None or serial not in serials:
            serials |= {serial} if serial else set()
            yield found


# ---------------------------------------------------------------- the inventory


def drives_seen(look: Look) -> Iterator[Drive]:
    """From every place: Storage, the chassis where the machine is the BMC's only one, and SimpleStorage where there is nothing else."""
    reading = look.reading
    in_chassis = [one for _, chassis in look.chassis for one in _of_chassis(reading, reading.lenient, chassis)]
    for _, storage in reading.documents(link(look.system, "Storage")):
        list(reading.documents(link(storage, "Volumes")))  # all at once, before the drives name them one by one
    found = list(_each_once((*_of_storages(reading, reading.lenient, look.system), *in_chassis)))
    yield from (_drive(one, reading.lenient) for one in found)
    if not found:
        yield from _simple(look)


def in_order(found: Iterable[Drive]) -> tuple[Drive, ...]:
    return tuple(sorted(found, key=lambda drive: order(drive.path or "")))


def _of_storages(reads: Reads, find: Find, system: Doc) -> Iterator[_Found]:
    seen: set[str] = set()
    for _, storage in reads.documents(link(system, "Storage")):
        listed = ((path, find(path)) for path in links(storage, "Drives"))
        inside = reads.documents(link(storage, "Drives"))  # a collection, in later versions of the standard
        for path, doc in (*listed, *inside):
            if doc is not None and key(path) not in seen:
                seen.add(key(path))
                yield _Found(path, doc, storage)


def _of_chassis(reads: Reads, find: Find, chassis: Doc) -> Iterator[_Found]:
    seen: set[str] = set()
    inside = reads.documents(link(chassis, "Drives"))
    listed = ((path, find(path)) for path in links(chassis, "Links", "Drives"))
    for path, doc in (*inside, *listed):
        if doc is not None and key(path) not in seen:
            seen.add(key(path))
            yield _Found(path, doc)


def _simple(look: Look) -> Iterator[Drive]:
    """SimpleStorage tells neither serial numbers nor what its devices are."""
    for path, doc in look.reading.documents(link(look.system, "SimpleStorage")):
        devices = dig(doc, "Devices")
        for n, device in enumerate(devices[:DEVICES] if isinstance(devices, list) else []):
            model, capacity = said(device, "Model"), count(device, "CapacityBytes")
            if (model or capacity) and not is_absent(device) and not VIRTUAL.search(model or ""):
                yield Drive(
                    "",
                    model,
                    capacity,
                    path=f"{path}#/Devices/{n}",
                    health=health(device),
                    manufacturer=said(device, "Manufacturer"),
                )


# ---------------------------------------------------------------- one drive


def _running(doc: Doc) -> str | None:
    """The Task of an erase under way."""
    operations = dig(doc, "Operations")
    for operation in operations if isinstance(operations, list) else []:
        name = (text(operation, "OperationName") or text(operation, "Operation") or "").lower()
        if "sanitize" in name or "erase" in name:
            return link(operation, "AssociatedTask")
    return None


def _drive(found: _Found, find: Find) -> Drive:
    doc = found.doc
    left = number(doc, "PredictedMediaLifeLeftPercent")
    media = "nvme" if _is_nvme(found) else MEDIA.get((text(doc, "MediaType") or "").upper())
    return Drive(
        serial=serial_of(doc) or "",
        model=said(doc, "Model"),
        capacity_bytes=_capacity(doc),
        media=media,
        wwn=_wwn(doc),
        path=found.path,
        erasable=_eraser(doc) is not None,
        has_data=_has_data(found, find),
        health=health(doc),
        manufacturer=said(doc, "Manufacturer"),
        part_number=said(doc, "PartNumber"),
        firmware=said(doc, "Revision") or said(doc, "FirmwareVersion"),
        protocol=said(doc, "Protocol"),
        life_left_percent=int(left) if left is not None and 0 <= left <= 100 else None,
        slot=place(doc),
    )


def _capacity(doc: Doc) -> int | None:
    """In bytes. No drive has a few MiB: what says so counts MiB (Cisco UCS S3260, CIMC 4.1), of at most 32 TiB."""
    told = count(doc, "CapacityBytes")
    return told * MIB if told is not None and told < 32 * MIB else told


def _has_data(found: _Found, find: Find) -> bool | None:
    """Volumes on the drive are data. That there are none says something only where a controller keeps volumes.

    NVMe drives that hang on the processor list none, full or empty (seen on Lenovo XCC 2.83 and HPE iLO 5 2.72), or one that is the
    drive itself (iDRAC 9 6.00: a RawDevice without a RAIDType).
    """
    volumes = dig(found.doc, "Links", "Volumes")
    if not isinstance(volumes, list):
        return None
    nvme = _is_nvme(found)
    if volumes:
        docs = [find(path) for path in links(found.doc, "Links", "Volumes")] if nvme else []
        return None if docs and all(_is_the_drive(doc) for doc in docs) else True
    return False if link(found.storage, "Volumes") is not None and not nvme else None


def _is_the_drive(volume: Doc | None) -> bool:
    return text(volume, "VolumeType") == "RawDevice" and text(volume, "RAIDType") is None


def _is_nvme(found: _Found) -> bool:
    """By its protocol; where it names none, by those of its controllers, or by the name of its storage."""
    doc, storage = found.doc, found.storage
    if (text(doc, "MediaType") or "").upper() == "HDD":
        return False
    protocol = (said(doc, "Protocol") or "").lower()
    if protocol:
        return protocol.startswith(NVME)
    told = dig(first(dig(storage, "StorageControllers")), "SupportedDeviceProtocols")
    if isinstance(told, list) and told:
        return all(str(one).lower().startswith(NVME) for one in told)
    words = " ".join(str(text(one, name) or "") for one in (doc, storage) for name in ("Id", "Name"))
    return "nvme" in words.lower()


def _wwn(doc: Doc) -> str | None:
    identifiers = dig(doc, "Identifiers")
    for identifier in identifiers if isinstance(identifiers, list) else [identifiers]:
        if text(identifier, "DurableNameFormat") in NAMES and said(identifier, "DurableName"):
            return text(identifier, "DurableName")
    return None
