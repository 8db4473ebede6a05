"""A machine's serial port, kept in a file over all its boots."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BOOT_S: Final = 180.0  # what a boot may take where the machine underneath is busy
POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Console:
    path: Path

    def here(self) -> int:
        """A place to look from: the end of what was said so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def text(self, since: int = 0) -> str:
        """Without colours and cursor movements, which firmware is fond of."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as f:
            f.seek(since)
            said = f.read().decode("utf-8", "replace")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", said)

    def wait_for(self, text: str, timeout_s: float = BOOT_S, since: int = 0) -> str:
        """What was said up to the text, and it. Raises AssertionError with the last lines when it does not come."""
        ends_s = time.monotonic() + timeout_s
        while time.monotonic() < ends_s:
            said = self.text(since)
            if text in said:
                return said[: said.index(text) + len(text)]
            time.sleep(POLL_S)
        raise AssertionError(
            f"{text!r} was not said within {timeout_s:.0f} s; the last lines:\n{self.text(since)[-3000:]}"
        )
