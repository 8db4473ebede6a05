"""Firmware that is sent to the BMC: the ways are taken by what its UpdateService claims, and by its maker's form where it has one.

1. `MultipartHttpPushUri` (DSP0266, "Multipart HTTP push updates"), with the part that AMI's firmware asks for where it asks for it.
2. `HttpPushUri` that is the firmware inventory itself: the image becomes an available version there, which is then installed (iDRAC 7 to 9).
3. `HttpPushUri` with a form of the maker's (`quirks.PushForm`).
4. `HttpPushUri` as the standard has it: the image is the body, and what it is for stands in the service (HttpPushUriTargets).

What is sent may take longer than a call may, for as long as it goes on.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from bcmetal_drivers.door import WithToken, tolerated
from bcmetal_drivers.errors import Busy, DriverError, Malformed, MaybeSent, Refused, Unsupported
from bcmetal_drivers.learned import PATH
from bcmetal_drivers.quirks import PushForm
from bcmetal_drivers.redfish_actions import APPLY_TIME, action, apply_times
from bcmetal_drivers.redfish_document import Doc, dig, key, link, number, text
from bcmetal_drivers.redfish_maker import quirks_for
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.redfish_update_begun import SIMPLE_UPDATE, begin, service
from bcmetal_drivers.resources import Job, JobState
from bcmetal_drivers.wire import Answer, CutShort, Upload

MULTIPART, PUSH, TARGETS = "MultipartHttpPushUri", "HttpPushUri", "HttpPushUriTargets"
TARGETS_BUSY: Final = f"{TARGETS}Busy"
BINARY, JSON_KIND = "application/octet-stream", "application/json"
INSTALL: Final = re.compile(r"UpdateService\.Install$")  # a maker's action for a version that is available
IMAGE_TYPES: Final = ((r"bios|uefi", "BIOS"), (r"bmc|manager", "BMC"), (r"cpld", "CPLD"))  # AMI's, by the target's path
Told = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Image:
    file: Path
    size: int
    told: Told | None

    @property
    def name(self) -> str:
        return "".join(c if c.isalnum() or c in "._-" else "_" for c in self.file.name)

    def alone(self) -> Upload:
        return Upload(BINARY, self.file, self.size, told=self.told)

    def among(self, parts: Mapping[str, object], named: str) -> Upload:
        """In a form, as its last part. Parts that are no string are sent as JSON."""
        boundary = secrets.token_hex(16)
        before = "".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n'
            + ("" if isinstance(value, str) else f"Content-Type: {JSON_KIND}\r\n")
            + f"\r\n{value if isinstance(value, str) else json.dumps(value)}\r\n"
            for name, value in parts.items()
        )
        before += (
            f'--{boundary}\r\nContent-Disposition: form-data; name="{named}"; filename="{self.name}"\r\n'
            f"Content-Type: {BINARY}\r\n\r\n"
        )
        kind, after = f"multipart/form-data; boundary={boundary}", f"\r\n--{boundary}--\r\n"
        return Upload(kind, self.file, self.size, before.encode(), after.encode(), self.told)


def offered(update_service: Doc | None) -> bool:
    return bool(text(update_service, MULTIPART, limit=1024) or text(update_service, PUSH, limit=1024))


def push(tree: Tree, file: Path, targets: tuple[str, ...], told: Told | None = None) -> Job:
    path, update_service = service(tree)
    image = _readable(file, number(update_service, "MaxImageSizeBytes"), told)
    multipart = text(update_service, MULTIPART, limit=1024)
    if multipart is not None:
        return _push_multipart(tree, update_service, multipart, image, targets)
    plain = text(update_service, PUSH, limit=1024)
    if plain is None:
        raise Unsupported(f"{tree.address}: no firmware can be sent to this BMC")
    inventory = link(update_service, "FirmwareInventory")
    if inventory is not None and key(plain) == key(inventory):
        return _install(tree, update_service, _staged(tree, plain, image))
    form = quirks_for(tree).push_form
    if form is not None:
        return _push_form(tree, path, plain, form, image)
    with _reserved(tree, path, update_service, targets):
        return begin(tree, "push", {"plain": {}}, lambda _: tree.door.post(plain, data=image.alone()))


def _readable(file: Path, largest: float | None, told: Told | None) -> Image:
    try:
        size = file.stat().st_size
        readable = os.access(file, os.R_OK)
    except OSError as error:
        raise Refused(f"{file.name}: the image cannot be read ({error.strerror})") from error
    if not readable or not size or (largest and size > largest):
        takes = int(largest or 0) or "any number"
        raise Refused(f"{file.name}: of {size} bytes; this BMC takes {takes}, and it must be readable")
    return Image(file, size, told)


# ---------------------------------------------------------------- multipart


def _push_multipart(tree: Tree, update_service: Doc, path: str, image: Image, targets: tuple[str, ...]) -> Job:
    """The forms are refused before they are begun: by AMI's firmware (ASRock Rack, Gigabyte, Lenovo SR635) one without OemParameters."""
    told: dict[str, object] = {"Targets": list(targets)}
    timed = {**told, APPLY_TIME: "Immediate"}
    forms: dict[str, dict[str, object]] = {"targets": {"UpdateParameters": told}, "timed": {"UpdateParameters": timed}}
    if "Immediate" in apply_times({key.removeprefix(MULTIPART): value for key, value in update_service.items()}):
        forms = dict(reversed(forms.items()))
    kind = next((word for pattern, word in IMAGE_TYPES if re.search(pattern, " ".join(targets), re.IGNORECASE)), None)
    if kind is not None:
        forms["oem"] = {"UpdateParameters": told, "OemParameters": {"ImageType": kind}}
    return begin(tree, "multipart", forms, lambda parts: tree.door.post(path, data=image.among(parts, "UpdateFile")))


