"""Routes to virtual media: sushy-tools serves them under the system; here also under the manager, and with writes for actions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from bcmetal_drivers.emulated.application import ask
from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior
from bcmetal_drivers.emulated.messages import Answer, Refusal, Request, not_found
from bcmetal_drivers.emulated.systems import MANAGER

UNDER_MANAGER: Final = f"{ROOT}/Managers/{MANAGER}"


def under_the_system(inside: Interior, call: Call, system: str, rest: str = "") -> Answer:
    inside.machine(system)
    if inside.quirks.media_at == "managers":
        raise not_found(call.request.path)
    return _slot(inside, call.request)


def under_the_manager(inside: Interior, call: Call, rest: str = "") -> Answer:
    """The first system's slots."""
    if inside.quirks.media_at == "systems":
        raise not_found(call.request.path)
    place = f"{ROOT}/Systems/{next(iter(inside.machines))}"
    path = call.request.path.replace(UNDER_MANAGER, place)
    answer = _slot(inside, replace(call.request, path=path))
    if answer.doc is not None:
        answer.doc = json.loads(
            json.dumps(answer.doc).replace(f"{place}/VirtualMedia", f"{UNDER_MANAGER}/VirtualMedia")
        )
    return answer


def _slot(inside: Interior, request: Request) -> Answer:
    by_write = inside.quirks.media_insert == "patch"
    if request.method == "POST" and by_write:
        raise Refusal(404, "ActionNotSupported", "The slot has no actions; it is written.")
    if request.method == "PATCH" and by_write:
        return _written(inside, request)
    answer = ask(inside.drivers, request)
    if request.reads and answer.status == 200 and "Image" in answer.doc:
        _tidy(answer.doc, by_write)
        if inside.quirks.image_shown == "name":
            answer.doc["Image"] = answer.doc["ImageName"]
    return answer


def _written(inside: Interior, request: Request) -> Answer:
    """A PATCH of Image inserts (as Lenovo's XCC does), null or Inserted: false ejects."""
    wanted = request.json()
    image = wanted.get("Image")
    action = "InsertMedia" if image and wanted.get("Inserted", True) else "EjectMedia"
    body = json.dumps({"Image": image}).encode() if image else b"{}"
    path = f"{request.path}/Actions/VirtualMedia.{action}"
    environ = {**request.environ, "CONTENT_TYPE": "application/json"}
    return ask(inside.drivers, replace(request, method="POST", path=path, body=body, environ=environ))


def _tidy(doc: dict[str, Any], by_write: bool) -> None:
    """An empty slot's Image is null, as the schema has it."""
    if not doc["Inserted"]:
        doc["Image"] = doc["ImageName"] = None
        doc["ConnectedVia"] = "NotConnected"
    doc.pop("@Redfish.Copyright", None)
    doc.pop("Certificates", None)
    if by_write:
        doc.pop("Actions", None)


_METHODS: Final = ("GET", "POST", "PATCH")
ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = tuple(
    (method, pattern, handler)
    for pattern, handler in (
        (r"/Systems/([^/]+)/VirtualMedia(/.+)?", under_the_system),
        (rf"/Managers/{MANAGER}/VirtualMedia(/.+)?", under_the_manager),
    )
    for method in _METHODS
)
