"""The terminal of an open console: raw while it is open, what the machine writes made harmless for it, and `~` after a line's end."""

from __future__ import annotations

import codecs
import contextlib
import sys
import termios
import tty
import unicodedata
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

SEQUENCE_LIMIT: Final = 4096  # characters; what is longer was no escape sequence
LINE_WORK: Final = "\r\n\t\b"
HELP: Final = "\r\n~.  end the console\r\n~B  send a break\r\n~~  type ~\r\n~?  this\r\n"


@contextlib.contextmanager
def raw_terminal() -> Iterator[int]:
    """The terminal on stdin hands out each key as it is typed; its file descriptor. As it was, afterwards."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setraw(fd, termios.TCSADRAIN)
    try:
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class _In(Enum):
    TEXT = auto()
    ESCAPE = auto()
    CONTROL = auto()  # ESC [ … final byte
    CHARSET = auto()  # ESC ( … final byte
    STRING = auto()  # titles, clipboards, device strings: up to BEL or ESC \
    STRING_END = auto()


class PlainText:
    """Text without escape sequences and control characters, from a stream that may cut them anywhere (ECMA-48)."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _In.TEXT
        self._length = 0

    def of(self, data: bytes) -> str:
        return "".join(char for char in self._decoder.decode(data) if self._shown(char))

    def _shown(self, char: str) -> bool:
        if self._state is _In.TEXT:
            if char == "\x1b":
                self._enter(_In.ESCAPE)
                return False
            return char in LINE_WORK or unicodedata.category(char)[0] != "C"
        self._length += 1
        if self._length > SEQUENCE_LIMIT:
            self._state = _In.TEXT
        elif self._state is _In.STRING:
            if char == "\x07":
                self._state = _In.TEXT
            elif char == "\x1b":
                self._state = _In.STRING_END
        elif self._state is _In.STRING_END:
            self._state = _In.TEXT if char == "\\" else _In.STRING
        elif char == "\x1b":
            self._enter(_In.ESCAPE)
        elif self._state is _In.ESCAPE:
            self._state = self._after_escape(char)
        elif not " " <= char <= "?":  # the final byte, or nothing that belongs there
            self._state = _In.TEXT
        return False

    def _enter(self, state: _In) -> None:
        self._state, self._length = state, 0

    def _after_escape(self, char: str) -> _In:
        if char == "[":
            return _In.CONTROL
        if char in "]PX^_":
            return _In.STRING
        return _In.CHARSET if " " <= char <= "/" else _In.TEXT


class Command(Enum):
    END = auto()
    BREAK = auto()
    HELP = auto()


class Typed:
    """What is typed, with the commands taken out that `~` begins at the start of a line."""

    def __init__(self) -> None:
        self._fresh = True  # nothing on this line yet
        self._tilde = False

    def parts(self, data: bytes) -> Iterator[bytes | Command]:
        """In the order of typing; what comes after END is dropped."""
        out = bytearray()
        for byte in data:
            one = bytes((byte,))
            if self._tilde:
                self._tilde = False
                command = {b".": Command.END, b"B": Command.BREAK, b"?": Command.HELP}.get(one)
                if command is not None:
                    if out:
                        yield bytes(out)
                        out.clear()
                    yield command
                    if command is Command.END:
                        return
                    self._fresh = True
                    continue
                out += one if one == b"~" else b"~" + one
            elif one == b"~" and self._fresh:
                self._tilde = True
                continue
            else:
                out += one
            self._fresh = one in (b"\r", b"\n")
        if out:
            yield bytes(out)
