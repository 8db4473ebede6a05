"""Boot devices that the standard override does not reach, by the settings that the maker's row names: the virtual CD of an iDRAC.

Where the BMC does not show those settings, the standard override is all that there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bcmetal_drivers.errors import MaybeSent, NotAsAsked
from bcmetal_drivers.quirks import OemSetting
from bcmetal_drivers.redfish_document import dig, link, links
from bcmetal_drivers.redfish_maker import manager_of, quirks_for
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import BootDevice

Placed = tuple[str, tuple[OemSetting, ...]]  # the resource, and what is set there


def armed(tree: Tree) -> BootDevice | None:
    """The device whose settings all stand as they must for one boot; None: none."""
    for device, settings in (quirks_for(tree).boot_by_setting or {}).items():
        placed = _placed(tree, settings)
        if placed is not None and _stands(tree, placed):
            return device
    return None


def of(tree: Tree, device: BootDevice) -> Placed | None:
    """What arms this device; None: the standard override does, as far as this BMC shows."""
    settings = (quirks_for(tree).boot_by_setting or {}).get(device)
    return _placed(tree, settings) if settings else None


def arm(tree: Tree, placed: Placed) -> None:
    """Raises NotAsAsked."""
    path, _ = placed
    try:
        tree.patch(path, _body({setting.key: setting.value for setting in placed[1]}))
    except MaybeSent:
        if not _stands(tree, placed):
            raise
    if not _stands(tree, placed):
        raise NotAsAsked(f"{tree.door.origin}{path}: acknowledged, and the boot device is another")


def disarm(tree: Tree) -> None:
    """What `arm` set is undone; what is not set is left alone."""
    for settings in (quirks_for(tree).boot_by_setting or {}).values():
        placed = _placed(tree, settings)
        if placed is None or not _stands(tree, placed):
            continue
        tree.patch(placed[0], _body({one.key: one.otherwise for one in placed[1] if one.otherwise is not None}))
        if _stands(tree, placed):
            raise NotAsAsked(f"{tree.door.origin}{placed[0]}: acknowledged, and the boot device is as it was")


def _placed(tree: Tree, settings: tuple[OemSetting, ...]) -> Placed | None:
    """All of one maker's stand in one resource of the manager; None where that does not show them all."""
    manager = manager_of(tree)
    at = settings[0].at
    listed = links(manager, *at)
    path = link(manager, *at) or (listed[0] if listed else None)
    doc = tree.find(path)
    if path is None or doc is None or not all(isinstance(dig(doc, *one.key), str | bool) for one in settings):
        return None
    return path, settings


def _stands(tree: Tree, placed: Placed) -> bool:
    doc = tree.get(placed[0])
    return all(dig(doc, *setting.key) == setting.value for setting in placed[1])


def _body(values: Mapping[tuple[str, ...], str | bool]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for keys, value in values.items():
        place = body
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = value
    return body
