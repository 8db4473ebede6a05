"""Firmware: its versions, and updates that change one only when a whole and true image was fetched or received.

An image names what it is for and carries its own digest: `image("BIOS", "2.15.0")`. A BIOS is taken by the next boot of the machine,
all else when its Task ends; the BMC's own makes it restart where a quirk says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tempfile
import time
from collections.abc import Iterator
from typing import IO, Any, Final

from sushy_tools import error
from werkzeug.formparser import parse_form_data
from werkzeug.wsgi import get_input_stream

from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, accepted, collection, link, resource
from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Answer, Refusal, not_found
from bcmetal_drivers.emulated.tasks import COMPLETED

MAGIC: Final = b"BCMETAL-FIRMWARE "
CHUNK: Final = 1 << 16
SERVICE: Final = f"{ROOT}/UpdateService"
INVENTORY: Final = f"{SERVICE}/FirmwareInventory"
SIMPLE: Final = f"{SERVICE}/Actions/UpdateService.SimpleUpdate"
MULTIPART: Final = f"{SERVICE}/upload"
PUSH: Final = f"{SERVICE}/push"
FORM: Final = f"{SERVICE}/uploadFile"
INSTALL: Final = f"{SERVICE}/Actions/Oem/OemUpdateService.Install"
PROTOCOLS: Final = ("HTTP", "HTTPS")


def image(component: str, version: str, size: int = 4096) -> bytes:
    """An update of that component, to be served or sent. One whose payload is touched is refused at the end of its Task."""
    payload = bytes((7 * n + len(version)) % 256 for n in range(256)) * (size // 256 + 1)
    payload = payload[:size]
    head = {"component": component, "version": version, "sha256": hashlib.sha256(payload).hexdigest()}
    return MAGIC + json.dumps(head).encode() + b"\n" + payload


def boot(inside: Interior, machine: Machine, at: float) -> None:
    """A boot's share: the machine's lock is held."""
    waiting, machine.board.firmware_pending = machine.board.firmware_pending, {}
    inside.firmware.update(waiting)
    if "BIOS" in waiting:
        machine.board.bios["SystemBiosVersion"] = waiting["BIOS"]


def _told(source: IO[bytes]) -> tuple[str, str] | None:
    """What the image is for and its version; None unless it is whole and true."""
    source.seek(0)
    first = source.readline(4096)
    try:
        head = json.loads(first.removeprefix(MAGIC)) if first.startswith(MAGIC) else None
    except ValueError:
        head = None
    if not isinstance(head, dict):
        return None
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK):
        digest.update(chunk)
    return (str(head["component"]), str(head["version"])) if digest.hexdigest() == head.get("sha256") else None


# ---------------------------------------------------------------- what is there


def update_service(inside: Interior, call: Call) -> Answer:
    forms = inside.quirks.update_forms
    more: dict[str, Any] = {"Actions": {}}
    if "simple" in forms:
        listed = {"TransferProtocol@Redfish.AllowableValues": list(PROTOCOLS)}
        more["Actions"] = {"#UpdateService.SimpleUpdate": {"target": SIMPLE, **listed}}
    if "multipart" in forms:
        more["MultipartHttpPushUri"] = MULTIPART
    if "push" in forms:
        more["HttpPushUri"] = {"staged": INVENTORY, "session-form": FORM}.get(inside.quirks.push_form, PUSH)
    if "push" in forms and inside.quirks.push_form == "plain":
        more |= {"HttpPushUriTargets": inside.push_targets, "HttpPushUriTargetsBusy": bool(inside.reserved)}
    if inside.quirks.push_form == "session-form":
        more["Oem"] = {"Hpe": {"State": _state(inside), "FlashProgressPercent": 0}}
    if inside.quirks.push_form == "staged" and inside.quirks.install_by == "oem":
        more["Actions"] = {"Oem": {"OemUpdateService.v1_0_0#OemUpdateService.Install": {"target": INSTALL}}}
    if inside.quirks.update_largest is not None:
        more["MaxImageSizeBytes"] = inside.quirks.update_largest
    return resource(
        SERVICE,
        "UpdateService.v1_11_0",
        "Update Service",
        ServiceEnabled=True,
        FirmwareInventory=link(INVENTORY),
        **more,
    )


def change_update_service(inside: Interior, call: Call) -> Answer:
    wanted = call.request.json()
    targets, busy = wanted.get("HttpPushUriTargets", list(inside.push_targets)), wanted.get("HttpPushUriTargetsBusy")
    known = wanted.keys() <= {"HttpPushUriTargets", "HttpPushUriTargetsBusy"}
    if not known or not wanted or not isinstance(targets, list) or "push" not in inside.quirks.update_forms:
        raise Refusal(400, "PropertyNotWritable", "HttpPushUriTargets and HttpPushUriTargetsBusy are written here.")
    inside.push_targets[:] = [str(target) for target in targets]
    if isinstance(busy, bool):
        inside.reserved[:] = ["somebody"] if busy else []
    return Answer(204)


def list_firmware(inside: Interior, call: Call) -> Answer:
    return collection(
        INVENTORY, "SoftwareInventory", [f"{INVENTORY}/{part}" for part in (*inside.firmware, *inside.staged)]
    )


def show_firmware(inside: Interior, call: Call, part: str) -> Answer:
    path, versions = f"{INVENTORY}/{part}", inside.firmware
    if part in inside.staged:
        name, version = inside.staged[part] or ("damaged", "0")
        return resource(path, "SoftwareInventory.v1_10_0", name, Version=version, Updateable=True)
    if part not in versions:
        raise not_found(path)
    for machine in inside.machines.values():
        machine.settle()
    if inside.quirks.padding_bytes:
        padding = "x" * inside.quirks.padding_bytes
        return resource(path, "SoftwareInventory.v1_10_0", part, Version="1", Description=padding)
    status = {"State": "Enabled", "Health": "OK"}
    return resource(
        path, "SoftwareInventory.v1_10_0", part, Version=versions[part], Updateable=True, SoftwareId=part, Status=status
    )


# ---------------------------------------------------------------- updates


def simple_update(inside: Interior, call: Call) -> Answer:
    """The image is fetched before the answer, so that nothing need run behind it."""
    _offered(inside, call, "simple")
    wanted = call.request.json()
    url, protocol, form = wanted.get("ImageURI"), wanted.get("TransferProtocol"), inside.quirks.update_protocol
    if not isinstance(url, str) or not url:
        raise Refusal(400, "ActionParameterMissing", "The action SimpleUpdate requires ImageURI.")
    if form == "refused" and protocol is not None:
        raise Refusal(400, "ActionParameterUnknown", "The parameter TransferProtocol is not known.")
    if form in ("demanded", "bare") and protocol not in PROTOCOLS:
        raise Refusal(400, "ActionParameterMissing", "The action SimpleUpdate requires TransferProtocol.")
    if form == "bare" and "://" in url:
        raise Refusal(400, "ActionParameterValueFormatError", "ImageURI has no scheme: TransferProtocol tells it.")
    if inside.quirks.push_form == "staged" and url.rpartition("/")[2] in inside.staged:
        return _installed(inside, call, url)
    whole = url if "://" in url else f"{str(protocol).lower()}://{url}"
    with tempfile.TemporaryFile() as file:
        try:
            inside.drivers.vmedia.fetch(whole, file)
        except error.FishyError:
            return _started(inside, call, None, "The image could not be downloaded.", ())
        return _started(inside, call, _told(file), "The image is damaged.", _targets(wanted))


def multipart_push(inside: Interior, call: Call) -> Answer:
    _offered(inside, call, "multipart")
    with _form(inside, call) as (fields, files):
        try:
            parameters = json.loads(fields.get("UpdateParameters", ""))
        except ValueError:
            parameters = None
        if not isinstance(parameters, dict) or "UpdateFile" not in files:
            raise Refusal(400, "PropertyMissing", "UpdateParameters and UpdateFile are required parts.")
        if inside.quirks.push_oem_demanded and "ImageType" not in fields.get("OemParameters", ""):
            raise Refusal(400, "PropertyMissing", "OemParameters is a required part.")
        if inside.quirks.update_time_demanded and "@Redfish.OperationApplyTime" not in parameters:
            raise Refusal(400, "PropertyMissing", "@Redfish.OperationApplyTime is a required part of UpdateParameters.")
        return _started(inside, call, _told(files["UpdateFile"].stream), "The image is damaged.", _targets(parameters))


def plain_push(inside: Interior, call: Call) -> Answer:
    _offered(inside, call, "push")
    source = _taken(inside, call)
    with tempfile.TemporaryFile() as file:
        while chunk := source.read(CHUNK):
            file.write(chunk)
        return _started(inside, call, _told(file), "The image is damaged.", tuple(inside.push_targets))


def push_to_the_inventory(inside: Interior, call: Call) -> Answer:
    """The image is there from then on, and installed by another request. What else is in the collection must have been looked at."""
    if inside.quirks.push_form != "staged":
        raise Refusal(405, "OperationNotAllowed", "Nothing is posted here.")
    if call.request.header("If-Match") is None:
        raise Refusal(412, "PreconditionFailed", "If-Match with the collection's ETag is required.")
    with _form(inside, call) as (_, files):
        if "file" not in files:
            raise Refusal(400, "PropertyMissing", "The part `file` is required.")
        told = _told(files["file"].stream)
    part = "Available-" + "-".join(told or ("damaged", "0"))
    inside.staged[part] = told
    return Answer(201, {"@odata.id": f"{INVENTORY}/{part}"}, {"Location": f"{INVENTORY}/{part}"})


def install(inside: Interior, call: Call) -> Answer:
    """A maker's own action."""
    wanted = call.request.json().get("SoftwareIdentityURIs")
    if inside.quirks.install_by != "oem" or not isinstance(wanted, list) or len(wanted) != 1:
        raise Refusal(400, "ActionParameterMissing", "One of SoftwareIdentityURIs is installed.")
    return _installed(inside, call, str(wanted[0]))


