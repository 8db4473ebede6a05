"""Whether what a driver made of a BMC's answers is of the kinds that it says, and fit to be stored and shown."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any, Union, get_args, get_origin, get_type_hints

LONGEST = 2048  # of a text
DEEPEST = 12
LARGEST = 10**40
NEVER_BELOW_NOUGHT = ("bytes", "cores", "threads", "watts", "percent")


def insane(found: object, where: str = "") -> Iterator[str]:
    """What is wrong with it, in words."""
    if is_dataclass(found) and not isinstance(found, type):
        kinds = get_type_hints(type(found))
        for one in fields(found):
            value, at = getattr(found, one.name), f"{type(found).__name__}.{one.name}"
            if not _is_a(value, kinds[one.name]):
                yield f"{at}: {value!r:.60} is no {kinds[one.name]}"
            yield from _insane(value, at, DEEPEST)
    else:
        yield from _insane(found, where, DEEPEST)


def _insane(value: object, at: str, depth: int) -> Iterator[str]:
    if not depth:
        yield f"{at}: too deep"
    elif value is None or isinstance(value, bool | Enum):
        return
    elif isinstance(value, str):
        if not value.isprintable() or len(value) > LONGEST:
            yield f"{at}: {value!r:.60}, {len(value)} long"
    elif isinstance(value, int | float):
        low = any(word in at.lower() for word in NEVER_BELOW_NOUGHT) and value < 0
        large = abs(value) > LARGEST if isinstance(value, int) else not isfinite(value)
        if low or large:
            yield f"{at}: {value!r:.60}"
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _insane(name, f"{at}, a key", depth - 1)
            yield from _insane(one, f"{at}.{name!s:.40}", depth - 1)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from insane(one) if is_dataclass(one) else _insane(one, at, depth - 1)
    elif is_dataclass(value):
        yield from insane(value)
    else:
        yield f"{at}: a {type(value).__name__}"


def _is_a(value: object, kind: Any) -> bool:
    """As mypy would have it, but that a truth value is no number."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_is_a(value, one) for one in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_is_a(one, inner[0]) for one in value)
    if origin is not None:  # Mapping
        return isinstance(value, Mapping) and all(_is_a(k, inner[0]) and _is_a(v, inner[1]) for k, v in value.items())
    if kind is object:
        return True
    if kind in (int, float):
        return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    return isinstance(value, kind)
