"""BIOS settings over Redfish (Bios, AttributeRegistry and Settings resources; DSP0266, "Settings resource").

What is written waits in the Settings resource for the next boot; what that boot did not take is told in `@Redfish.Settings` with a
reason. Where the Settings resource shows no attributes (Supermicro's `/SD`), only the boot shows what came of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import sushy.exceptions

from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import Busy, Malformed, MaybeSent, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.redfish_actions import action
from bcmetal_drivers.redfish_document import Doc, dig, link, printable, text
from bcmetal_drivers.redfish_settings import named_settings, settings_below, settings_of
from bcmetal_drivers.redfish_tasks import until
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.refusals import all_words, refusal
from bcmetal_drivers.resources import BiosState, BiosValue
from bcmetal_drivers.wire import Answer

ATTRIBUTES_LIMIT: Final = 5000
REASON_LIMIT: Final = 200
NAMES_SHOWN: Final = 10
NAMED: Final = 100  # attributes of one message
APPLY_TIME: Final = "@Redfish.SettingsApplyTime"
NO_REASON: Final = re.compile(r"(?:Success|Created|NoOperation|ResetRequired|Completed?|Applied)$")
RELATED: Final = re.compile(r"/?Attributes/(.+)$")

Settings = tuple[str, Doc | None]


def offered(system: Doc) -> bool:
    """Whether this system has BIOS settings, by its own document."""
    return link(system, "Bios") is not None


def bios(tree: Tree) -> BiosState:
    """Raises ServerFault or Busy while the firmware rewrites them, as some BMCs answer during POST."""
    own, doc = _bios(tree)
    _, settings = _settings(tree, own, doc)
    now = attributes_of(doc)
    ahead = attributes_of(settings)
    waiting = {name: value for name, value in ahead.items() if name not in now or not _equal(now[name], value)}
    return BiosState(now, waiting, rejected_of(doc, now))


def set_bios(tree: Tree, wanted: Mapping[str, BiosValue]) -> None:
    """Only what is not so already, and not waiting already, is written; one PATCH, all of it or nothing."""
    own, doc = _bios(tree)
    path, settings = _settings(tree, own, doc)
    now = attributes_of(doc)
    if not now:
        raise Busy(f"{tree.address}: the BMC does not know the BIOS settings yet; a boot of the machine tells it")
    goal = {name: _typed(value, now.get(name)) for name, value in wanted.items()}
    ahead = {**now, **attributes_of(settings)}
    missing = {name: value for name, value in goal.items() if name not in ahead or not _equal(ahead[name], value)}
    if not missing:
        return
    _check_names(tree, doc, now, missing)
    try:
        answer = _patch(tree, path, doc, missing)
    except MaybeSent:
        if _not_taken(tree, path, missing):
            raise
        return
    lost = until(tree.door, answer, lambda: _not_taken(tree, path, missing))
    if lost:
        raise NotAsAsked(
            f"{tree.door.origin}{path}: acknowledged, and these do not wait for the next boot: {_named(lost)}"
        )


def document(tree: Tree) -> dict[str, Any]:
    """The Bios resource. Raises Unsupported."""
    return _bios(tree)[1]


def reset_bios(tree: Tree) -> None:
    """Not read back: what the maker's defaults are only the next boot shows."""
    own, doc = _bios(tree)
    reset = action(doc, "#Bios.ResetBios") or action(_settings(tree, own, doc)[1], "#Bios.ResetBios")
    if reset is None:
        raise Unsupported(f"{tree.address}: this BMC cannot reset the BIOS settings")
    kinds = reset.allowed(tree, "ResetType") or ()
    kind = next((word for word in kinds if "default" in word.lower()), None)
    until(tree.door, tree.door.post(reset.target, data={"ResetType": kind} if kind else {}), list)


# ---------------------------------------------------------------- what the documents say


def attributes_of(doc: Doc | None) -> dict[str, BiosValue]:
    """Plain values only, of names that can be written down, and no annotations; a string keeps its blanks, for it may be written back."""
    listed = dig(doc, "Attributes")
    found: dict[str, BiosValue] = {}
    for name, value in list(listed.items())[:ATTRIBUTES_LIMIT] if isinstance(listed, Mapping) else ():
        named = isinstance(name, str) and len(name) <= 256 and name.isprintable() and "@" not in name
        if named and (value is None or isinstance(value, str | int | float)):
            found[name] = printable(value[:1024]) if isinstance(value, str) else value
    return found


def rejected_of(doc: Doc, known: Mapping[str, object]) -> dict[str, str]:
    """What the last boot did not take, by attribute ("" where the message names none), from `@Redfish.Settings`."""
    messages = dig(doc, "@Redfish.Settings", "Messages")
    found: dict[str, str] = {}
    for message in messages[:200] if isinstance(messages, list) else []:
        severity = text(message, "MessageSeverity") or text(message, "Severity")
        name = text(message, "MessageId") or ""
        if severity == "OK" or (severity is None and NO_REASON.search(name)):
            continue
        if name.endswith(("Success", "ResetRequired")):
            continue
        reason = text(message, "Message", limit=REASON_LIMIT) or name or "no reason given"
        for attribute in _about(message, known) or ("",):
            found.setdefault(attribute, reason)
    return found


