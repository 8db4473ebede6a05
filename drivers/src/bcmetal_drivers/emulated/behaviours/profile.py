"""A named behaviour of a BMC, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bcmetal_drivers.emulated.faults import Rule

REDFISH, IPMI = "redfish", "ipmi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What one BMC is made to do. All of it applies to that BMC alone: rules need not name it."""

    name: str  # the field's term, kebab-case
    about: str  # one sentence
    protocol: str = REDFISH
    setup: Mapping[str, Any] = field(
        default_factory=dict
    )  # arguments of `Rack.add_redfish`, for one that is made with it
    quirks: Mapping[str, Any] = field(default_factory=dict)  # settings, as `EmulatedBmc.set`
    rules: tuple[Rule, ...] = ()
    overlay: Mapping[str, Any] = field(
        default_factory=dict
    )  # path (a regular expression) to merge patch: `replies.Overlay`
    includes: tuple[str, ...] = ()  # other behaviours, before its own
