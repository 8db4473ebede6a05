"""The file that holds a boot token: `BCMETAL.TOK` on a boot medium, `/etc/bcmetal/boot-token` in an initrd for iPXE.

1024 bytes of ASCII and nothing else: a line with the format's name, a line with the token, spaces, a newline at the end. The daemon
lays these bytes over the placeholder while it serves the medium; the ramdisk reads them, and takes no other form.
"""

from __future__ import annotations

import re
from typing import Final

SIZE: Final = 1024
FILE_NAME: Final = "BCMETAL.TOK"
IN_INITRD: Final = "/etc/bcmetal/boot-token"
_FIRST: Final = "bcmetal-boot-token/1\n"
_TOKEN: Final = re.compile(r"bcbt_[0-9a-z]{26}\.[A-Za-z0-9_-]{43}")


class BadBootToken(ValueError):
    """Not a boot token, or not a file that holds one. The text never shows what was there instead."""


def render(token: str) -> bytes:
    """The file for this token."""
    if not _TOKEN.fullmatch(token):
        raise BadBootToken("a boot token is bcbt_, 26 characters, a full stop and 43 characters")
    return _padded(f"{_FIRST}token={token}\n")


def placeholder() -> bytes:
    """The file of a medium that has no token yet."""
    return _padded(_FIRST)


def parse(raw: bytes) -> str:
    """The token in the file."""
    if len(raw) != SIZE:
        raise BadBootToken(f"a boot token's file has {SIZE} bytes, not {len(raw)}")
    if raw == placeholder():
        raise BadBootToken("no token was put on this medium: it is a template")
    if not raw.startswith(_FIRST.encode()):
        raise BadBootToken("not a boot token's file")
    line = raw[len(_FIRST) :].split(b"\n", 1)[0]
    name, _, value = line.decode("ascii", "replace").partition("=")
    if name != "token" or not _TOKEN.fullmatch(value) or raw != render(value):
        raise BadBootToken("a boot token's file that is not well formed")
    return value


def _padded(text: str) -> bytes:
    return text.encode("ascii").ljust(SIZE - 1) + b"\n"