def _about(message: Any, known: Mapping[str, object]) -> list[str]:
    related = dig(message, "RelatedProperties")
    named = [
        match[1]
        for item in (related if isinstance(related, list) else [])
        if isinstance(item, str) and (match := RELATED.search(item))
    ]
    if named:
        return [printable(name[:256]) for name in named[:NAMED]]
    args = dig(message, "MessageArgs")
    return [arg for arg in (args if isinstance(args, list) else []) if isinstance(arg, str) and arg in known]


def _bios(tree: Tree) -> tuple[str, dict[str, Any]]:
    path = link(tree.system(), "Bios")
    doc = tree.find(path)
    if path is None or doc is None:
        raise Unsupported(f"{tree.address}: this BMC shows no BIOS settings")
    return path, doc


def _settings(tree: Tree, own: str, doc: Doc) -> Settings:
    """Where changes are written, with its document. The Bios resource itself where no Settings resource can be found."""
    named = named_settings(doc)
    found = settings_of(tree, own, doc) or (settings_below(tree, own) if named is None else (named, None))
    return found or (own, doc)


# ---------------------------------------------------------------- writing


def _patch(tree: Tree, path: str, doc: Doc, attributes: Mapping[str, BiosValue]) -> Answer:
    """With the apply time where the BMC offers to be told: without it an iDRAC keeps the change and makes no job of it.

    Others refuse it (Supermicro AS-1114S: PropertyUnknown), or demand it; the first refusal that speaks of it turns it round.
    """
    body: dict[str, object] = {"Attributes": dict(attributes)}
    on_reset = {APPLY_TIME: {"@odata.type": "#Settings.v1_3_0.PreferredApplyTime", "ApplyTime": "OnReset"}}
    times = dig(doc, "@Redfish.Settings", "SupportedApplyTimes")
    told = isinstance(times, list) and "OnReset" in times
    try:
        return tree.patch(path, {**body, **on_reset} if told else body, follow=False)
    except sushy.exceptions.BadRequestError as error:
        if not isinstance(refusal(error.answer), Refused) or "ApplyTime" not in all_words(error.answer):
            raise
        return tree.patch(path, body if told else {**body, **on_reset}, follow=False)


def _not_taken(tree: Tree, path: str, wanted: Mapping[str, BiosValue]) -> list[str]:
    """Those that neither wait nor are in force. Nothing can be said where the Settings resource shows no attributes."""
    shown = tree.find(path)
    if not isinstance(dig(shown, "Attributes"), Mapping):
        return []
    waiting = attributes_of(shown)
    lost = [name for name, value in wanted.items() if name not in waiting or not _equal(waiting[name], value)]
    if lost:
        now = attributes_of(_bios(tree)[1])  # some are in force at once
        lost = [name for name in lost if name not in now or not _equal(now[name], wanted[name])]
    return lost


def _typed(value: BiosValue, there: BiosValue) -> BiosValue:
    """A number or a truth value that was written as a string becomes what the BMC shows."""
    if not isinstance(value, str) or isinstance(there, str) or there is None:
        return value
    if isinstance(there, bool):
        return {"true": True, "false": False}.get(value.lower(), value)
    return int(value) if re.fullmatch(r"-?\d{1,18}", value) else value


def _equal(one: BiosValue, other: BiosValue) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and (one == other or str(one) == str(other))


# ---------------------------------------------------------------- the registry


def registry(tree: Tree, doc: Doc) -> dict[str, Doc]:
    """The entries of the Bios resource's AttributeRegistry by attribute; {} where it cannot be found or read."""
    name = text(doc, "AttributeRegistry")
    for path in _registry_places(tree, doc, name) if name else ():
        with tolerated(Refused, Unsupported, Malformed):
            listed = dig(tree.find(path), "RegistryEntries", "Attributes")
            entries = listed[:ATTRIBUTES_LIMIT] if isinstance(listed, list) else []
            found = {key: entry for entry in entries if (key := text(entry, "AttributeName"))}
            if found:
                return found
    return {}


def _registry_places(tree: Tree, doc: Doc, name: str) -> list[str]:
    """Where the registry may be: the file that the registry's own entry names, English first; else beside the Bios resource (iDRAC)."""
    places: list[str] = []
    collection = link(tree.root(), "Registries")
    stem = name.split(".")[0]
    with tolerated(Refused, Unsupported, Malformed):
        listed = tree.members(collection) if collection else ()
        named = sorted((path for path in listed if stem in path), key=lambda path: name not in path)
        for path in named[:3]:
            locations = dig(tree.find(path), "Location")
            files = [item for item in (locations if isinstance(locations, list) else []) if isinstance(item, Mapping)]
            files.sort(key=lambda item: not str(item.get("Language") or "en").lower().startswith("en"))
            places += [uri for item in files[:3] if (uri := text(item, "Uri", limit=1024))]
    own = text(doc, "@odata.id", limit=1024)
    return [*places, *([f"{own.rstrip('/')}/BiosRegistry"] if own else [])]


def _check_names(tree: Tree, doc: Doc, now: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Raises Refused with the names that the BIOS does not know, or that cannot be written."""
    entries = registry(tree, doc)
    unknown = [name for name in wanted if name not in now and name not in entries]
    if unknown:
        raise Refused(f"{tree.address}: the BIOS has no attribute {_named(unknown)}")
    fixed = [name for name in wanted if name in entries and entries[name].get("ReadOnly") is True]
    if fixed:
        raise Refused(f"{tree.address}: BIOS attributes that cannot be written: {_named(fixed)}")


def _named(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
