"""Firmware over Redfish: what is there (FirmwareInventory), and updates (UpdateService: SimpleUpdate, multipart push, plain push).

An update's end is not its Task's end: BMCs purge Tasks, forget them when they restart, and call an update complete that changed
nothing. The versions are read back by the caller, `steady.steadily` where the BMC may restart.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import sushy.exceptions

from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import Busy, DriverError, MaybeSent, Refused, Unsupported
from bcmetal_drivers.redfish_actions import APPLY_TIME, NEXT_FORM, Action, action, apply_times
from bcmetal_drivers.redfish_document import Doc, link, number, text
from bcmetal_drivers.redfish_tasks import read_job, reference, started
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.refusals import all_words, refusal
from bcmetal_drivers.resources import FirmwareComponent, Job, JobState
from bcmetal_drivers.wire import Answer, Upload

SIMPLE_UPDATE: Final = "#UpdateService.SimpleUpdate"
MULTIPART, PUSH, PUSH_TARGETS = "MultipartHttpPushUri", "HttpPushUri", "HttpPushUriTargets"
NO_TASK: Final = "the BMC took the image and names no task: its versions will tell"


def offered(update_service: Doc | None) -> bool:
    """Whether firmware can be updated, by the UpdateService document."""
    return action(update_service, SIMPLE_UPDATE) is not None or _push_path(update_service) is not None


def firmware(tree: Tree) -> tuple[FirmwareComponent, ...]:
    """Raises Unsupported where the BMC keeps no list of it."""
    service = tree.find(link(tree.root(), "UpdateService"))
    collection = link(service, "FirmwareInventory")
    if collection is None:
        raise Unsupported(f"{tree.address}: this BMC lists no firmware")
    found = tuple(tree.documents(collection))
    names = Counter(text(doc, "Name") for _, doc in found)
    return tuple(_component(path, doc, names[text(doc, "Name")] == 1) for path, doc in found)


def _component(path: str, doc: Doc, named: bool) -> FirmwareComponent:
    """Where several have the same name (NVIDIA HGX calls all of them "Software Inventory"), the id is added.

    An iDRAC's ids hold the version: it is taken out, so that a component keeps its name when it is updated. Its `ref` changes.
    """
    name, version = text(doc, "Name"), text(doc, "Version") or ""
    ours = text(doc, "Id") or path.rstrip("/").rpartition("/")[2]
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
    _, service = _service(tree)
    simple = action(service, SIMPLE_UPDATE)
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
    return _begin(tree, "simple-update", forms, lambda body: tree.door.post(simple.target, data=_timed(simple, body)))


def _timed(simple: Action, body: dict[str, object]) -> dict[str, object]:
    """With the time where the BMC offers to be told, and would else wait to be started (OnStartUpdateRequest)."""
    times = apply_times(simple.doc)
    return {**body, APPLY_TIME: "Immediate"} if "Immediate" in times and "OnStartUpdateRequest" in times else body


# ---------------------------------------------------------------- we send


def push(tree: Tree, image: Path, targets: tuple[str, ...]) -> Job:
    """The image is read while it is sent, and needs a deadline to match (`Limits.total_s`)."""
    path, service = _service(tree)
    try:
        size = image.stat().st_size
        readable = os.access(image, os.R_OK)
    except OSError as error:
        raise Refused(f"{image.name}: the image cannot be read ({error.strerror})") from error
    largest = number(service, "MaxImageSizeBytes")
    if not readable or not size or (largest and size > largest):
        raise Refused(
            f"{image.name}: of {size} bytes; this BMC takes {int(largest or 0) or 'any number'}, and it must be readable"
        )
    multipart = text(service, MULTIPART, limit=1024)
    if multipart is not None:
        return _push_multipart(tree, service, multipart, image, size, targets)
    plain = _push_path(service)
    if plain is None:
        raise Unsupported(f"{tree.address}: no firmware can be sent to this BMC")
    if targets:
        _set_targets(tree, path, service, targets)
    upload = Upload("application/octet-stream", image, size)
    return _begin(tree, "push", {"plain": {}}, lambda _: tree.door.post(plain, data=upload))


def _push_multipart(tree: Tree, service: Doc, path: str, image: Path, size: int, targets: tuple[str, ...]) -> Job:
    """DSP0266, "Multipart HTTP push updates"."""
    told: dict[str, object] = {"Targets": list(targets)}
    forms = {"targets": told, "timed": {**told, APPLY_TIME: "Immediate"}}
    if "Immediate" in apply_times({key.removeprefix(MULTIPART): value for key, value in service.items()}):
        forms = dict(reversed(forms.items()))
    return _begin(tree, "multipart", forms, lambda body: tree.door.post(path, data=_multipart(image, size, body)))


def _multipart(image: Path, size: int, parameters: dict[str, object]) -> Upload:
    boundary = secrets.token_hex(16)
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in image.name)
    before = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="UpdateParameters"\r\n'
        f"Content-Type: application/json\r\n\r\n{json.dumps(parameters)}\r\n"
        f'--{boundary}\r\nContent-Disposition: form-data; name="UpdateFile"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    after = f"\r\n--{boundary}--\r\n"
    return Upload(f"multipart/form-data; boundary={boundary}", image, size, before.encode(), after.encode())


def _set_targets(tree: Tree, path: str, service: Doc, targets: tuple[str, ...]) -> None:
    """A plain push says nothing of its target: the service holds it."""
    if PUSH_TARGETS not in service:
        raise Unsupported(f"{tree.address}: a push to this BMC cannot name what it is for")
    if service.get(f"{PUSH_TARGETS}Busy") is True:
        raise Busy(f"{tree.address}: another push is being prepared")
    tree.patch(path, {PUSH_TARGETS: list(targets)})


def _push_path(service: Doc | None) -> str | None:
    return text(service, MULTIPART, limit=1024) or text(service, PUSH, limit=1024)


# ---------------------------------------------------------------- both


def _service(tree: Tree) -> tuple[str, dict[str, Any]]:
    path = link(tree.root(), "UpdateService")
    service = tree.find(path)
    if path is None or service is None:
        raise Unsupported(f"{tree.address}: this BMC has no update service")
    if service.get("ServiceEnabled") is False:
        raise Refused(f"{tree.address}: the BMC's update service is switched off")
    return path, service


Ask = Callable[[dict[str, object]], Answer]


def _begin(tree: Tree, what: str, forms: dict[str, dict[str, object]], ask: Ask) -> Job:
    """The first form that is not refused; the one that was taken before comes first. A lost answer is looked for among the Tasks."""
    known = tree.learned.get(what)
    order = sorted(forms, key=lambda name: name != known)
    before = frozenset(_tasks(tree))
    for name in order:
        try:
            answer = ask(forms[name])
        except MaybeSent:
            ref = _new_task(tree, before)
            if ref is None:
                raise
            return read_job(tree.door, ref)
        except sushy.exceptions.HTTPError as error:
            if not _wants_another_form(error) or name == order[-1]:
                raise
            continue
        tree.learned[what] = name
        return _job(tree, answer, before)
    raise Unsupported(f"{tree.address}: no form of update is known")


def _wants_another_form(error: Any) -> bool:
    """A refusal that speaks of the image or of its target is the last word."""
    if error.status_code not in NEXT_FORM or not isinstance(refusal(error.answer), Refused):
        return False
    said = all_words(error.answer)
    return any(word in said for word in ("TransferProtocol", "ImageURI", "ApplyTime", "UpdateParameters")) or not any(
        word in said for word in ("Target", "image", "Image", "version", "signature")
    )


def _job(tree: Tree, answer: Answer, before: frozenset[str]) -> Job:
    if answer.status_code == 202 and reference(answer) is not None:
        return started(tree.door, answer)
    job = started(tree.door, answer)
    if job.ref:
        return job
    ref = _new_task(tree, before)
    return read_job(tree.door, ref) if ref else Job("", JobState.UNKNOWN, None, NO_TASK)


def _new_task(tree: Tree, before: frozenset[str]) -> str | None:
    """The one Task that was not there before; None where there is none, or more than one."""
    new: list[str] = []
    with tolerated(DriverError):
        new = [path for path in _tasks(tree) if path not in before]
    return new[0] if len(new) == 1 else None


def _tasks(tree: Tree) -> Iterable[str]:
    with tolerated(Refused, Unsupported):
        collection = link(tree.find(link(tree.root(), "Tasks")), "Tasks")
        return tree.members(collection) if collection else ()
    return ()


def job(tree: Tree, ref: str) -> Job:
    """A Task that is gone is UNKNOWN, as is one that the BMC never named."""
    return read_job(tree.door, ref) if ref else Job("", JobState.UNKNOWN, None, NO_TASK)
