"""JSON as the tables hold it: one text for one value, so that equal values are equal texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def dump_or_none(value: Any) -> str | None:
    return None if value is None else dump(value)


def load(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, Mapping):
        raise TypeError("not a JSON object")
    return dict(value)


def load_or_none(text: str | None) -> dict[str, Any] | None:
    return None if text is None else load(text)
