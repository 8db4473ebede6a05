"""What differs between two inventories of one BMC: parts that came, that went, that are not what they were. Pure.

A section that could not be read this time says nothing of its parts: they stay as they were told the last time, and are marked `stale`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bcmetal.placeholders import normal_serial, usable_serial

Doc = Mapping[str, Any]

WHOLE: Final = ("ok", "absent")
TOLD: Final = 50  # changes in one event
MISSING: Final = 200
TEXT: Final = 120


@dataclass(frozen=True, slots=True)
class _Kind:
    """Parts of one kind: where they are in the document, what identifies one beside its serial, and what of it counts."""

    section: str
    field: str
    word: str
    keys: tuple[str, ...]
    counts: tuple[str, ...]


KINDS: Final = (
    _Kind("cpus", "cpus", "CPU", ("socket", "id"), ("model", "cores", "threads", "microcode", "health")),
    _Kind("memory", "dimms", "memory module", ("slot", "id"), ("capacityBytes", "partNumber", "slot", "health")),
    _Kind("drives", "drives", "drive", ("wwn", "path"), ("model", "capacity_bytes", "firmware", "health")),
    _Kind("volumes", "volumes", "volume", ("ref",), ("name", "raid", "capacity_bytes", "drives", "health")),
    _Kind("nics", "nics", "network port", ("mac",), ("adapterModel", "health")),
    _Kind("nics", "adapters", "network card", ("id", "path"), ("model", "firmware", "health")),
    _Kind("gpus", "gpus", "GPU", ("id", "path"), ("model", "firmware", "health")),
    _Kind("psus", "psus", "power supply", ("name", "path"), ("model", "capacityWatts", "firmware", "health")),
    _Kind("fans", "fans", "fan", ("name", "path"), ("model", "health")),
    _Kind("pcie", "pcie", "PCIe device", ("id", "path"), ("name", "model", "health")),
)
SINGLE: Final = (  # section, field, word
    ("memory", "memory_bytes", "memory"),
    ("tpm", "tpm", "TPM"),
    ("secureBoot", "secure_boot", "secure boot"),
    ("identity", "bios_version", "BIOS version"),
)
# Of parts, and of the BMC; MACs are the NICs'.
VOLATILE: Final = frozenset({"clock", "macs", "linkStatus", "speedMbps", "life_left_percent"})
OF_ONE_LOOK: Final = ("sections", "sources", "read_at", "stale", "missing", "capabilities", "boot_mode", "power")


@dataclass(frozen=True, slots=True)
class Change:
    """`what`: added, removed or changed. `part` is in words, such as `drive S4EV0K` or `firmware BIOS`."""

    section: str
    what: str
    part: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        if self.what == "changed":
            return f"{self.part} was {self.before or 'not told'}, and is now {self.after or 'not told'}"
        return f"{self.part} {'came' if self.what == 'added' else 'is gone'}"

    def doc(self) -> dict[str, str]:
        told = {"section": self.section, "what": self.what, "part": self.part, "from": self.before, "to": self.after}
        return {name: value for name, value in told.items() if value}


def changes(before: Doc, after: Doc) -> tuple[Change, ...]:
    """Of sections that both have; in the order of a machine's parts."""
    return tuple(_changes(before, after))


def _changes(before: Doc, after: Doc) -> Iterator[Change]:
    for kind in KINDS:
        if kind.field in before and kind.field in after:
            yield from _of_kind(kind, before[kind.field] or (), after[kind.field] or ())
    for section, name, word in SINGLE:
        if name in before and name in after and before[name] != after[name]:
            yield Change(section, "changed", word, _text(before[name]), _text(after[name]))
    if "firmware" in before and "firmware" in after:
        yield from _versions(before["firmware"] or {}, after["firmware"] or {})
    was, is_now = (before.get("bmc") or {}).get("firmware"), (after.get("bmc") or {}).get("firmware")
    if was and is_now and was != is_now:
        yield Change("bmc", "changed", "BMC firmware", _text(was), _text(is_now))


