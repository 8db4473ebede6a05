"""A `Doing` that keeps what it was told."""

from __future__ import annotations

from bcmetal_agent.tasks.doing import Stopped


class Kept:
    def __init__(self) -> None:
        self.text = ""
        self.steps: list[tuple[int, str | None]] = []
        self.stopped = False

    def progress(self, thousandths: int, message: str | None = None) -> None:
        self.steps.append((thousandths, message))

    def log(self, text: str) -> None:
        self.text += text

    def check(self) -> None:
        if self.stopped:
            raise Stopped
