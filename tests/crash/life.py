"""A machine's whole life, verb by verb, with the oracle's judgement after each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from bcmetal.decisions import Params
from bcmetal.states import State, Verb
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import PowerState
from emulated_site_config import ISO_SHA256, RESCUE_SHA256

Judge = Callable[[EmulatedBmc, int], list[str]]


def _off_and_empty(bmc: EmulatedBmc) -> list[str]:
    machine = bmc.machine
    wrong = []
    if machine.power is not PowerState.OFF:
        wrong.append(f"the machine is {machine.power}")
    if machine.media is not None:
        wrong.append(f"{machine.media} is still inserted")
    return wrong


def erased(bmc: EmulatedBmc, boots_before: int) -> list[str]:
    """Off, nothing inserted, and no drive holds data."""
    holding = [drive.serial for drive in bmc.machine.drives.values() if drive.holds_data]
    return _off_and_empty(bmc) + [f"drive {serial} holds data" for serial in holding]


def booted_from(sha256: str) -> Judge:
    """Started once, from that medium."""

    def judge(bmc: EmulatedBmc, boots_before: int) -> list[str]:
        boots = bmc.machine.boots[boots_before:]
        found = [boot.medium_sha256 for boot in boots]
        return [] if found == [sha256] else [f"it booted {found} where one start from {sha256} was asked"]

    return judge


def booted_its_disk(bmc: EmulatedBmc, boots_before: int) -> list[str]:
    """Started once, from its disk, with nothing inserted."""
    boots = [boot.device for boot in bmc.machine.boots[boots_before:]]
    wrong = [] if boots == ["disk"] else [f"it booted {boots} where one start from its disk was asked"]
    return wrong + ([f"{bmc.machine.media} is still inserted"] if bmc.machine.media else [])


def nothing_done(bmc: EmulatedBmc, boots_before: int) -> list[str]:
    """Inspect leaves no trace."""
    return [] if len(bmc.machine.boots) == boots_before else ["it was started by an inspection"]


@dataclass(frozen=True, slots=True)
class Chapter:
    """One verb of a life: where it leads, and what the oracle must say then."""

    verb: Verb
    state: State
    judge: Judge
    given: dict[str, Any] = field(default_factory=dict)
    params: Params | None = None
    plant: bool = False  # the tenant writes on every drive before


LIFE = (
    Chapter(Verb.INSPECT, State.INSPECTED, nothing_done),
    Chapter(Verb.COMMISSION, State.AVAILABLE, erased, plant=True),
    Chapter(Verb.DEPLOY, State.DEPLOYED, booted_from(ISO_SHA256), {"image": {"name": "os"}, "kind": "iso"}),
    Chapter(Verb.RESCUE, State.RESCUED, booted_from(RESCUE_SHA256), plant=True),
    Chapter(Verb.UNRESCUE, State.DEPLOYED, booted_its_disk),
    Chapter(Verb.RELEASE, State.AVAILABLE, erased, plant=True),
    Chapter(Verb.RETIRE, State.RETIRED, erased),
)


def leading_to(verbs: Collection[Verb]) -> tuple[Chapter, ...]:
    """As much of a life as it takes to come by each of these verbs."""
    last = max((n for n, chapter in enumerate(LIFE) if chapter.verb in verbs), default=-1)
    rescues = {Verb.RESCUE, Verb.UNRESCUE} & {*verbs}
    return tuple(c for c in LIFE[: last + 1] if rescues or c.verb not in (Verb.RESCUE, Verb.UNRESCUE))


def plant_everywhere(bmc: EmulatedBmc) -> None:
    for serial in bmc.machine.drives:
        bmc.machine.plant(serial)
