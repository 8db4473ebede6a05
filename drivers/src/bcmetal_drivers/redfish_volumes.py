"""RAID volumes over Redfish (Storage.Volumes): what is there, made of drives named by their serials, and deleted.

A controller that offers to be told when (`@Redfish.OperationApplyTimeSupport`) may do it at the next boot only: its Task runs until then.
Deleting a volume takes its data out of sight and no further: the drives hold it until they are erased.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import sushy.exceptions

from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import DriverError, MaybeSent, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.redfish_actions import APPLY_TIME, NEXT_FORM, apply_times
from bcmetal_drivers.redfish_chassis import Look
from bcmetal_drivers.redfish_document import Doc, dig, health, key, link, links, text
from bcmetal_drivers.redfish_parts import count, said
from bcmetal_drivers.redfish_tasks import started
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.refusals import all_words, refusal
from bcmetal_drivers.resources import Job, JobState, Volume, VolumeWanted
from bcmetal_drivers.wire import Answer

FEWEST: Final = {"RAID0": 1, "RAID1": 2, "RAID5": 3, "RAID6": 4, "RAID10": 4}
OLD_TYPES: Final = {  # VolumeType, deprecated in Volume v1.4 for RAIDType
    "RAID0": "NonRedundant",
    "RAID1": "Mirrored",
    "RAID5": "StripedWithParity",
    "RAID6": "StripedWithParity",
    "RAID10": "SpannedMirrors",
}
SAID_BY_OLD: Final = {
    "NonRedundant": "RAID0",
    "Mirrored": "RAID1",
    "StripedWithParity": "RAID5",
    "SpannedMirrors": "RAID10",
    "SpannedStripesWithParity": "RAID50",
}
RAW: Final = "RawDevice"  # a whole drive by itself, which some list among the volumes: nothing that was made


@dataclass(frozen=True, slots=True)
class _Storage:
    path: str
    doc: Doc
    drives: dict[str, str]  # serial -> path

    @property
    def volumes(self) -> str | None:
        return link(self.doc, "Volumes")


def offered(storage: Doc) -> bool:
    """Whether volumes can be made there, by one Storage document: it keeps some, and its controllers do not say that they make none.

    Controllers in a collection of their own (Storage v1.9) may say so there; that is not read. A storage that has no controller keeps
    whole drives for volumes (iDRAC 9 6.00, the NVMe drives of a CPU).
    """
    if link(storage, "Volumes") is None:
        return False
    inline = isinstance(dig(storage, "StorageControllers"), list)
    return bool(_kinds_by(storage)) if inline else link(storage, "Controllers") is not None


def volumes(tree: Tree) -> tuple[Volume, ...]:
    return tuple(volume for storage in _all(tree) for volume in _volumes_of(tree, storage))


def create(tree: Tree, wanted: VolumeWanted) -> Job:
    """One that is there already, of that kind and of these drives, is not made again."""
    storage = _storage_with(tree, wanted)
    collection = storage.volumes
    if collection is None:
        raise Unsupported(f"{tree.door.origin}{storage.path}: this controller makes no volumes")
    _check(tree, storage, wanted)
    if _is_there(tree, storage, wanted):
        return Job("", JobState.DONE, None, "it is there already")
    holder = tree.get(collection)
    bodies = _bodies(tree, holder, storage, wanted)
    times = apply_times(holder)
    try:
        answer = _down(tree, collection, [_timed(body, _best(times)) for body in bodies])
    except MaybeSent:
        with tolerated(DriverError):
            if _is_there(tree, storage, wanted):
                return Job("", JobState.DONE)
        raise
    job = started(tree.door, answer)
    if job.state is JobState.DONE and not _is_there(tree, storage, wanted):
        raise NotAsAsked(f"{tree.door.origin}{collection}: acknowledged, and there is no such volume")
    return job


def delete(tree: Tree, ref: str) -> Job:
    """One that is gone is a success."""
    if ref not in {volume.ref for volume in volumes(tree)}:
        if tree.find(ref) is None:
            return Job("", JobState.DONE, None, "it is gone already")
        raise Refused(f"{tree.door.origin}{ref}: that is no volume of this machine's controllers")
    try:
        answer = _deleted(tree, ref)
    except MaybeSent:
        with tolerated(DriverError):
            if tree.find(ref) is None:
                return Job("", JobState.DONE)
        raise
    job = started(tree.door, answer)
    if job.state is JobState.DONE and tree.find(ref) is not None:
        raise NotAsAsked(f"{tree.door.origin}{ref}: acknowledged, and the volume is still there")
    return job


# ---------------------------------------------------------------- what is there


def _all(tree: Tree) -> Iterator[_Storage]:
    for path, doc in tree.documents(link(tree.system(), "Storage")):
        found: dict[str, str] = {}
        for drive in links(doc, "Drives") if link(doc, "Volumes") else ():
            serial = text(tree.find(drive), "SerialNumber")
            if serial:
                found[serial] = drive
        yield _Storage(path, doc, found)


def _volumes_of(tree: Tree, storage: _Storage) -> Iterator[Volume]:
    serials = {key(path): serial for serial, path in storage.drives.items()}
    for path, doc in tree.documents(storage.volumes):
        if not _is_raw(doc):
            yield _volume(path, doc, (serials.get(key(drive)) for drive in links(doc, "Links", "Drives")))


def volumes_seen(look: Look) -> Iterator[Volume]:
    """The same for an inventory, of all that can be read."""
    for _, storage in look.reading.documents(link(look.system, "Storage")):
        for path, doc in look.reading.documents(link(storage, "Volumes")):
            if not _is_raw(doc):
                on = (look.reading.lenient(drive) for drive in links(doc, "Links", "Drives"))
                yield _volume(path, doc, (said(drive, "SerialNumber") for drive in on))


def _is_raw(doc: Doc) -> bool:
    return text(doc, "VolumeType") == RAW


def _volume(path: str, doc: Doc, on: Iterable[str | None]) -> Volume:
    kind = said(doc, "RAIDType") or SAID_BY_OLD.get(text(doc, "VolumeType") or "")
    return Volume(
        ref=path,
        name=said(doc, "DisplayName") or said(doc, "Name") or path.rpartition("/")[2],
        raid=kind if kind and kind.upper().startswith("RAID") else None,
        capacity_bytes=count(doc, "CapacityBytes"),
        drives=tuple(sorted(serial for serial in on if serial)),
        health=health(doc),
    )


def _is_there(tree: Tree, storage: _Storage, wanted: VolumeWanted) -> bool:
    return any(
        volume.raid == wanted.raid and set(volume.drives) == set(wanted.drives) for volume in _volumes_of(tree, storage)
    )


def _storage_with(tree: Tree, wanted: VolumeWanted) -> _Storage:
    missing = set(wanted.drives)
    holding: list[_Storage] = []
    for storage in _all(tree):
        here = missing & storage.drives.keys()
        if here:
            holding.append(storage)
            missing -= here
    if missing or not holding:
        raise Refused(
            f"{tree.address}: no RAID controller shows drive {', '.join(sorted(missing)) or '(none is named)'}"
        )
    if len(holding) > 1:
        raise Refused(f"{tree.address}: a volume's drives are all of one controller; these are of {len(holding)}")
    return holding[0]


def _check(tree: Tree, storage: _Storage, wanted: VolumeWanted) -> None:
    fewest = FEWEST.get(wanted.raid)
    if fewest is None:
        raise Refused(f"{tree.address}: {wanted.raid} is none of {', '.join(FEWEST)}")
    if len(set(wanted.drives)) != len(wanted.drives) or len(wanted.drives) < fewest:
        raise Refused(f"{tree.address}: {wanted.raid} takes at least {fewest} drives, each named once")
    kinds = _kinds_by(storage.doc) or _kinds_of_controllers(tree, storage.doc)
    if kinds and wanted.raid not in kinds:
        raise Unsupported(
            f"{tree.door.origin}{storage.path}: this controller makes {', '.join(kinds)}, not {wanted.raid}"
        )


def _kinds_by(storage: Doc) -> tuple[str, ...]:
    listed = dig(storage, "StorageControllers")
    return tuple(dict.fromkeys(kind for item in (listed if isinstance(listed, list) else []) for kind in _kinds(item)))


def _kinds_of_controllers(tree: Tree, storage: Doc) -> tuple[str, ...]:
    """Of the Controllers collection (Storage v1.9 and later)."""
    return tuple(dict.fromkeys(kind for _, doc in tree.documents(link(storage, "Controllers")) for kind in _kinds(doc)))


def _kinds(controller: Any) -> list[str]:
    listed = dig(controller, "SupportedRAIDTypes")
    return [kind for kind in listed if isinstance(kind, str)] if isinstance(listed, list) else []


# ---------------------------------------------------------------- writing


def _bodies(tree: Tree, holder: Doc, storage: _Storage, wanted: VolumeWanted) -> list[dict[str, Any]]:
    """RAIDType with the drives under Links, as Volume has it since v1.4; then VolumeType with the drives at the top."""
    capabilities = _capabilities(tree, holder)
    kinds = capabilities.get("RAIDType@Redfish.AllowableValues")
    if isinstance(kinds, list) and kinds and wanted.raid not in kinds:
        raise Unsupported(f"{tree.door.origin}{storage.path}: this controller does not make {wanted.raid}")
    drives = [{"@odata.id": storage.drives[serial]} for serial in wanted.drives]
    more: dict[str, Any] = {}
    if wanted.capacity_bytes is not None:
        more["CapacityBytes"] = wanted.capacity_bytes
    if wanted.name is not None:
        more[_name_key(capabilities)] = wanted.name
    new = {"RAIDType": wanted.raid, "Links": {"Drives": drives}, **more}
    if wanted.raid not in OLD_TYPES or wanted.raid == "RAID6":  # the old word does not tell RAID 5 and 6 apart
        return [new]
    return [new, {"VolumeType": OLD_TYPES[wanted.raid], "Drives": drives, **more}]


def _name_key(capabilities: Doc) -> str:
    """iLO takes no Name for a volume, and a DisplayName."""
    named = any(name.startswith("Name@Redfish.") for name in capabilities)
    displayed = any(name.startswith("DisplayName@Redfish.") for name in capabilities)
    return "DisplayName" if displayed and not named else "Name"


def _capabilities(tree: Tree, holder: Doc) -> Doc:
    """What the collection says of making a member (`@Redfish.CollectionCapabilities`); {} where it says nothing."""
    listed = dig(holder, "@Redfish.CollectionCapabilities", "Capabilities")
    for item in listed if isinstance(listed, list) else []:
        if text(item, "UseCase") == "VolumeCreation":
            return tree.find(link(item, "CapabilitiesObject")) or {}
    return {}


def _best(times: tuple[str, ...]) -> str | None:
    return next((word for word in ("Immediate", "OnReset") if word in times), None)


def _timed(body: dict[str, Any], time: str | None) -> dict[str, Any]:
    return body if time is None else {**body, APPLY_TIME: time}


def _down(tree: Tree, path: str, bodies: list[dict[str, Any]]) -> Answer:
    """The first body that is not refused; a time that is demanded without having been offered is given."""
    queue = list(bodies)
    while True:
        body = queue.pop(0)
        try:
            return tree.door.post(path, data=body)
        except sushy.exceptions.HTTPError as error:
            if not _is_refusal(error):
                raise
            if APPLY_TIME not in body and "ApplyTime" in all_words(error.answer):
                queue = [_timed(body, "Immediate"), _timed(body, "OnReset")]
            if not queue:
                raise


def _deleted(tree: Tree, ref: str) -> Answer:
    for body in (None, {APPLY_TIME: "Immediate"}):
        try:
            return tree.door.delete(ref, data=body)
        except sushy.exceptions.HTTPError as error:
            if not _is_refusal(error) or "ApplyTime" not in all_words(error.answer):
                raise
    return tree.door.delete(ref, data={APPLY_TIME: "OnReset"})


def _is_refusal(error: Any) -> bool:
    return error.status_code in NEXT_FORM and isinstance(refusal(error.answer), Refused)
