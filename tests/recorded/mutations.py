"""Trees with anything in them replaced, dropped, retyped or made huge; seeded."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

Place = tuple[Any, Any]  # a container, and the key or index in it

LONG = "x" * 70_000
WORDS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3.5, 2**31, 2**63, 2**200, -(10**400), 1e308, float("nan"), float("inf"), "", " ", "0", "-1",
    "NaN", "1e999", "null", "N/A", "On", "Off", "Absent", "\x00\x1b[31m\r\n", "‮evil", "\ud800", "é" * 300, "%00", "../../..",
    LONG, [], {}, [[]], [{}], [None], [None, "x", 7], {"@odata.id": None}, {"@odata.id": 7}, {"@odata.id": ""}, {"": ""},
    [{"@odata.id": "/redfish/v1"}], {"@odata.id": "/redfish/v1"}, {"@odata.id": "/redfish/v1/Nowhere"},
    {"@odata.id": "https://elsewhere.invalid/redfish/v1/Systems"}, {"@odata.id": "//elsewhere.invalid/x"},
    {"@odata.id": "http://[::1/broken"}, {"@odata.id": "redfish/v1/relative"}, {"@odata.id": "/redfish/v1/\r\nX: y"},
    {"@odata.id": "/" + LONG}, {"@odata.id": "/\ud800"}, {"@odata.id": "/redfish/v1/\x1b[2JSystems"}, {"@odata.id": "/redfish/v1/Sys\ntems"},
    {"@odata.id": "#"}, {"@odata.id": "/redfish/v1/../.."}, {"@odata.id": True}, {"@odata.id": {"@odata.id": "/redfish/v1"}},
    "٣", "1_000", "0x10", "²", "\x7f", "a\tb", "\u2028", "9999-12-31T23:59:59+23:59", "0001-01-01T00:00:00+14:00", "2026-02-30T00:00:00Z", "+99:99",
    [True, "\x07", -5], {"\x1b[31m": "\x1b[31m"}, [{"a": ["\ud83d"]}], "/redfish/v1/Systems", "https://elsewhere.invalid/", "00:1b:21:00:00:01", "2026-01-01T00:00:00Z",
)  # fmt: skip
WHOLE: tuple[Any, ...] = (
    b"",
    b"<html>busy</html>",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"{}{}",
    b"\xff\xfe",
    b"[" * 5000,
    {},
    {"Members": 7},
)


KINDS = (
    *("replace", "replace", "replace", "drop", "retype", "huge", "deep", "swap", "link", "repeat"),
    *("itself", "inserted", "all", "negated"),
)
INSERTED = ("\x00", "\x1b[2J", "\n", "\ud800", "٣", "\u202e", "/", "?", "#")


def places(value: Any) -> Iterator[Place]:
    """Every value below this one."""
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def mutated(docs: dict[str, Any], rng: random.Random, paths: list[str]) -> tuple[dict[str, Any], str]:
    """Some of the documents at `paths` with one to many mutations each, and what was done, in words."""
    made, done = dict(docs), []
    kinds = list(KINDS)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        path = rng.choice(paths)
        doc = made[path] = deepcopy(made[path])
        if not isinstance(doc, dict) or rng.random() < 0.04:
            made[path] = deepcopy(rng.choice(WHOLE))
            done.append(f"{path} is {made[path]!r:.40}")
            continue
        found = list(places(doc))
        if found:
            holder, key = rng.choice(found)
            kind = rng.choice(kinds)
            if kind == "deep":  # once: more would be too deep for the test's own copies
                kinds.remove(kind)
            _mutate(kind, holder, key, rng, made, paths)
            done.append(f"{path} {key!r:.60}: {kind}")
    return made, "; ".join(done)


def _is_small(value: Any) -> bool:
    """So that what is made huge once is not made huge again: the test's own server would be what takes the time."""
    try:
        return len(json.dumps(value)) < 400
    except (RecursionError, ValueError):
        return False


def _mutate(kind: str, holder: Any, key: Any, rng: random.Random, docs: dict[str, Any], paths: list[str]) -> None:
    value = holder[key] if _is_small(holder[key]) else "small"
    if kind == "drop":
        del holder[key]
    elif kind == "retype":
        holder[key] = rng.choice(
            ([value], {"value": value}, str(value)[:1000], [value, value], {str(key): value}, bool(value))
        )
    elif kind == "huge":
        holder[key] = rng.choice(([value] * 500, {str(n): value for n in range(300)}, LONG, 10**4000))
    elif kind == "deep":
        for _ in range(rng.choice((20, 300))):
            value = [value] if rng.random() < 0.5 else {"@odata.id": value}
        holder[key] = value
    elif kind == "swap":
        other = rng.choice(list(places(docs[rng.choice(paths)])) or [(holder, key)])
        holder[key] = deepcopy(other[0][other[1]]) if _is_small(other[0][other[1]]) else "swapped"
    elif kind == "link":
        holder[key] = {"@odata.id": rng.choice(paths)}
    elif kind == "repeat" and isinstance(value, list):
        holder[key] = value * 3
    elif kind == "itself":
        holder[key] = {"@odata.id": next((path for path in paths if docs[path] is holder), paths[0])}
    elif kind == "inserted" and isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        holder[key] = value[:at] + rng.choice(INSERTED) + value[at:]
    elif kind == "all" and isinstance(holder, dict):
        holder.update({name: deepcopy(rng.choice(WORDS)) for name in holder})
    elif kind == "negated" and isinstance(value, int | float) and abs(value) < 2**63:
        holder[key] = rng.choice((-value, value + 0.5, str(value), bool(value)))
    else:
        holder[key] = deepcopy(rng.choice(WORDS))
