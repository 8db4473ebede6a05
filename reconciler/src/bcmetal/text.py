"""Text from machines and from other people: made safe for a terminal, read in the forms that people paste, or written as they know it."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

LONGEST: Final = 4000


def clean(text: object) -> str:
    """Without control characters (so without escape sequences), direction overrides and endless length."""
    out = "".join(
        " " if c in "\t\n\r" else c for c in str(text)[:LONGEST] if c in "\t\n\r" or unicodedata.category(c)[0] != "C"
    )
    return out if len(str(text)) <= LONGEST else out + "…"


_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\uf8ff\ufeff\ufff0-\ufffb"
    "\U000e0000-\U0010ffff]"
)


def log_text(text: str) -> str:
    """Lines of a log: its line ends and tabs stay; escape sequences, other control characters and direction overrides go."""
    return _CONTROL.sub("", re.sub(r"\r\n?", "\n", _ESCAPES.sub("", text)))


def defused(cell: str) -> str:
    """A cell for a CSV: what a spreadsheet would take for a formula begins with an apostrophe instead."""
    return f"'{cell}" if cell.lstrip()[:1] in ("=", "+", "-", "@") or cell[:1] in ("\t", "\r") else cell


def sha256_fingerprint(text: str) -> str | None:
    """64 lower-case hexadecimal digits; None when it is no SHA-256 fingerprint.

    `AA:BB:…`, `aabb…`, either after `SHA256:` or after openssl's `sha256 Fingerprint=`; in any case.
    """
    bare = re.sub(r"^sha-?256(?: fingerprint)?\s*[:=]", "", text.strip().lower())
    bare = bare.replace(":", "").replace(" ", "")
    return bare if re.fullmatch(r"[0-9a-f]{64}", bare) else None


def https_url(host: str, port: int | str) -> str:
    """`https://HOST:PORT`; an IPv6 address in brackets, whether it came with them or not."""
    bare = host.strip("[]")
    return f"https://[{bare}]:{port}" if ":" in bare else f"https://{bare}:{port}"


def at_port(url: str, port: int | str) -> str:
    """The host of a URL with another port; HTTPS."""
    return https_url(urlsplit(url).hostname or "", port)


def moment(value: Any) -> datetime | None:
    """A time of the API (RFC 3339), None when it is absent or no time."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def ago(value: Any, now: datetime | None = None) -> str:
    at = moment(value)
    if at is None:
        return "-"
    return f"{span((now or datetime.now(UTC)) - at)} ago"


def span(delta: timedelta | float) -> str:
    """`3 s`, `4 min 5 s`, `2 h 10 min`, `3 d 4 h`."""
    seconds = int(max(0.0, delta.total_seconds() if isinstance(delta, timedelta) else float(delta)))
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")) if n]
    return " ".join(parts[:2]) or "0 s"


def size(n_bytes: Any) -> str:
    if not isinstance(n_bytes, int | float) or isinstance(n_bytes, bool):
        return "-"
    value, units = float(n_bytes), ("B", "kB", "MB", "GB", "TB", "PB")
    for unit in units:
        if value < 1000 or unit == units[-1]:
            return f"{value:.0f} {unit}" if unit in ("B", "kB") else f"{value:.1f} {unit}"
        value /= 1000
    return "-"
