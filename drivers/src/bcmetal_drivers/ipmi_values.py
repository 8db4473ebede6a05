"""What the protocol carries and what comes back: its limits, privilege levels, deadlines and answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from bcmetal_drivers.connection import BmcAddress, Credential
from bcmetal_drivers.errors import Refused

USERNAME_LIMIT: Final = 16
PASSWORD_LIMIT: Final = 20
PASSWORD_LIMIT_1_5: Final = 16  # IPMI 1.5, and what some BMCs of 2.0 store
KG_LIMIT: Final = 20
PRIVILEGES: Final[Mapping[str, int]] = {"USER": 2, "OPERATOR": 3, "ADMINISTRATOR": 4}


@dataclass(frozen=True, slots=True)
class Deadline:
    """When the capability's call must be over."""

    at: float
    total_s: float

    @classmethod
    def after(cls, total_s: float) -> Deadline:
        return cls(time.monotonic() + total_s, total_s)

    def left_s(self) -> float:
        return self.at - time.monotonic()


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion code and what came with it."""

    code: int
    data: bytes


def check_limits(address: BmcAddress, credential: Credential) -> None:
    """Refuse what the protocol cannot carry, instead of cutting it short."""
    if len(credential.username.encode()) > USERNAME_LIMIT:
        raise Refused(f"{address}: the user name is longer than the {USERNAME_LIMIT} bytes that IPMI takes")
    if len(credential.password.get_secret_value().encode()) > PASSWORD_LIMIT:
        raise Refused(f"{address}: the password is longer than the {PASSWORD_LIMIT} bytes that IPMI 2.0 takes")


def check_kg(address: BmcAddress, kg: SecretStr | None) -> None:
    """Raises Refused for a key that is empty or too long; None: the BMC has none."""
    if kg is not None and not 1 <= len(kg.get_secret_value().encode()) <= KG_LIMIT:
        raise Refused(f"{address}: a K_g has 1 to {KG_LIMIT} bytes")
