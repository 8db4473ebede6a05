"""One BMC of the rack, as its users see it: where it is, how it behaves, and what stands behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import SecretStr

from bcmetal_drivers.emulated import serve
from bcmetal_drivers.emulated.behaviours import chosen
from bcmetal_drivers.emulated.faults import Rule, Rules
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.host_side import HostSide
from bcmetal_drivers.emulated.machine import OPTICAL, Machine

REDFISH: Final = "redfish"
IPMI: Final = "ipmi"
MACHINE_SETTINGS: Final = ("power_lag_s", "ignores_soft_off", "starts_twice", "health", *OPTICAL)


class Front(Protocol):
    """What speaks for a BMC."""

    @property
    def port(self) -> int: ...
    @property
    def failed_logins(self) -> int: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def sessions(self) -> int: ...
    def drop_sessions(self) -> None: ...
    def set(self, name: str, value: object) -> None: ...
    def snapshot(self) -> dict[str, Any]: ...
    def restore(self, doc: Mapping[str, Any]) -> None: ...


@dataclass(slots=True)
class Setup:
    """How a BMC was added; kept in its snapshot."""

    name: str
    kind: str
    index: int
    systems: int
    username: str
    tls: bool
    drives: int
    maker: str
    port: int = 0
    host: str = ""  # "": an address in 127.77.0.0/16 of its own
    reach: str = ""  # the network that media may be fetched from; "": loopback
    certificate: str = ""  # "expired", "other-name", "old-tls"; "": a good one
    behaviours: tuple[str, ...] = ()


class EmulatedBmc:
    def __init__(
        self,
        setup: Setup,
        password: SecretStr,
        machines: Mapping[str, Machine],
        certificate: Path | None,
        rules: Rules,
    ) -> None:
        self.name = setup.name
        self.setup = setup
        self.username = setup.username
        self.password = password  # the present one of `username`
        self.host = setup.host or f"127.77.{setup.index // 250}.{setup.index % 250 + 1}"
        self.certificate = certificate
        self.by_system: Mapping[str, Machine] = machines
        self.front: Front
        self._rules = rules
        self._behaves: dict[str, list[int]] = {}

    @property
    def kind(self) -> str:
        return self.setup.kind

    @property
    def port(self) -> int:
        """0 until the first start."""
        front = getattr(self, "front", None)
        return front.port if front is not None else self.setup.port

    @property
    def address(self) -> str:
        """As an admin would write it; names the system where there is one only."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.kind == IPMI:
            return f"ipmi://{host}:{self.port}"
        scheme = "redfish" if self.setup.tls else "redfish+http"
        path = f"/redfish/v1/Systems/{next(iter(self.by_system))}" if len(self.by_system) == 1 else ""
        return f"{scheme}://{host}:{self.port}{path}"

    @property
    def fingerprint(self) -> str:
        """SHA-256 of its TLS leaf in hex; "" without TLS."""
        return serve.fingerprint(self.certificate) if self.certificate else ""

    @property
    def ca_pem(self) -> str:
        return serve.certificate_pem(self.certificate) if self.certificate else ""

    @property
    def machines(self) -> list[Machine]:
        return list(self.by_system.values())

    @property
    def machine(self) -> Machine:
        return self.machines[0]

    # ------------------------------------------------------------ how it behaves

    def set(self, **settings: Any) -> None:
        """Change how it behaves while it runs: `quirks.Quirks` or `ipmi.IpmiFront.set`, and the machine's MACHINE_SETTINGS."""
        for name, value in settings.items():
            if name in MACHINE_SETTINGS:
                for machine in self.machines:
                    setattr(machine, name, value)
            else:
                self.front.set(name, value)

    def behave(self, *names: str) -> None:
        """Turn on these behaviours (`behaviours.REGISTRY`), beside those that are on. What a `setup` says only a new BMC can have.

        Raises ValueError for a name that is not known, or is for the other protocol.
        """
        for behaviour in chosen(names):
            if behaviour.name in self._behaves:
                continue
            if behaviour.protocol != self.kind and (behaviour.quirks or behaviour.rules or behaviour.overlay):
                raise ValueError(f"{behaviour.name} is for {behaviour.protocol}, and {self.name} speaks {self.kind}")
            self.set(**behaviour.quirks)
            if behaviour.overlay:
                self._redfish().overlay.add(behaviour.overlay)
            self._behaves[behaviour.name] = [self.rule(rule) for rule in behaviour.rules]
        self.setup.behaviours = tuple(self._behaves)

    @property
    def behaviours(self) -> tuple[str, ...]:
        return tuple(self._behaves)

    def fired(self, name: str) -> int:
        """How often the rules of a behaviour took effect; quirks and overlays are not counted."""
        return sum(self._rules.fired(rule_id) for rule_id in self._behaves[name])

    def rule(self, rule: Rule) -> int:
        """One more rule, for this BMC alone."""
        return self._rules.add(rule.at(self.name))

    def overlay(self, patches: Mapping[str, Any]) -> None:
        """More merge patches over its documents: `replies.Overlay`. Redfish only."""
        self._redfish().overlay.add(patches)

    def change_password(self, password: SecretStr) -> None:
        """As somebody else would, behind the client's back. Redfish only."""
        self._redfish().change_password(self.username, password)

    @property
    def host_side(self) -> HostSide:
        """What root on the host can do to this BMC. Redfish only."""
        return self._redfish().host_side

    def _redfish(self) -> RedfishFront:
        if not isinstance(self.front, RedfishFront):
            raise TypeError(f"{self.name} is no Redfish BMC")
        return self.front
