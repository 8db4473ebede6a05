"""The BMC's clock: Manager.DateTime and its offset."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import DriverError, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.redfish_around import managers
from bcmetal_drivers.redfish_document import Doc, text
from bcmetal_drivers.redfish_tree import Tree

CLOSE_ENOUGH: Final = timedelta(seconds=90)
_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)")


def bmc_clock(tree: Tree) -> str | None:
    found = next((at for at in (clock_of(doc) for _, doc in managers(tree)) if at is not None), None)
    return None if found is None else found.isoformat()


def clock_of(manager: Doc) -> datetime | None:
    """Makers write it with an offset, with Z, or with neither and the offset beside it."""
    shown = text(manager, "DateTime")
    if shown is None:
        return None
    try:
        at = datetime.fromisoformat(shown)
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=_offset(manager) or UTC)


def _offset(manager: Doc) -> timezone | None:
    found = _OFFSET.fullmatch(text(manager, "DateTimeLocalOffset") or "")
    if found is None or int(found[2]) > 23 or int(found[3]) > 59:
        return None
    away = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return timezone(-away if found[1] == "-" else away)


def set_bmc_clock(tree: Tree, at: datetime) -> None:
    """Raises Refused where the BMC lets nobody set it (it follows NTP, or its host), NotAsAsked where it goes on as before."""
    path, doc = next(iter(managers(tree)), (None, None))
    shown = None if doc is None else clock_of(doc)
    if path is None or doc is None or shown is None:
        raise Unsupported(f"{tree.address}: the BMC shows no clock")
    if abs(shown - at) < timedelta(seconds=2):
        return
    trouble: DriverError | None = None
    for body in _forms(doc, at):
        try:
            with tolerated():
                tree.patch(path, body)
        except (Refused, Unsupported) as error:
            trouble = error
            continue
        after = clock_of(tree.get(path))
        if after is not None and abs(after - at) < CLOSE_ENOUGH:
            return
        trouble = NotAsAsked(f"{tree.door.origin}{path}: acknowledged, and the clock shows {after or 'nothing'}")
    raise trouble or Unsupported(f"{tree.address}: the clock cannot be set")


def _forms(doc: Doc, at: datetime) -> list[dict[str, Any]]:
    """As the BMC writes it itself first."""
    zone = _offset(doc) or UTC
    local = at.astimezone(zone).isoformat(timespec="seconds")
    utc = at.astimezone(UTC).isoformat(timespec="seconds")
    z = utc.replace("+00:00", "Z")
    first = z if (text(doc, "DateTime") or "").endswith("Z") else local
    offset = text(doc, "DateTimeLocalOffset")
    forms: list[dict[str, Any]] = [{"DateTime": form} for form in dict.fromkeys((first, local, z))]
    return [*forms, {"DateTime": local, "DateTimeLocalOffset": offset}] if offset else forms