def _installed(inside: Interior, call: Call, path: str) -> Answer:
    part = path.rpartition("/")[2]
    if part not in inside.staged:
        raise not_found(path)
    return _started(inside, call, inside.staged.pop(part), "The image is damaged.", ())


def session_form(inside: Interior, call: Call) -> Answer:
    """HPE's: the session's token as a cookie and as a field, and no Task."""
    if inside.quirks.push_form != "session-form":
        raise not_found(FORM)
    with _form(inside, call) as (fields, files):
        if not call.token or {fields.get("sessionKey"), call.request.header("Cookie")} != {
            call.token,
            f"sessionKey={call.token}",
        }:
            raise Refusal(403, "NoValidSession", "sessionKey is required.")
        options = json.loads(fields.get("parameters", "{}"))
        if options.get("UpdateTarget") is not True or "file" not in files:
            raise Refusal(400, "PropertyMissing", "The form is not whole.")
        _started(inside, call, _told(files["file"].stream), "The image is damaged.", ())
    return Answer(200, {})


def _state(inside: Interior) -> str:
    """As HPE's service tells it."""
    words = {"Running": "Updating", "Completed": "Complete", "Exception": "Error"}
    updates = [task for task in inside.tasks.listed() if task.about == SERVICE]
    return words[updates[-1].state] if updates else "Idle"


