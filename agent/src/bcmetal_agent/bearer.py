"""The join token's way in: from a file, a systemd credential or standard input, never from the command line or the environment."""

from __future__ import annotations

import os
import re
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

TOKEN_LIMIT: Final = 1024
_TOKEN = re.compile(r"bcjt_[0-9A-Za-z_]{1,128}\.[A-Za-z0-9_-]{1,256}")
_CREDENTIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class NoToken(Exception):
    """There is no usable token where it was said to be; the text names the place, never the content."""


@dataclass(frozen=True)
class Bearer:
    """A join token, which neither its `str` nor its `repr` shows."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return "(a join token)"

    def hide_in(self, text: str) -> str:
        """The text without the token or its secret half: a server must not be able to put it into our log."""
        secret = self.value.partition(".")[2]
        return text.replace(self.value, "(the token)").replace(secret, "(the secret)")


@dataclass
class TokenSource:
    """`place`: a path, `credential:NAME` or `-`. A file is read anew each time, since somebody may have put a newer token there."""

    place: str
    stdin: BinaryIO | None = None
    _read: Bearer | None = field(default=None, repr=False)

    def read(self) -> Bearer:
        """Raises NoToken."""
        if self.place == "-":
            if self._read is None:
                self._read = _bearer((self.stdin or sys.stdin.buffer).read(TOKEN_LIMIT + 1), "standard input")
            return self._read
        path = self.path()
        try:
            with path.open("rb") as file:
                return _bearer(file.read(TOKEN_LIMIT + 1), str(path))
        except OSError as error:
            raise NoToken(f"cannot read the token file {path}: {error.strerror}") from None

    def path(self) -> Path:
        """Raises NoToken."""
        if not self.place.startswith("credential:"):
            return Path(self.place)
        name, folder = self.place.removeprefix("credential:"), os.environ.get("CREDENTIALS_DIRECTORY")
        if not _CREDENTIAL.fullmatch(name):
            raise NoToken("the name of a credential holds letters, digits, '.', '_' and '-' only")
        if folder is None:
            raise NoToken(f"there is no credential {name}: not started by systemd with LoadCredential={name}:…")
        return Path(folder) / name

    def readable_by_others(self) -> bool:
        """False also where there is nothing to read."""
        if self.place == "-":
            return False
        try:
            return bool(self.path().stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
        except (OSError, NoToken):
            return False


def _bearer(raw: bytes, place: str) -> Bearer:
    text = raw.decode("ascii", "replace").strip()
    if not text:
        raise NoToken(f"{place} holds no token: it is empty")
    if len(raw) > TOKEN_LIMIT or not _TOKEN.fullmatch(text):
        raise NoToken(f"{place} does not hold a join token (bcjt_…)")
    return Bearer(text)