def _of_kind(kind: _Kind, before: Sequence[Doc], after: Sequence[Doc]) -> Iterator[Change]:
    then, now = _by_name(kind, before), _by_name(kind, after)
    for name, part in then.items():
        if name not in now:
            yield Change(kind.section, "removed", _label(kind, part), before=_words(part))
            continue
        for what in kind.counts:
            was, is_now = part.get(what), now[name].get(what)
            if was != is_now and was is not None and is_now is not None:  # told and not told is no change of the part
                yield Change(kind.section, "changed", f"{_label(kind, part)} {what}", _text(was), _text(is_now))
    for name, part in now.items():
        if name not in then:
            yield Change(kind.section, "added", _label(kind, part), after=_words(part))


def _by_name(kind: _Kind, parts: Iterable[Doc]) -> dict[str, Doc]:
    found: dict[str, Doc] = {}
    for part in parts:
        name = _name(kind, part)
        while name in found:
            name += "+"
        found[name] = part
    return found


def _name(kind: _Kind, part: Doc) -> str:
    serial = normal_serial(str(part.get("serial") or ""))
    if serial and usable_serial(serial):
        return f"serial {serial}"
    return next((f"{key} {part[key]}" for key in kind.keys if part.get(key)), "?")


def _label(kind: _Kind, part: Doc) -> str:
    names = ("mac",) if kind.field == "nics" else ("serial", *kind.keys, "id")
    told = next((str(part[name]) for name in names if part.get(name)), "without a name")
    return f"{kind.word} {told}"[:TEXT]


def _words(part: Doc) -> str:
    return _text(part.get("model") or part.get("adapterModel") or part.get("name") or "")


def _versions(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name, version in before.items():
        if name not in after:
            yield Change("firmware", "removed", f"firmware {name}"[:TEXT], before=_text(version))
        elif after[name] != version:
            yield Change("firmware", "changed", f"firmware {name}"[:TEXT], _text(version), _text(after[name]))
    for name in after:
        if name not in before:
            yield Change("firmware", "added", f"firmware {name}"[:TEXT], after=_text(after[name]))


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{name} {one}" for name, one in value.items())
    elif isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return "" if value is None else str(value)[:TEXT]


# ---------------------------------------------------------------- from one look to the next


def carried(before: Doc | None, after: Doc, taken_at: str) -> dict[str, Any]:
    """The inventory as it is kept: what could not be read now is as it was told before. `taken_at`: when `before` was read."""
    kept = dict(after)
    if before is None:
        return kept
    statuses = after.get("sections") or {}
    stale: dict[str, str] = {}
    for section, status in statuses.items():
        if status in WHOLE:
            continue
        for kind in (one for one in KINDS if one.section == section and before.get(one.field)):
            now = _by_name(kind, after.get(kind.field) or ())
            lost = [part for name, part in _by_name(kind, before[kind.field]).items() if name not in now]
            if lost:
                kept[kind.field] = [*(after.get(kind.field) or ()), *lost]
                stale[section] = (before.get("stale") or {}).get(section, taken_at)
        if section in ("identity", "bmc") and before.get(section):
            kept[section] = before[section]
        for name in ("firmware", *(one for of, one, _ in SINGLE if of == section)):
            if (name == "firmware") == (section == "firmware") and before.get(name) and not after.get(name):
                kept[name] = before[name]
                stale[section] = (before.get("stale") or {}).get(section, taken_at)
    return kept | ({"stale": stale} if stale else {})


def missing(before: Doc | None, found: Iterable[Change], kept: Doc, taken_at: str) -> dict[str, str]:
    """Parts that were told of before and are told of no more, each with when it was told of last; those that are back are left out."""
    back = {_label(kind, part) for kind in KINDS for part in kept.get(kind.field) or ()}
    known = dict((before or {}).get("missing") or {})
    gone = {one.part: taken_at for one in found if one.what == "removed" and one.section != "firmware"}
    return dict(list({part: at for part, at in {**gone, **known}.items() if part not in back}.items())[:MISSING])


def stable(doc: Doc) -> dict[str, Any]:
    """What of it is the machine's, and not of this look."""
    return {name: _stable(value) for name, value in doc.items() if name not in OF_ONE_LOOK}


def _stable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _stable(one) for name, one in value.items() if name not in VOLATILE}
    if isinstance(value, list | tuple):  # BMCs list parts in whatever order
        return sorted((_stable(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    return value
