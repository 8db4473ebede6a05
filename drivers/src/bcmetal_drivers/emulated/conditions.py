"""When a rule applies: a predicate over facts about the request and about the BMC as it is, written as data.

    When(lacks=("header/If-Match",))                                   the request has no such header
    When(has=("body/Boot/BootSourceOverrideMode",), equals={"power": "on"})
    When(under={"since/ComputerSystem.Reset": 20.0})                   within 20 s after the last reset that was applied

A fact's name is a path: `body/…` (keys of the request's JSON), `header/NAME`, `query`, `auth` (session, basic), `power`, `override`,
`boot_mode` (values of the driver's enums), `medium/SLOT` (its URL), `booted` (the device of the last start), `sessions` (how many are
open), `flag/NAME` (see `effects`), `since/TAIL` (seconds since a write to a path that ends in TAIL was applied). What is not there is
absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Refusal, Request


class _Absent:
    """Told apart from None, which JSON has."""


ABSENT: Final = _Absent()
Facts = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """All of it must hold."""

    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    equals: Mapping[str, Any] = field(default_factory=dict)
    differs: Mapping[str, Any] = field(default_factory=dict)  # there, and something else
    matches: Mapping[str, str] = field(default_factory=dict)  # there, and found by this regular expression
    under: Mapping[str, float] = field(default_factory=dict)  # there, and a number below
    over: Mapping[str, float] = field(default_factory=dict)  # there, and a number at or above

    def holds(self, facts: Facts) -> bool:
        return (
            all(facts(name) is not ABSENT for name in self.has)
            and all(facts(name) is ABSENT for name in self.lacks)
            and all(facts(name) == value for name, value in self.equals.items())
            and all(facts(name) not in (ABSENT, value) for name, value in self.differs.items())
            and all(
                (found := facts(name)) is not ABSENT and re.search(pattern, str(found)) is not None
                for name, pattern in self.matches.items()
            )
            and all(_number(facts(name), below=limit) for name, limit in self.under.items())
            and all(_number(facts(name), at_least=limit) for name, limit in self.over.items())
        )


def _number(found: object, below: float = float("inf"), at_least: float = float("-inf")) -> bool:
    return isinstance(found, int | float) and at_least <= found < below


def nothing_known(_: str) -> object:
    return ABSENT


class Notes:
    """What a BMC remembers for its rules: flags that may lapse, and when a write was applied last."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._flags: dict[str, tuple[object, float]] = {}
        self._wrote: dict[str, float] = {}

    def flag(self, name: str, value: object = True, seconds: float = float("inf")) -> None:
        """Up for so many seconds."""
        self._flags[name] = (value, self._clock() + seconds)

    def wrote(self, path: str) -> None:
        self._wrote[path.rpartition("/")[2]] = self._clock()

    def look(self, kind: str, name: str) -> object:
        if kind == "flag":
            value, until = self._flags.get(name, (ABSENT, 0.0))
            return value if self._clock() < until else ABSENT
        at = self._wrote.get(name)
        return ABSENT if at is None else self._clock() - at


def facts_of(request: Request | None, machine: Machine, notes: Notes, sessions: Callable[[], int] = lambda: 0) -> Facts:
    """`request` None: of an IPMI BMC, whose requests have no headers and no JSON."""

    def fact(name: str) -> object:
        kind, _, rest = name.partition("/")
        if kind in ("flag", "since"):
            return notes.look(kind, rest)
        if kind in ("body", "header", "query", "auth"):
            return ABSENT if request is None else _of_request(request, kind, rest)
        if kind == "sessions":
            return sessions()
        return _of_machine(machine, kind, rest)

    return fact


def _of_request(request: Request, kind: str, rest: str) -> object:
    if kind == "body":
        return _dug(request, rest)
    if kind == "header":
        return _or_absent(request.header(rest))
    if kind == "query":
        return request.query or ABSENT
    if request.header("X-Auth-Token") is not None:
        return "session"
    return "basic" if request.header("Authorization") else ABSENT


def _dug(request: Request, path: str) -> object:
    try:
        found: Any = request.json()
    except Refusal:
        return ABSENT
    for key in path.split("/"):
        if not isinstance(found, dict) or key not in found:
            return ABSENT
        found = found[key]
    return found


def _of_machine(machine: Machine, kind: str, rest: str) -> object:
    if kind == "medium":
        medium = machine.medium(rest)
        return ABSENT if medium is None else medium.url
    if kind == "booted":
        boots = machine.boots
        return boots[-1].device if boots else ABSENT
    known: Mapping[str, Callable[[], object]] = {
        "power": lambda: machine.power.value,
        "override": lambda: machine.override.device.value,
        "boot_mode": lambda: machine.boot_mode.value,
    }
    if kind not in known:
        raise ValueError(f"no such fact: {kind}")
    return known[kind]()


def _or_absent(value: object) -> object:
    return ABSENT if value is None else value
