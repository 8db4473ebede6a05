"""What a task gets beside its params: where it tells of its progress, and learns that nobody waits for it any more."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class TaskFailed(Exception):
    """The task can not be done. `code`: a word with hyphens, of the daemon's vocabulary; the text is one sentence for the site's admin."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Stopped(Exception):
    """Nobody waits for this task any more: leave things as they are, and end."""


class Doing(Protocol):
    """All of these may be called from the task's threads, often: what is too much is gathered, and none blocks on the network."""

    def progress(self, thousandths: int, message: str | None = None) -> None: ...

    def log(self, text: str) -> None:
        """More of the task's log; lines end with a newline. Control characters are taken out later."""
        ...

    def check(self) -> None:
        """Raises Stopped."""
        ...


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class ImageDoor(Protocol):
    """The way to the image of the task that is under way."""

    def __call__(self, offset: int) -> AbstractContextManager[Readable]:
        """The image from this byte on. `read` returns at most that many bytes, and none at the end.

        Raises OSError where it is not to be had now (a refusal included), at opening or at reading: the caller opens it again.
        """
        ...
