"""Where the trees recorded from real BMCs are: not in the repository."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from bcmetal_drivers.emulated.recorded import RecordedTree

CHECKOUT = Path(__file__).resolve().parents[2]


def folder() -> Path | None:
    """BCMETAL_RECORDINGS, else a folder `recordings` beside the checkout or in a folder beside it."""
    named = os.environ.get("BCMETAL_RECORDINGS")
    if named:
        return Path(named)
    beside = [CHECKOUT.parent / "recordings", *sorted(CHECKOUT.parent.glob("*/recordings"))]
    return next((found for found in beside if found.is_dir() and CHECKOUT not in found.parents), None)


def archives() -> dict[str, Path]:
    """By name without its ending."""
    where = folder()
    return {} if where is None else {path.name.split(".tar")[0]: path for path in sorted(where.glob("*.tar.*"))}


@cache
def _read(path: Path) -> RecordedTree:
    return RecordedTree.read(path)


def recorded(name: str) -> RecordedTree:
    """A tree of its own of this recording; skips the test where it is absent."""
    path = archives().get(name)
    if path is None:
        pytest.skip(f"the recording {name} is absent: BCMETAL_RECORDINGS names the folder that holds it")
    return _read(path).copy()
