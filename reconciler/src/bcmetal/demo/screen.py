"""How the demonstration shows itself: a live table on a terminal, a line for each change otherwise, and a closing table."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bcmetal.demo.journey import Journey
from bcmetal.text import clean


class Screen:
    def __init__(self, title: str) -> None:
        self.console = Console(markup=False, highlight=False, soft_wrap=not sys.stdout.isatty())
        self._title = title
        self._began = time.monotonic()
        self._live = Live(console=self.console, refresh_per_second=4, transient=True) if sys.stdout.isatty() else None
        self._last: dict[str, str] = {}

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.__exit__(kind, e, tb)

    def say(self, text: str) -> None:
        self.console.print(Text(f"{time.monotonic() - self._began:6.1f} s  {clean(text)}"))

    def show(self, journeys: Sequence[Journey]) -> None:
        if self._live is not None:
            self._live.update(self._table(journeys))
            return
        for journey in journeys:
            state = str(journey.view.get("state", ""))
            if state and self._last.get(journey.name) != state:
                self._last[journey.name] = state
                self.say(f"{journey.name}: {state}")

    def _table(self, journeys: Sequence[Journey]) -> Table:
        table = Table(
            box=SIMPLE_HEAD, title=f"{self._title}, {time.monotonic() - self._began:.0f} s", title_justify="left"
        )
        for column in ("machine", "state", "step", "waits for"):
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        for journey in journeys:
            operation = journey.view.get("operation") or {}
            row = (
                journey.name,
                journey.view.get("state") or "-",
                operation.get("step") or "",
                operation.get("waitingFor") or journey.fault or "",
            )
            table.add_row(*(Text(clean(cell)) for cell in row))
        return table

    def close(self, journeys: Sequence[Journey]) -> None:
        table = Table(box=SIMPLE_HEAD, title=self._title, title_justify="left")
        for column in ("machine", "protocol", "state", "operations", "duration", "recoveries"):
            table.add_column(column, overflow="fold")
        for journey in journeys:
            row = (
                journey.name,
                journey.bmc.address.partition(":")[0],
                journey.view.get("state") or "-",
                f"{len(journey.passed)} of {journey.stage_count}",
                f"{journey.duration_s:.1f} s",
                str(journey.recoveries),
            )
            table.add_row(*(Text(clean(cell)) for cell in row))
        self.console.print(table)
