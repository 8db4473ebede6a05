"""How to reach a BMC: its address, with whose credential, whom to believe, and how long to wait."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class BmcAddress:
    """Where a BMC is. `scheme` is one of `redfish` (HTTPS), `redfish+http`, `ipmi`; makers' forms are normalised to these.

    A scheme of "" (and then a port of 0, where none was given) is an address that was not probed yet.
    `host` is a name or a literal, IPv6 without brackets. `system_path` is a path such as `/redfish/v1/Systems/1`, None where the
    BMC's only system is meant (or for IPMI). `maker` is the hint that a maker's own form gave (`idrac`, `ilo5`, …), else None.
    """

    scheme: str
    host: str
    port: int
    system_path: str | None = None
    maker: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        if not self.scheme:
            return f"{host}:{self.port}" if self.port else host
        return f"{self.scheme}://{host}:{self.port}{self.system_path or ''}"


@dataclass(frozen=True, slots=True)
class Credential:
    username: str
    password: SecretStr


class TrustKind(StrEnum):
    SYSTEM = "system"  # the platform's CA bundle, and the host's name must match
    CA = "ca"  # `value` is PEM; the name must match
    FINGERPRINT = "fingerprint"  # `value` is the SHA-256 of the leaf certificate's DER, 64 lower-case hex digits
    NONE = "none"  # explicitly not verified; needs the network's permission


@dataclass(frozen=True, slots=True)
class Trust:
    kind: TrustKind = TrustKind.SYSTEM
    value: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines in seconds. `total_s` bounds one call of a capability's method, however many requests it makes; a large upload has longer while it goes on."""

    connect_s: float = 5.0
    read_s: float = 15.0
    total_s: float = 45.0
    ipmi_suites: tuple[int, ...] = (17, 3)
    privilege: str = "ADMINISTRATOR"  # IPMI: ADMINISTRATOR, OPERATOR or USER
    write_allowed: bool = True  # False: the door passes no write (observe mode), session login and logout excepted
    ipmi_legacy: bool = False  # IPMI: suites without encryption and IPMI 1.5 too, where the BMC knows nothing better
    ipmi_kg: SecretStr | None = None  # IPMI: the BMC's K_g, for two-key logins; None: it has none
