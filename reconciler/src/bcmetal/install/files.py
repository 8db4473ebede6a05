"""Writes the files of a new installation; a private one is created private, and none is written over."""

from __future__ import annotations

import os
from pathlib import Path


def write_new(path: Path, text: str, *, private: bool) -> None:
    """Raises FileExistsError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