# ---------------------------------------------------------------- to the inventory, then installed


def _staged(tree: Tree, inventory: str, image: Image) -> str:
    """Where the version is that is available now. Nothing of the machine was changed by that, so that a lost answer is none to look for."""
    etag = tree.door.get(inventory).headers.get("ETag")
    try:
        answer = tree.door.post(inventory, data=image.among({}, "file"), headers={"If-Match": etag} if etag else None)
    except MaybeSent as error:
        raise Busy(
            f"{tree.address}: the image was sent, and nobody knows as what; nothing was begun with it"
        ) from error
    with tolerated(Malformed):
        location = answer.headers.get("Location") or link(answer.json())
        path = urlsplit(location or "").path
        if PATH.fullmatch(path):
            return path
    raise Malformed(f"{tree.address}: the BMC took the image, and does not say where it is now")


def _install(tree: Tree, update_service: Doc, version: str) -> Job:
    """By SimpleUpdate, which takes it by its path; by the maker's own action where there is no SimpleUpdate, or it takes no path."""
    simple = action(update_service, SIMPLE_UPDATE)
    own = next((name for name in dig(update_service, "Actions", "Oem") or {} if INSTALL.search(str(name))), None)
    install = action(update_service, "Oem", own) if own else None
    forms: dict[str, dict[str, object]] = {}
    if simple is not None:
        forms = {"path": {"ImageURI": version}, "timed": {"ImageURI": version, APPLY_TIME: "Immediate"}}
    if install is not None:
        forms["install"] = {"SoftwareIdentityURIs": [version], "InstallUpon": "Now"}
    if not forms:
        raise Unsupported(f"{tree.address}: the BMC has the image, and offers no way to install it")

    def ask(body: dict[str, object]) -> Answer:
        how = simple if "ImageURI" in body else install
        return tree.door.post(how.target if how is not None else "", data=body)

    return begin(tree, "install", forms, ask)


# ---------------------------------------------------------------- the maker's form


def _push_form(tree: Tree, path: str, uri: str, form: PushForm, image: Image) -> Job:
    """It wants the session's token once more, as a cookie and as a field: those of the session in which the form is sent."""
    stands = _state(tree, path, form)
    if stands is not None and stands.state is JobState.RUNNING:
        raise Busy(f"{tree.address}: the BMC is busy with another update")

    def in_the_session(token: str | None) -> tuple[Upload, Mapping[str, str]]:
        if token is None:
            raise Unsupported(f"{tree.address}: this BMC takes firmware within a session alone, and it opens none")
        parts = {form.session_field: token, form.options_field: json.dumps(dict(form.options))}
        return image.among(parts, form.file), {"Cookie": f"{form.session_field}={token}"}

    job = begin(tree, "form", {"form": {}}, lambda _: tree.door.post(uri, data=WithToken(in_the_session)))
    if job.ref:
        return job
    with tolerated(DriverError):
        return _state(tree, path, form) or job
    return Job(path, JobState.RUNNING)  # it took the image, and cannot tell just now how it stands


def state_of_the_service(tree: Tree, ref: str) -> Job | None:
    """How an update stands where the service tells that itself, and names no Task; None where `ref` is not the service."""
    form = quirks_for(tree).push_form if key(ref) == key(link(tree.root(), "UpdateService") or "") else None
    return _state(tree, ref, form) if form is not None else None


def _state(tree: Tree, path: str, form: PushForm) -> Job | None:
    """Its last word is of the last update: one that ended is UNKNOWN, which the versions decide."""
    doc = tree.get(path)
    word, percent = text(doc, *form.state), number(doc, *form.percent)
    if word is None:
        return None
    state = next((state for state, words in form.words.items() if word.lower() in words), JobState.UNKNOWN)
    return Job(path, state, percent / 100 if percent is not None and 0 <= percent <= 100 else None, word)


# ---------------------------------------------------------------- the body alone


@contextmanager
def _reserved(tree: Tree, path: str, update_service: dict[str, Any], targets: tuple[str, ...]) -> Iterator[None]:
    """A plain push says nothing of its target: the service holds it, and says whether another client has it now."""
    left_over = update_service.get(TARGETS)
    if targets and TARGETS not in update_service:
        raise Unsupported(f"{tree.address}: a push to this BMC cannot name what it is for")
    if update_service.get(TARGETS_BUSY) is True:
        raise Busy(f"{tree.address}: another push is being prepared")
    if not targets and not left_over:
        yield
        return
    reserves = {TARGETS_BUSY: True} if TARGETS_BUSY in update_service else {}
    try:
        with tolerated():
            tree.patch(path, {TARGETS: list(targets), **reserves})
    except Refused:  # of both at once; some let the list alone be written
        if not reserves:
            raise
        reserves = {}
        tree.patch(path, {TARGETS: list(targets)})
    try:
        yield
    except CutShort as cut:
        if cut.hands_off:
            reserves = {}
        raise
    finally:
        if reserves:
            with tolerated(DriverError):
                tree.patch(path, {TARGETS_BUSY: False})
