"""The schemes of BMC addresses: who speaks each, on which port, and what an address of it may say. A new driver is a line here.

All else that takes a scheme reads this table: the forms of addresses, the registry, the API's checks, the command line's choices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REDFISH, REDFISH_HTTP, IPMI, TO_BE_PROBED = "redfish", "redfish+http", "ipmi", ""


@dataclass(frozen=True, slots=True)
class Scheme:
    """`driver` is `module:class`. What is left out: TLS, one system without a path, no limits of the protocol's own."""

    driver: str
    port: int
    has_certificate: bool = True
    in_clear: bool = False  # passwords cross the network as they are: networks must allow it, and shared ones never do
    has_systems: bool = False  # several systems behind one BMC, each with a path
    username_bytes: int | None = None
    password_bytes: int | None = None


# fmt: off
SCHEMES: Final = {
    REDFISH:      Scheme("bcmetal_drivers.redfish:RedfishBmc", 443, has_systems=True),
    REDFISH_HTTP: Scheme("bcmetal_drivers.redfish:RedfishBmc", 80, has_certificate=False, in_clear=True, has_systems=True),
    IPMI:         Scheme("bcmetal_drivers.ipmi:IpmiBmc", 623, has_certificate=False, username_bytes=16, password_bytes=20),  # IPMI 2.0, 22.28 and 22.30
}
# fmt: on


def families() -> tuple[str, ...]:
    """The protocols, without how they are carried: redfish, ipmi. Each is a scheme by itself, the one that is meant without more."""
    return tuple(dict.fromkeys(family_of(scheme) for scheme in SCHEMES))


def family_of(scheme: str) -> str:
    """The protocol of a scheme: `redfish+http` is carried otherwise, and is redfish."""
    return scheme.partition("+")[0]


def written() -> str:
    """The forms, for a message: `redfish://HOST[:PORT][/redfish/v1/Systems/ID], …`."""
    return ", ".join(
        f"{name}://HOST[:PORT]{'[/redfish/v1/Systems/ID]' if scheme.has_systems else ''}"
        for name, scheme in SCHEMES.items()
    )
