"""Folders in memory, where a commit costs no turn of a disk: processes are killed by tests, never the machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 2 << 30  # in containers there are often 64 MiB


@contextmanager
def a_folder(otherwise: Path) -> Iterator[Path]:
    """A folder that ends with its use; where there is no memory for one, `otherwise`."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="bcmetal-test-", dir=MEMORY, ignore_cleanup_errors=True) as name:
        yield Path(name)