@contextlib.contextmanager
def _form(inside: Interior, call: Call) -> Iterator[tuple[Any, Any]]:
    """Fields and files of a form. What was received is closed at the end, also of an upload that was cut: the parser closes nothing."""
    environ = {**call.request.environ, "wsgi.input": _taken(inside, call), "wsgi.input_terminated": True}
    with contextlib.ExitStack() as received:

        def a_file(
            total_content_length: int | None,
            content_type: str | None,
            filename: str | None,
            content_length: int | None = None,
        ) -> IO[bytes]:
            return received.enter_context(tempfile.TemporaryFile())

        _, fields, files = parse_form_data(environ, stream_factory=a_file)
        yield fields, files


def _taken(inside: Interior, call: Call) -> IO[bytes]:
    source = get_input_stream(call.request.environ)
    return (
        source
        if inside.quirks.push_bytes_s is None
        else io.BufferedReader(_Slowly(source, inside.quirks.push_bytes_s), CHUNK)
    )


class _Slowly(io.RawIOBase):
    """A body that is taken at a rate."""

    def __init__(self, source: IO[bytes], bytes_s: int) -> None:
        self._source, self._bytes_s = source, bytes_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        got = self._source.read(min(len(buffer), CHUNK))
        time.sleep(len(got) / self._bytes_s)
        buffer[: len(got)] = got
        return len(got)


