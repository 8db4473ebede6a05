"""Virtual media where a maker's own action stands between: one that inserts in the place of InsertMedia, and one that switches the slots on.

- VmmControl (Huawei iBMC, xFusion): a slot without InsertMedia has it among its Oem's actions. It answers with a Task.
- EnableRMedia (AMI MegaRAC: ASRock Rack, Gigabyte, DGX H100): as delivered, remote media is `Disabled`, and the collection of slots is empty or
  its slots take nothing. It takes effect some seconds later.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from bcmetal_drivers.redfish_actions import Action, action
from bcmetal_drivers.redfish_around import managers
from bcmetal_drivers.redfish_document import Doc, dig, text
from bcmetal_drivers.redfish_tree import Tree

INSERT: Final = "#VirtualMedia.VmmControl"
SWITCH: Final = "VirtualMedia.EnableRMedia"
SWITCHED_S: Final = 12.0  # until it is on
PAUSE_S: Final = 1.0
MAKERS: Final = 8


@dataclass(frozen=True, slots=True)
class OwnAction:
    """How one slot takes a medium and gives it up."""

    target: str

    def body(self, url: str | None) -> dict[str, Any]:
        """None: ejected."""
        return {"VmmControlType": "Disconnect"} if url is None else {"VmmControlType": "Connect", "Image": url}


def own_action(slot: Doc) -> OwnAction | None:
    """A maker's action of this slot, at either of the places that makers use."""
    places = ({"Actions": one} for one in (dig(slot, "Actions", "Oem"), *(dig(one, "Actions") for one in _oem(slot))))
    found = next((found for place in places if (found := action(place, INSERT))), None)
    return OwnAction(found.target) if found is not None else None


def switch_on(tree: Tree) -> None:
    """Where remote media is switched off, and the BMC offers to switch it on; waits until it shows that it is, within bounds."""
    for path, manager in managers(tree):
        switch = _switch(manager)
        if _is_off(manager) and switch is not None:
            tree.act(switch.target, {"RMediaState": "Enable"})
            end = time.monotonic() + SWITCHED_S
            while _is_off(tree.get(path)) and time.monotonic() < end:
                time.sleep(tree.door.left_s(PAUSE_S))


def _switch(manager: Doc) -> Action | None:
    oem = dig(manager, "Actions", "Oem")
    names = [name for name in oem if isinstance(name, str) and name.endswith(SWITCH)] if isinstance(oem, dict) else []
    return action(manager, "Oem", names[0]) if names else None


def _is_off(manager: Doc) -> bool:
    return any((text(one, "VirtualMedia", "RMediaStatus") or "").lower() == "disabled" for one in _oem(manager))


def _oem(doc: Doc) -> Iterator[Doc]:
    oem = dig(doc, "Oem")
    yield from [one for one in oem.values() if isinstance(one, dict)][:MAKERS] if isinstance(oem, dict) else ()
