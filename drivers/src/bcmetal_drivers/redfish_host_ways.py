"""The ways from the host into its BMC: Redfish host interfaces, the accounts that they hand out, and what makers' settings open."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bcmetal_drivers.errors import MaybeSent, NotAsAsked, Unsupported
from bcmetal_drivers.quirks import OemSetting
from bcmetal_drivers.redfish_around import managers
from bcmetal_drivers.redfish_document import Doc, dig, link, links, text
from bcmetal_drivers.redfish_maker import quirks_for
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import HostWay

INTERFACE: Final = "redfish-host-interface"
BOOTSTRAP: Final = "credential-bootstrapping"  # DSP0270: the host asks for an account at its BMC, over KCS
LOOKS: Final = 4
LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """A way with what closes it: the body of a PATCH at `path`, and the keys to the value that shows it."""

    way: HostWay
    path: str
    body: Mapping[str, Any]
    key: tuple[str, ...]
    closed: object


def host_ways(tree: Tree) -> tuple[HostWay, ...]:
    return tuple(found.way for found in _ways(tree))


def close(tree: Tree, name: str) -> None:
    """A way that is closed is left alone. Some BMCs take a moment to show it."""
    found = next((one for one in _ways(tree) if one.way.name == name), None)
    if found is None:
        raise Unsupported(f"{tree.address}: the BMC knows no {name}")
    if found.way.open is False:
        return
    if not found.way.closable:
        raise Unsupported(f"{tree.address}: {name} cannot be closed at this BMC")
    lost: MaybeSent | None = None
    try:
        tree.patch(found.path, found.body)
    except MaybeSent as error:
        lost = error
    for look in range(LOOKS):
        if look:
            time.sleep(tree.door.left_s(LOOK_S))
        if dig(tree.get(found.path), *found.key) == found.closed:
            return
    raise lost or NotAsAsked(f"{tree.door.origin}{found.path}: acknowledged, and {name} is still open")


def _ways(tree: Tree) -> Iterator[Found]:
    settings = quirks_for(tree).host_ways
    seen: set[str] = set()
    for path, manager in managers(tree):
        for way in (*_interfaces(tree, manager), *_settings(tree, path, manager, settings)):
            name = way.way.name
            if name not in seen:
                seen.add(name)
                yield way


def _interfaces(tree: Tree, manager: Doc) -> Iterator[Found]:
    for n, (path, doc) in enumerate(tree.documents(link(manager, "HostInterfaces"))):
        name = text(doc, "Id") or path.rpartition("/")[2]
        which = f":{name}" if n else ""
        enabled = dig(doc, "InterfaceEnabled")
        shown = enabled if isinstance(enabled, bool) else None
        if shown is None and text(doc, "Status", "State") in ("Enabled", "Disabled"):
            shown = text(doc, "Status", "State") == "Enabled"
        way = HostWay(INTERFACE + which, shown, closable=isinstance(enabled, bool))
        yield Found(way, path, {"InterfaceEnabled": False}, ("InterfaceEnabled",), False)
        bootstrap = dig(doc, "CredentialBootstrapping", "Enabled")
        if isinstance(bootstrap, bool):
            wanted: dict[str, Any] = {"Enabled": False}
            if isinstance(dig(doc, "CredentialBootstrapping", "EnableAfterReset"), bool):
                wanted["EnableAfterReset"] = False
            key = ("CredentialBootstrapping", "Enabled")
            yield Found(
                HostWay(BOOTSTRAP + which, bootstrap, True), path, {"CredentialBootstrapping": wanted}, key, False
            )


def _settings(tree: Tree, path: str, manager: Doc, settings: tuple[OemSetting, ...]) -> Iterator[Found]:
    for setting in settings:
        where: str | None = path
        doc: Doc | None = manager
        if setting.at:
            listed = links(manager, *setting.at)
            where = link(manager, *setting.at) or (listed[0] if listed else None)
            doc = tree.find(where)
        shown = dig(doc, *setting.key) if doc is not None else None
        if where is not None and isinstance(shown, str | bool):
            body: Any = setting.value
            for key in reversed(setting.key):
                body = {key: body}
            yield Found(HostWay(setting.name, shown != setting.value, True), where, body, setting.key, setting.value)
