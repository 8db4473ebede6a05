"""Doors that are shared: all systems behind one BMC, and all who open it with the same credentials, use one session there.

Session tables hold as few as four entries, and a chassis has more systems than that.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from dataclasses import replace
from typing import Any, Final

from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust
from bcmetal_drivers.door import Door

Key = tuple[BmcAddress, str, bytes, Trust, Limits]


class Pass:
    """One user's share of a door."""

    def __init__(self, key: Key, door: Door) -> None:
        self.door = door
        self._key = key
        self._users = 1

    def leave(self) -> None:
        """The last one to leave closes it, and ends the session."""
        with _lock:
            self._users -= 1
            if self._users > 0:
                return
            self._withdraw()
        self.door.close()

    def keep_to_ourselves(self) -> None:
        """From now on the door has other credentials than its key says: nobody else is let in."""
        with _lock:
            self._withdraw()

    def joined(self) -> Pass:
        self._users += 1
        return self

    def _withdraw(self) -> None:
        if _open.get(self._key) is self:
            del _open[self._key]


def enter(
    address: BmcAddress, credential: Credential, trust: Trust, limits: Limits, memory: dict[str, Any] | None = None
) -> Pass:
    """A door to this BMC; the password is part of its key as a digest only. Each `enter` is followed by one `leave`.

    `memory` is for a door that is made now: one that is open knows better. A door whose credentials the BMC rejected is not given out again. Raises InsecureTransport.
    """
    digest = hmac.digest(_SALT, credential.password.get_secret_value().encode(), hashlib.sha256)
    key = (replace(address, system_path=None, maker=None), credential.username, digest, trust, limits)
    with _lock:
        found = _open.get(key)
        if found is not None and not found.door.rejected:
            return found.joined()
        made = _open[key] = Pass(key, Door(address, credential, trust, limits, memory))
        return made


def alone(door: Door, credential: Credential) -> Pass:
    """A door that is given to nobody else."""
    key = (door.address, credential.username, b"", Trust(), door.limits)
    return Pass(key, door)


_SALT: Final = secrets.token_bytes(32)
_lock: Final = threading.Lock()
_open: Final[dict[Key, Pass]] = {}
