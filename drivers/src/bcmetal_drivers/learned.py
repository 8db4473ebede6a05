"""What was found out about one BMC by trying, and is kept from one conversation to the next, as plain JSON without secrets.

It is a hint and never a proof: what is remembered is tried first, and forgotten when it turns out wrong. It dies with the maker, model or
firmware that it was found with. What comes back from the store is believed as little as an answer of a BMC: a value that is not of
its kind is dropped, and costs one probe.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

Check = Callable[[object], Any]

PATH: Final = re.compile(r"/(?!/)[!$%&'()*+,./0-9:;=@A-Z_a-z~-]{0,1023}")  # what goes into a request line as it is
WORD: Final = re.compile(r"[ -~]{1,128}")
ENTRIES: Final = 64
SPACING_LIMIT_S: Final = 10.0


def _one_of(*allowed: object) -> Check:
    # 1 == True and 1 == 1.0: the type counts too
    return lambda said: next((one for one in allowed if type(said) is type(one) and said == one), None)


def _path(said: object) -> str | None:
    return said if isinstance(said, str) and PATH.fullmatch(said) else None


def _word(said: object) -> str | None:
    return said if isinstance(said, str) and WORD.fullmatch(said) else None


def _map(key: Check, value: Check) -> Check:
    def check(said: object) -> dict[str, Any] | None:
        if not isinstance(said, Mapping):
            return None
        read = [(key(name), value(one)) for name, one in list(said.items())[:ENTRIES]]
        found = {name: one for name, one in read if name is not None and one is not None}
        return found or (None if said else {})

    return check


def _scalar(said: object) -> str | bool | None:
    return said if isinstance(said, bool) else _word(said)


def _seconds(said: object) -> float | None:
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    try:
        value = float(said)
    except OverflowError:
        return None
    return min(value, SPACING_LIMIT_S) if math.isfinite(value) and value > 0 else None


# name, as it is stored and shown: what a value of it is read as; None where it is none
FIELDS: Final[Mapping[str, Check]] = {
    "who": _map(_one_of("maker", "model", "firmware"), _word),  # of when this was learned
    "login": _one_of("session", "basic"),
    "sessions": _path,  # where sessions are opened
    "keepAlive": _one_of(False),  # kept-alive connections are dropped
    "spacingS": _seconds,  # between requests, since it answered 429
    "etag": _one_of("none", "any", "strong"),  # no If-Match; `*`; a weak ETag without its W/
    "expand": _one_of(False),  # collections do not come with their members, whatever the root says
    "media": _map(_word, _scalar),  # what an insert must carry beside the image
    # path: UUID, which is who they are and no behaviour: another firmware does not end it
    "systems": _map(_path, _word),
    "settings": _map(_path, _path),  # resource: where its changes are written
    "log": _path,  # the log service that tells of the hardware
    "resets": _map(_word, _word),  # power action: the reset type that worked
    "ipmiSuite": _one_of(17, 3),
}


OF_THE_DOOR: Final = frozenset({"login", "sessions", "keepAlive", "spacingS"})  # shared by all systems behind one BMC


def read(given: object) -> dict[str, Any]:
    """What of it can be used. Never raises."""
    return {name: value for name, value in lasting(given).items() if value is not None}


def lasting(memory: object) -> dict[str, Any]:
    """What of it is worth keeping. None: what was known under that name turned out wrong."""
    if not isinstance(memory, Mapping):
        return {}
    return {name: check(memory[name]) for name, check in FIELDS.items() if name in memory}


def merged(stored: Mapping[str, object], found: Mapping[str, object]) -> dict[str, Any]:
    """What to store after a conversation: others may have learned something meanwhile, and about other systems."""
    before, now = read(stored), lasting(found)
    systems = {**before.get("systems", {}), **(now.get("systems") or {})}
    whole = before | now | ({"systems": systems} if systems else {})
    return {name: value for name, value in whole.items() if value is not None}


def forget_another(
    memory: MutableMapping[str, Any], maker: str | None, model: str | None, firmware: str | None
) -> None:
    """What was learned of a BMC with another maker, model or firmware ends here. What is not told this time is no change."""
    seen = {"maker": maker, "model": model, "firmware": firmware}
    now = {name: said for name, value in seen.items() if (said := _word(value)) is not None}
    before = memory.get("who") or {}
    if any(before.get(name, said) != said for name, said in now.items()):
        memory.update(dict.fromkeys(memory.keys() & FIELDS.keys() - {"systems"}))
        before = {}
    if now or before:
        memory["who"] = {**before, **now}
