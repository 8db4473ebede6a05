"""What a look at a machine finds: its inventory and drives, and beside its purpose a BMC's clock that is wrong, a medium that nobody of us put there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Final

from bcmetal.comparing.changes import TOLD, WHOLE, Change, carried, changes, missing, stable
from bcmetal.decisions import Micros
from bcmetal.placeholders import normal_serial, usable_serial
from bcmetal.states import State
from bcmetal.store import inventories, media
from bcmetal.store.values import DriveSeen, SetDrives, SetSighting, StoreInventory
from bcmetal.store.views import stamp
from bcmetal.workflows.machine import Machine
from bcmetal_drivers.capabilities import VirtualMedia, need, offers
from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.resources import Identity, Inventory

SKEW_MS: Final = 5 * 60 * 1000
# Where we know what must be inserted: nothing, or what we offered. A machine that is new to us may hold anything.
MEDIA_KNOWN_IN: Final = frozenset({State.AVAILABLE, State.DEPLOYED, State.RESCUED})


def skew_ms(told: str | None, now: Micros) -> int | None:
    """How far a BMC's clock is ahead of ours, in milliseconds; None when it does not tell a time with its offset."""
    try:
        at = datetime.fromisoformat(told or "")
    except ValueError:
        return None
    if at.tzinfo is None:
        return None
    return int((at - datetime.fromtimestamp(now / 1_000_000, UTC)).total_seconds() * 1000)


def note_clock(m: Machine, told: str | None) -> None:
    """A clock that is wrong makes the BMC's logs tell wrong times, and fails certificates on the way to our media."""
    skew = skew_ms(told, m.now)
    if skew is None or abs(skew) <= SKEW_MS:
        m.condition("clock", "ok")
    else:
        way = "ahead of" if skew > 0 else "behind"
        text = f"the BMC's clock is {abs(skew) // 60_000} minutes {way} the daemon's: set it, best by NTP"
        m.condition("clock", "warning", "clock-skew", text)
    if skew is not None:
        m.note(SetSighting(clock_skew_ms=skew))


async def look_for_media(m: Machine) -> None:
    """A medium in a slot that is none of those offered to this machine would be booted by the next start from CD."""
    if m.node.facts.state not in MEDIA_KNOWN_IN or not offers(m.bmc, VirtualMedia):
        return
    try:
        slots = await m.look(need(m.bmc, VirtualMedia).inserted)
    except Unsupported:  # this model has no slot that could hold a medium
        return
    ours = await m.doors.store.read(media.paths_of_node, m.node.node_id, m.now)

    def is_ours(url: str | None) -> bool:
        return bool(ours) if url is None else any(url.endswith(path) for path in ours)  # some BMCs tell no URL

    strange = sum(1 for slot in slots if slot.inserted and not is_ours(slot.url))
    if strange:
        text = f"{strange} of the BMC's virtual media hold something that was not offered to this machine: eject it"
        m.condition("media", "warning", "unexpected-medium", text)
    else:
        m.condition("media", "ok")


def usable_drives(seen: Inventory) -> list[DriveSeen]:
    """The drives that can be told apart, once each."""
    found: dict[str, DriveSeen] = {}
    for drive in seen.drives:
        if usable_serial(normal_serial(drive.serial)):
            found.setdefault(drive.serial, DriveSeen(drive.serial, drive.model, drive.wwn, drive.capacity_bytes))
    return list(found.values())


def digest_of(doc: Mapping[str, Any]) -> str:
    """Of a JSON document, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(doc, sort_keys=True).encode()).hexdigest()


def identity_of(m: Machine, seen: Inventory) -> Identity:
    """Who it is; MACs that could not be read this time are those that were known."""
    if seen.sections.get("nics", "ok") in WHOLE:
        return seen.identity
    known = [one.raw for one in m.node.identifiers if one.kind == "mac" and one.source == "bmc"]
    return replace(seen.identity, macs=tuple(dict.fromkeys([*seen.identity.macs, *known])))


async def note_inventory(m: Machine, seen: Inventory, *, accept: bool = False) -> tuple[Change, ...]:
    """Note the inventory and its drives, and tell what changed since the last one; what changes with each reading is no change.

    `accept`: what was missing before this look is missed no more.
    """
    doc: dict[str, Any] = json.loads(json.dumps(asdict(seen), default=dict))
    last = await m.doors.store.read(inventories.latest, m.node.node_id)
    before, told_at = (None, "") if last is None else (last.doc, stamp(last.taken_at) or "")
    kept = carried(before, doc, told_at)
    found = () if before is None else changes(before, kept)
    gone = missing(None if accept else before, found, kept, told_at)
    if gone:
        kept["missing"] = gone
    digest = digest_of(stable(kept))
    told = tuple(one.doc() for one in found[:TOLD])
    m.note(
        StoreInventory(
            m.new_id("iv"), "bmc", digest, dict(seen.sections), kept, changes=told, more=max(0, len(found) - TOLD)
        )
    )
    if seen.sections.get("drives", "ok") in WHOLE:  # else drives that were not read would be new ones the next time
        m.note(SetDrives(tuple(usable_drives(seen))))
    _say_what_is_missing(m, seen, gone)
    return found


def _say_what_is_missing(m: Machine, seen: Inventory, gone: Mapping[str, str]) -> None:
    unread = [
        f"{name} ({why})" for name, why in seen.sections.items() if why not in WHOLE and not why.startswith("unknown")
    ]
    if gone:
        parts = "; ".join(f"{part} (last told {at})" for part, at in gone.items())
        text = (
            f"the BMC tells of these parts no more: {parts}. A part that is there comes back when the BMC is restarted"
        )
        m.condition("inventory", "warning", "parts-missing", text[:2000])
    elif unread:
        m.condition("inventory", "warning", "partial", f"could not be read: {'; '.join(unread)}"[:2000])
    else:
        m.condition("inventory", "ok")
