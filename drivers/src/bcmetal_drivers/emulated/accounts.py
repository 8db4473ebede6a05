"""Accounts of a Redfish BMC of the rack, and its lock-out. Compared in constant time; no slow hash, which would cost 0.3 s a request."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pydantic import SecretStr


class Login(Enum):
    GOOD = "good"
    BAD = "bad"
    LOCKED = "locked"


@dataclass(slots=True)
class Account:
    slot: str
    username: str
    password: SecretStr
    role: str = "Administrator"
    enabled: bool = True
    must_change: bool = False  # the password is good for a new one only
    expires: str | None = None
    keys: list[str] = field(default_factory=list)  # SSH public keys


class Accounts:
    """`limit(count)` says for how many seconds an account locks after so many failures in a row; None: not yet."""

    def __init__(
        self, username: str, password: SecretStr, clock: Callable[[], float], limit: Callable[[int], float | None]
    ) -> None:
        self.slots = {"1": Account("1", username, password)}
        self.failed_logins = 0
        self._clock = clock
        self._lock_for = limit
        self._lock = threading.Lock()
        self._in_a_row: dict[str, int] = {}
        self._locked_until: dict[str, float] = {}

    def named(self, username: str) -> Account | None:
        return next((account for account in self.slots.values() if account.username == username), None)

    def check(self, username: str, password: str) -> Login:
        account = self.named(username)
        expected = account.password.get_secret_value() if account else ""
        same = hmac.compare_digest(expected.encode(), password.encode("utf-8", "surrogateescape"))
        with self._lock:
            if self._clock() < self._locked_until.get(username, float("-inf")):
                return Login.LOCKED
            if account is not None and account.enabled and same:
                self._in_a_row.pop(username, None)
                return Login.GOOD
            self.failed_logins += 1
            count = self._in_a_row[username] = self._in_a_row.get(username, 0) + 1
            seconds = self._lock_for(count)
            if seconds is not None:
                self._locked_until[username] = self._clock() + seconds
                del self._in_a_row[username]
            return Login.BAD

    def locked(self, username: str) -> bool:
        with self._lock:
            return self._clock() < self._locked_until.get(username, float("-inf"))

    def snapshot(self) -> list[dict[str, Any]]:
        """With the passwords: they are an emulated BMC's, and the file is 0600."""
        return [
            {
                "slot": a.slot,
                "username": a.username,
                "password": a.password.get_secret_value(),
                "role": a.role,
                "enabled": a.enabled,
                "must_change": a.must_change,
                "expires": a.expires,
                "keys": list(a.keys),
            }
            for a in self.slots.values()
        ]

    def restore(self, doc: list[Mapping[str, Any]]) -> None:
        self.slots = {a["slot"]: Account(**{**a, "password": SecretStr(a["password"])}) for a in doc}
