"""What each hardware test gets, and how it is judged by its pass marks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.look_files import Machine
from bcmetal_agent.wire_tests import MARKS


@dataclass(frozen=True, slots=True)
class Trial:
    """`started`: monotonic seconds. `given`: the pass marks of the request, under their names in `MARKS`."""

    name: str
    duration_s: int
    doing: Doing
    machine: Machine = field(default_factory=Machine)
    given: Mapping[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def mark(self, name: str) -> float | None:
        """The pass mark, None where the figure is not judged. Raises TaskFailed for one that is no number."""
        value = self.given.get(name, MARKS[self.name][name])
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise TaskFailed("bad-limits", f"the pass mark {name} of the test {self.name} is no number")

    def known_marks(self) -> None:
        """Raises TaskFailed for a mark that nobody would judge by."""
        unknown = sorted(set(self.given) - set(MARKS[self.name]))
        if unknown:
            known = ", ".join(MARKS[self.name])
            raise TaskFailed("bad-limits", f"the test {self.name} knows no {unknown[0][:64]}; it knows {known}")
        for name in self.given:
            if name != "server_time":
                self.mark(name)

    def log(self, line: str) -> None:
        self.doing.log(line + "\n")

    def over(self, name: str, value: float | None, what: str) -> list[str]:
        """A sentence where the figure is more than its mark."""
        mark = self.mark(name)
        return (
            [f"{what}: {value:g}, at most {mark:g} allowed"] if None not in (mark, value) and _more(value, mark) else []
        )

    def under(self, name: str, value: float | None, what: str) -> list[str]:
        """A sentence where the figure is less than its mark, or is not known though it was to be judged."""
        mark = self.mark(name)
        if mark is None or _more(mark, value) is False:
            return []
        return [f"{what}: {'not known' if value is None else f'{value:g}'}, at least {mark:g} wanted"]

    @contextmanager
    def ticking(self, message: str, sample: Callable[[], None] = lambda: None) -> Iterator[None]:
        """While a program runs for the test's time: tell how far it is, and `sample` once a second."""
        done = threading.Event()

        def tick() -> None:
            while not done.wait(1.0):
                share = (time.monotonic() - self.started) / max(self.duration_s, 1)
                self.doing.progress(min(int(share * 1000), 990), message)
                sample()

        thread = threading.Thread(target=tick, name="tick", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _more(one: float | None, other: float | None) -> bool | None:
    return None if one is None or other is None else one > other
