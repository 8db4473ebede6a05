"""What a Redfish document says (DSP0266). Nothing in it is believed to be of the type that the standard says: the readers give None for what is not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

Doc = Mapping[str, Any]

TEXT_LIMIT: Final = 256
TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False}
PAGES: Final = 200  # of one collection
MEMBERS: Final = 2000  # of one collection, or list of links
HEALTH: Final = ("ok", "warning", "critical")
INFORMATIONAL: Final = ("info", "informational")  # severities of some makers; the standard's word is OK


def text(doc: Any, *keys: str, limit: int = TEXT_LIMIT) -> str | None:
    """A string (or a number as one), stripped, bounded, printable; None when it is absent, empty or something else."""
    value = dig(doc, *keys)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return None
    return printable(value).strip()[:limit] or None


def printable(said: str) -> str:
    """The same with a space for each control character and the like."""
    return "".join(c if c.isprintable() else " " for c in said)


def number(doc: Any, *keys: str) -> float | None:
    """A number, also one that is written as a string."""
    value = dig(doc, *keys)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def flag(doc: Any, *keys: str) -> bool | None:
    """A truth value, also one that is written as a word; None where it is none."""
    value = dig(doc, *keys)
    return value if isinstance(value, bool) else TRUTHS.get((text(doc, *keys) or "").lower())


def as_spelled(word: str, named: Iterable[str]) -> str | None:
    """A word of the standard as this BMC spells it among those that it names; None where it does not name it."""
    return next((one for one in named if one.lower() == word.lower()), None)


def dig(doc: Any, *keys: str) -> Any:
    """What is at the end of these keys; None where one is absent, or what it is asked of is no object."""
    for name in keys:
        doc = doc.get(name) if isinstance(doc, Mapping) else None
    return doc


def link(doc: Any, *keys: str) -> str | None:
    """The path that a reference names; None where there is none."""
    value = dig(doc, *keys, "@odata.id")
    return value if isinstance(value, str) and value else None


def links(doc: Any, *keys: str) -> tuple[str, ...]:
    """The paths of a list of references; what is no reference is left out."""
    value = dig(doc, *keys)
    listed = value if isinstance(value, list) else []
    return tuple(path for path in map(link, listed[:MEMBERS]) if path)


def objects(doc: Any, *keys: str, limit: int = MEMBERS) -> list[dict[str, Any]]:
    """The objects among the first entries of a list; none where there is no list."""
    value = dig(doc, *keys)
    return [one for one in value[:limit] if isinstance(one, dict)] if isinstance(value, list) else []


def health_word(said: str | None) -> str | None:
    """`ok`, `warning` or `critical`, from the standard's word in any case; None for others."""
    word = (said or "").lower()
    return word if word in HEALTH else None


def severity_word(said: str | None) -> str | None:
    """The same of what happened, by the makers' words for `ok` too."""
    return "ok" if (said or "").lower() in INFORMATIONAL else health_word(said)


def health(doc: Any) -> str | None:
    """With what is in it, where that is told; None: not said."""
    return health_word(text(doc, "Status", "HealthRollup") or text(doc, "Status", "Health"))


def length(doc: Any, *keys: str) -> int:
    """How many entries a list has, whatever they are; 0 where there is none."""
    value = dig(doc, *keys)
    return len(value) if isinstance(value, list) else 0


def action_target(doc: Doc, action: str) -> str | None:
    """The path that an action is posted to, such as `#ComputerSystem.Reset`; None where the resource does not offer it."""
    value = dig(doc, "Actions", action, "target")
    return value if isinstance(value, str) and value else None


def key(path: str) -> str:
    """Paths that name the same resource: makers mix case, and a slash at the end."""
    where, mark, query = path.partition("#")[0].partition("?")
    return where.rstrip("/").lower() + mark + query


HOST_PARTS: Final = (
    "Bios",
    "SecureBoot",
    "EthernetInterfaces",
    "NetworkInterfaces",
    "Storage",
    "SimpleStorage",
    "VirtualMedia",
)


def is_host(doc: Doc | None) -> bool:
    """Whether a system is a machine that can be started: a witness node has no reset, a baseboard of GPUs beside its host no boot or BIOS."""
    if doc is None or text(doc, "SystemType") not in (None, "Physical", "OS"):
        return False
    boots = bool(dig(doc, "Boot")) and action_target(doc, "#ComputerSystem.Reset") is not None
    return boots and any(link(doc, part) for part in HOST_PARTS)


def has_bios(doc: Doc) -> bool:
    """Whether a system tells of firmware that starts it."""
    return text(doc, "BiosVersion") is not None or any(link(doc, part) for part in ("Bios", "SecureBoot"))


def is_root(doc: Doc) -> bool:
    """Whether a document is a Redfish service's root."""
    kind = dig(doc, "@odata.type")
    return "RedfishVersion" in doc or (isinstance(kind, str) and "ServiceRoot" in kind)


# ---------------------------------------------------------------- beside a write


def same(before: Any, now: Any, body: Any) -> bool:
    """Whether what `body` names is the same in both documents."""
    if isinstance(body, Mapping):
        return all(same(dig(before, name), dig(now, name), body[name]) for name in body)
    return bool(before == now)


def shows(doc: Any, body: Any) -> bool:
    """Whether the document has a value wherever `body` has one."""
    if isinstance(body, Mapping):
        return all(shows(dig(doc, name), body[name]) for name in body)
    return doc is not None


def holds(doc: Any, body: Any) -> bool:
    """Whether the document has what `body` has, value for value."""
    if isinstance(body, Mapping):
        return all(holds(dig(doc, name), body[name]) for name in body)
    return bool(doc == body)