def _started(
    inside: Interior, call: Call, told: tuple[str, str] | None, otherwise: str, targets: tuple[str, ...]
) -> Answer:
    """A Task at whose end the version is another one; or is not, and says why, or says nothing."""

    def effect() -> bool:
        if told is None or told[0] not in inside.firmware:
            task.message = otherwise
            return False
        component, version = told
        if targets and f"{INVENTORY}/{component}" not in targets:
            task.message = f"The image is for {component}, which is not among the targets."
            return False
        if inside.quirks.update_lie != "unchanged":
            _take(inside, component, version)
        if component == "BMC" and inside.quirks.update_restart_s > 0:
            inside.restart(inside.quirks.update_restart_s, inside.quirks.update_flaps)
        return True

    deferred = call.rule("task")
    if deferred is not None and deferred.fire():
        seconds, ends = deferred.rule.seconds, deferred.rule.ends
    else:
        seconds, ends = inside.quirks.update_s, COMPLETED
    task = inside.tasks.start("Firmware update", seconds, effect, ends, SERVICE)
    task.shown = inside.quirks.push_form != "session-form"
    if inside.quirks.update_task_named:
        return accepted(inside.tasks, task)
    return Answer(200, {})


def _take(inside: Interior, component: str, version: str) -> None:
    if component == "BIOS" and inside.quirks.update_bios_at_boot:
        for machine in inside.machines.values():
            machine.board.firmware_pending[component] = version
    else:
        inside.firmware[component] = version


def _targets(parameters: dict[str, Any]) -> tuple[str, ...]:
    listed = parameters.get("Targets") or []
    if not isinstance(listed, list):
        raise Refusal(400, "PropertyValueTypeError", "Targets is no list.")
    return tuple(str(target) for target in listed)


def _offered(inside: Interior, call: Call, form: str) -> None:
    if form not in inside.quirks.update_forms:
        raise not_found(call.request.path)


OWN_TASKS: Final = (SIMPLE, MULTIPART, PUSH, FORM, INSTALL)  # paths whose Tasks are begun here, with what the body held
ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", r"/UpdateService", update_service),
    ("PATCH", r"/UpdateService", change_update_service),
    ("GET", r"/UpdateService/FirmwareInventory", list_firmware),
    ("GET", r"/UpdateService/FirmwareInventory/([^/]+)", show_firmware),
    ("POST", r"/UpdateService/Actions/UpdateService\.SimpleUpdate", simple_update),
    ("POST", r"/UpdateService/upload", multipart_push),
    ("POST", r"/UpdateService/push", plain_push),
    ("POST", r"/UpdateService/uploadFile", session_form),
    ("POST", r"/UpdateService/FirmwareInventory", push_to_the_inventory),
    ("POST", r"/UpdateService/Actions/Oem/OemUpdateService\.Install", install),
)
