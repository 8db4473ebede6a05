"""The identify light: LocationIndicatorActive, or the IndicatorLED that it took the place of, of the system or else of its chassis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import DriverError, MaybeSent, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.redfish_around import chassis
from bcmetal_drivers.redfish_document import Doc, dig, text
from bcmetal_drivers.redfish_tree import Tree

ACTIVE: Final = "LocationIndicatorActive"
LED: Final = "IndicatorLED"
LIT: Final = "Lit"


def identified(tree: Tree) -> bool | None:
    """None where the BMC does not say."""
    return next((shown for shown in (_shown(tree, doc) for _, doc in _places(tree)) if shown is not None), None)


def identify(tree: Tree, on: bool) -> None:
    """Raises Unsupported where nothing has a light, NotAsAsked where none shows what was asked for."""
    trouble: DriverError | None = None
    for path, doc in _places(tree):
        if _shown(tree, doc) is on:
            return
        for key, value in _writes(doc, on):
            try:
                with tolerated():
                    tree.patch(path, {key: value})
            except (Refused, Unsupported) as error:
                trouble = error
                continue
            except MaybeSent as error:
                trouble = error
            if value == LIT:
                tree.learned["led_lit"] = on
            if _shown(tree, tree.get(path)) is on:
                return
            trouble = trouble or NotAsAsked(f"{tree.door.origin}{path}: acknowledged, and the light is as it was")
    raise trouble or Unsupported(f"{tree.address}: the BMC shows no identify light")


def offered(doc: Doc) -> bool:
    return isinstance(dig(doc, ACTIVE), bool) or text(doc, LED) is not None


def _places(tree: Tree) -> Iterator[tuple[str, dict[str, Any]]]:
    system = tree.system()
    if offered(system):
        yield tree.system_path(), system
    yield from ((path, doc) for path, doc in chassis(tree, system) if offered(doc))


def _shown(tree: Tree, doc: Doc) -> bool | None:
    """What a steady LED means is known once it was switched: on most makers "identified", on Dell's that all is well."""
    active = dig(doc, ACTIVE)
    if isinstance(active, bool):
        return active
    known: Mapping[str | None, bool | None] = {"Off": False, "Blinking": True, LIT: tree.learned.get("led_lit")}
    return known.get(text(doc, LED))


def _writes(doc: Doc, on: bool) -> list[tuple[str, object]]:
    """What to try, in this order."""
    if isinstance(dig(doc, ACTIVE), bool):
        return [(ACTIVE, on)]
    return [(LED, value) for value in (("Blinking", LIT) if on else ("Off", LIT))]
