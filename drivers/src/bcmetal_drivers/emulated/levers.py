"""What rules' effects, and root on the host, can move at a Redfish BMC."""

from __future__ import annotations

import secrets
import threading
from typing import Any

from pydantic import SecretStr

from bcmetal_drivers.emulated.accounts import Account
from bcmetal_drivers.emulated.conditions import Notes
from bcmetal_drivers.emulated.interior import Interior
from bcmetal_drivers.emulated.machine import OPTICAL

MACHINE_SETTINGS = ("power_lag_s", "ignores_soft_off", "starts_twice", "health", *OPTICAL)


class FrontLevers:
    def __init__(self, inside: Interior, notes: Notes) -> None:
        self._inside = inside
        self._notes = notes
        self._lock = threading.Lock()
        self._away_until = float("-inf")
        self._flaps = 0

    def settings(self, **values: Any) -> None:
        for name, value in values.items():
            if name in MACHINE_SETTINGS:
                for machine in self._inside.machines.values():
                    setattr(machine, name, value)
            else:
                self._inside.quirks.set(name, value)

    def flag(self, name: str, value: object = True, seconds: float = float("inf")) -> None:
        self._notes.flag(name, value, seconds)

    def end_sessions(self) -> None:
        self._inside.sessions.close_all()

    def restart(self, seconds: float, flaps: int = 0) -> None:
        """Sessions are gone; lines are reset for so many seconds, then every second request for twice as many as it flaps."""
        self._inside.sessions.close_all()
        with self._lock:
            self._away_until = self._inside.clock() + seconds
            self._flaps = 2 * flaps

    def is_away(self) -> bool:
        """Asked once a request."""
        with self._lock:
            if self._inside.clock() < self._away_until:
                return True
            if self._flaps <= 0:
                return False
            self._flaps -= 1
            return self._flaps % 2 == 1

    def password(self) -> None:
        """Somebody changes the first account's to one that nobody was told."""
        first = next(iter(self._inside.accounts.slots.values()))
        self.change_password(first.username, SecretStr(secrets.token_urlsafe(12)))

    def change_password(self, username: str, password: SecretStr) -> None:
        """Raises KeyError."""
        account = self._inside.accounts.named(username)
        if account is None:
            raise KeyError(username)
        account.password = password
        self._inside.sessions.close_all(username)
        self._inside.password_changed(username, password)

    def account(self, username: str, role: str = "Administrator") -> None:
        """A new one, with a password that nobody was told."""
        slots = self._inside.accounts.slots
        slot = next(str(n) for n in range(2, len(slots) + 3) if str(n) not in slots)
        slots[slot] = Account(slot, username, SecretStr(secrets.token_urlsafe(12)), role)

    def firmware(self, **versions: str) -> None:
        self._inside.firmware.update(versions)

    def purge_tasks(self) -> None:
        for task in self._inside.tasks.listed():
            self._inside.tasks.purge(task.id)
