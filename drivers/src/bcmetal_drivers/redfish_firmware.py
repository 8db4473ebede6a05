"""Firmware over Redfish: what is there (FirmwareInventory), and updates that the BMC fetches (UpdateService.SimpleUpdate).

An update's end is not its Task's end: BMCs purge Tasks, forget them when they restart, and call an update complete that changed
nothing. The versions are read back by the caller, `steady.steadily` where the BMC may restart.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final
from urllib.parse import urlsplit

from bcmetal_drivers import redfish_push
from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.redfish_actions import APPLY_TIME, Action, action, apply_times
from bcmetal_drivers.redfish_document import Doc, link, text
from bcmetal_drivers.redfish_tasks import read_job
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.redfish_update_begun import NO_TASK, SIMPLE_UPDATE, begin, service
from bcmetal_drivers.resources import FirmwareComponent, Job, JobState

BESIDE: Final = re.compile("(Previous|Available)-")  # iDRAC 7 to 9: the Id of a version that is not in force


def offered(update_service: Doc | None) -> bool:
    """Whether firmware can be updated, by the UpdateService document."""
    return action(update_service, SIMPLE_UPDATE) is not None or redfish_push.offered(update_service)


def firmware(tree: Tree) -> tuple[FirmwareComponent, ...]:
    """What is in force; an iDRAC lists versions beside it that it could go back to, or that wait. Raises Unsupported where there is no list."""
    collection = link(tree.find(link(tree.root(), "UpdateService")), "FirmwareInventory")
    if collection is None:
        raise Unsupported(f"{tree.address}: this BMC lists no firmware")
    found = [(path, doc) for path, doc in tree.documents(collection) if not BESIDE.match(_id(path, doc))]
    names = Counter(text(doc, "Name") for _, doc in found)
    return tuple(_component(path, doc, names[text(doc, "Name")] == 1) for path, doc in found)


def _id(path: str, doc: Doc) -> str:
    return text(doc, "Id") or path.rstrip("/").rpartition("/")[2]


def _component(path: str, doc: Doc, named: bool) -> FirmwareComponent:
    """Where several have the same name (NVIDIA HGX calls all of them "Software Inventory"), the id is added.

    An iDRAC's ids hold the version: it is taken out, so that a component keeps its name when it is updated. Its `ref` changes.
    """
    name, version = text(doc, "Name"), text(doc, "Version") or ""
    ours = _id(path, doc)
    ours = ours.replace(version, "*") if version else ours
    updateable = doc.get("Updateable")
    return FirmwareComponent(
        ref=path,
        name=name if name and named else f"{name} {ours}" if name else ours,
        version=version,
        updateable=updateable if isinstance(updateable, bool) else None,
        software_id=text(doc, "SoftwareId"),
        state=(text(doc, "Status", "State") or "").lower() or None,
    )


# ---------------------------------------------------------------- the BMC fetches


def update(tree: Tree, url: str, targets: tuple[str, ...]) -> Job:
    """Asked for once; forms that are refused are followed by another one, at most three."""
    simple = action(service(tree)[1], SIMPLE_UPDATE)
    if simple is None:
        raise Unsupported(f"{tree.address}: this BMC fetches no firmware by itself")
    protocol = urlsplit(url).scheme.upper()
    taken = simple.allowed(tree, "TransferProtocol")
    if taken and protocol not in taken:
        raise Unsupported(f"{tree.address}: this BMC fetches firmware by {', '.join(taken)}, not by {protocol}")
    shared: dict[str, object] = {"Targets": list(targets)} if targets else {}
    whole = {"ImageURI": url, "TransferProtocol": protocol}
    forms: dict[str, dict[str, object]] = {
        "whole": {**whole, **shared},
        "url": {"ImageURI": url, **shared},
        "bare": {"ImageURI": url.partition("://")[2], "TransferProtocol": protocol, **shared},
    }
    return begin(tree, "simple-update", forms, lambda body: tree.door.post(simple.target, data=_timed(simple, body)))


def _timed(simple: Action, body: dict[str, object]) -> dict[str, object]:
    """With the time where the BMC offers to be told, and would else wait to be started (OnStartUpdateRequest)."""
    times = apply_times(simple.doc)
    return {**body, APPLY_TIME: "Immediate"} if "Immediate" in times and "OnStartUpdateRequest" in times else body


# ---------------------------------------------------------------- how it goes


def job(tree: Tree, ref: str) -> Job:
    """A Task that is gone is UNKNOWN, as is one that the BMC never named."""
    if not ref:
        return Job("", JobState.UNKNOWN, None, NO_TASK)
    return redfish_push.state_of_the_service(tree, ref) or read_job(tree.door, ref)
