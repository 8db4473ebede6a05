"""User slots of an emulated IPMI BMC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from bcmetal_drivers.emulated.ipmi_wire import ADMINISTRATOR

SLOTS = 10
NO_ACCESS = 0x0F


@dataclass(slots=True)
class UserSlot:
    username: str = ""
    password: SecretStr = field(default_factory=lambda: SecretStr(""))
    privilege: int = NO_ACCESS
    enabled: bool = False
    messaging: bool = True


class UserSlots:
    """Slot 1 is the null user, as in the specification; slot 2 holds the account that the rack made."""

    def __init__(self, username: str, password: SecretStr) -> None:
        self.slots = {n: UserSlot() for n in range(1, SLOTS + 1)}
        self.slots[2] = UserSlot(username, password, ADMINISTRATOR, True)

    def add(self, username: str, password: SecretStr, privilege: int) -> int:
        """Put an account into the first free slot and say which."""
        slot = next(n for n, user in self.slots.items() if n > 1 and not user.username)
        self.slots[slot] = UserSlot(username, password, privilege, True)
        return slot

    def named(self, username: str) -> UserSlot | None:
        return next(
            (user for user in self.slots.values() if user.username == username and user.enabled and user.messaging),
            None,
        )

    def snapshot(self) -> dict[str, Any]:
        """As JSON, with the passwords: they are an emulated BMC's."""
        return {
            str(n): [user.username, user.password.get_secret_value(), user.privilege, user.enabled, user.messaging]
            for n, user in self.slots.items()
        }

    def restore(self, doc: Mapping[str, Any]) -> None:
        for n, (username, password, privilege, enabled, messaging) in doc.items():
            self.slots[int(n)] = UserSlot(username, SecretStr(password), privilege, enabled, messaging)
