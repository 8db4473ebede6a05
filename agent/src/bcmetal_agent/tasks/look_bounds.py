"""Makes a message keep the bounds that it will be judged by: what a machine tells may be longer than anybody thought."""

from __future__ import annotations

import dataclasses
import types
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from bcmetal_agent.wire import AtMost

T = TypeVar("T")


def fitted(message: T) -> T:
    """The message with its texts printable and cut, its lists cut, and numbers out of range absent (0 where they may not be)."""
    fitted_: T = _fit(type(message), message, None)
    return fitted_


def _fit(kind: Any, value: Any, limit: int | None) -> Any:
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *marks = get_args(kind)
        return _fit(inner, value, next((mark.limit for mark in marks if isinstance(mark, AtMost)), None))
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in get_args(kind) if one is not type(None))
        if value is None or (_bare(inner) is int and not _is_whole(value)):
            return None
        return _fit(inner, value, None)
    if origin is tuple:
        return tuple(_fit(get_args(kind)[0], one, None) for one in value[:limit])
    if kind is str:
        return text(value)[:limit]
    if kind is int:
        return value if _is_whole(value) else 0
    if origin is dict:
        return plain(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = get_type_hints(type(value), include_extras=True)
        new = {one.name: _fit(hints[one.name], getattr(value, one.name), None) for one in dataclasses.fields(value)}
        return dataclasses.replace(value, **new)
    return value


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 2**53


def text(value: str) -> str:
    return "".join(char if char.isprintable() and not "\ud800" <= char <= "\udfff" else " " for char in value).strip()


def plain(value: Any, depth: int = 4) -> Any:
    """A tool's JSON made harmless: printable and short texts, few entries, finite numbers, no great depth."""
    if isinstance(value, str):
        return text(value)[:500]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value if -(2**53) < value < 2**53 else None  # False for nan
    if depth and isinstance(value, dict):
        return {text(str(name))[:100]: plain(inner, depth - 1) for name, inner in list(value.items())[:100]}
    if depth and isinstance(value, list | tuple):
        return [plain(inner, depth - 1) for inner in value[:100]]
    return None
