"""Ways out of a Redfish BMC, and into it beside its accounts: directories of users, event subscriptions, network protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Directory:
    enabled: bool = False
    addresses: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Outlets:
    """`subscriptions`: destination by id. `protocols`: whether each is on."""

    directories: dict[str, Directory] = field(default_factory=lambda: {"LDAP": Directory()})
    subscriptions: dict[str, str] = field(default_factory=dict)
    protocols: dict[str, bool] = field(
        default_factory=lambda: {"HTTPS": True, "SSH": True, "HTTP": False, "IPMI": False, "SNMP": False}
    )

    def subscribe(self, destination: str) -> str:
        name = next(str(n) for n in range(1, 1000) if str(n) not in self.subscriptions)
        self.subscriptions[name] = destination
        return name

    def snapshot(self) -> dict[str, Any]:
        return asdict(self)

    def restore(self, doc: Mapping[str, Any]) -> None:
        self.directories = {name: Directory(**one) for name, one in doc["directories"].items()}
        self.subscriptions = dict(doc["subscriptions"])
        self.protocols = dict(doc["protocols"])
