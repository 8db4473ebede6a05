"""How fast a BMC is asked: as its maker's row says, and slower once it answered 429. What it took 429 to learn is kept, and fades."""

from __future__ import annotations

import time
from collections.abc import MutableMapping
from typing import Any, Final

SPACING: Final = "spacingS"  # in what is learned
FIRST_S: Final = 0.1
SLOWEST_S: Final = 1.0  # a BMC that says 429 to everything must not bring an inventory to a stand
FADES_AFTER: Final = 100  # answers in a row that complain of nothing


class Pace:
    """`spacing_s` is the maker's; `memory` holds what was learned."""

    def __init__(self, memory: MutableMapping[str, Any]) -> None:
        self.spacing_s = 0.0
        self._memory = memory
        self._ended_at = 0.0
        self._calm = 0

    def wait_s(self) -> float:
        """Until the next request may go out."""
        spacing_s = max(self.spacing_s, self._learned_s)
        return max(0.0, self._ended_at + spacing_s - time.monotonic()) if spacing_s else 0.0

    def answered(self, status: int) -> None:
        self._ended_at = time.monotonic()
        if status == 429:
            self._calm = 0
            self._memory[SPACING] = min(SLOWEST_S, max(FIRST_S, 2 * self._learned_s))
        elif self._learned_s:
            self._calm += 1
            if self._calm >= FADES_AFTER:
                self._calm = 0
                slower = self._learned_s / 2
                self._memory[SPACING] = slower if slower >= FIRST_S else None

    @property
    def _learned_s(self) -> float:
        return float(self._memory.get(SPACING) or 0.0)
