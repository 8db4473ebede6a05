"""Behaviours of real BMCs by name, to be turned on at emulated ones: a profile is data (`profile.Behaviour`).

    rack.add_redfish("one", behaviours=("supermicro", "flaky"))       bmc.behave("etag-required")        bmc.fired("etag-required")

One module for each kind, each with its `BEHAVIOURS`. A new one is an entry there, and a row in tests/behaviours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from bcmetal_drivers.emulated.behaviours import (
    boot,
    identity,
    ipmi,
    makers,
    media,
    power,
    sessions,
    tasks,
    transport,
    writes,
)
from bcmetal_drivers.emulated.behaviours.profile import Behaviour

__all__ = ["REGISTRY", "TABLES", "Behaviour", "chosen", "described", "for_protocol", "setup_of"]

TABLES: Final[Mapping[str, tuple[Behaviour, ...]]] = MappingProxyType(
    {
        "Sessions": sessions.BEHAVIOURS,
        "Transport": transport.BEHAVIOURS,
        "ETags and writes": writes.BEHAVIOURS,
        "Boot": boot.BEHAVIOURS,
        "Virtual media": media.BEHAVIOURS,
        "Power": power.BEHAVIOURS,
        "Identity and inventory": identity.BEHAVIOURS,
        "Tasks, firmware, BIOS": tasks.BEHAVIOURS,
        "IPMI": ipmi.BEHAVIOURS,
        "Makers, and several at once": makers.BEHAVIOURS,
    }
)
REGISTRY: Final[Mapping[str, Behaviour]] = MappingProxyType(
    {behaviour.name: behaviour for table in TABLES.values() for behaviour in table}
)


def chosen(names: Iterable[str]) -> tuple[Behaviour, ...]:
    """The behaviours of these names with what they include, each once, in order. Raises ValueError for one that is not known."""
    found: dict[str, Behaviour] = {}
    for name in names:
        behaviour = REGISTRY.get(name)
        if behaviour is None:
            raise ValueError(f"no such behaviour: {name}; `--behaviours help` lists them")
        for included in (*chosen(behaviour.includes), behaviour):
            found.setdefault(included.name, included)
    return tuple(found.values())


def setup_of(names: Iterable[str]) -> dict[str, Any]:
    """How a BMC that is made with these is set up."""
    made: dict[str, Any] = {}
    for behaviour in chosen(names):
        made |= behaviour.setup
    return made


def for_protocol(names: Iterable[str], protocol: str) -> tuple[str, ...]:
    """Those of the names that a BMC of that protocol can have."""
    return tuple(behaviour.name for behaviour in chosen(names) if behaviour.protocol == protocol)


def described() -> str:
    """The names with what each means, by kind; for people."""
    width = max(map(len, REGISTRY))
    lines: list[str] = []
    for title, table in TABLES.items():
        lines += [title, *(f"  {behaviour.name:{width}}  {behaviour.about}" for behaviour in table), ""]
    return "\n".join(lines)
