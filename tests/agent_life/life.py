"""A machine's life by the agent, verb by verb, and what the machine itself must show after each."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import SecretStr

from agent_life.machine import SimulatedMachine
from agent_life.site import IMAGE, LifeSite
from bcmetal.states import State, Verb
from bcmetal_drivers.resources import BootDevice, PowerState

_BLOB: Final = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(range(32))  # the form of a key; nobody has its other half
KEYS: Final = (f"ssh-ed25519 {base64.b64encode(_BLOB).decode()} me@there",)
ERASED: Final = ("erase:inspect", "erase:plant", "erase:erase", "erase:verify")
USER_DATA: Final = "#cloud-config\n# of the tenant\n"
CRYPTED: Final = "$y$j9T$abc$def"  # the form of a password's hash, of no password


@dataclass(slots=True)
class Before:
    """What was there before a verb began."""

    boots: int
    secret: bytes


Judge = Callable[[LifeSite, str, Before], list[str]]


@dataclass(frozen=True, slots=True)
class Chapter:
    """`done`: what its agent does, once each, and `boots`: how often the machine starts, when nothing goes wrong. `plant`: somebody
    writes to every disk before."""

    verb: Verb
    state: State
    judge: Judge
    boots: int
    done: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, SecretStr] = field(default_factory=dict)
    plant: bool = False

    async def begin(self, life: LifeSite, node_id: str) -> str:
        return await life.begin(node_id, self.verb, self.secrets, **self.given)

    def before(self, life: LifeSite, name: str) -> Before:
        life.machines[name].tasks.clear()
        secret = life.plant_beside(name) if self.plant else b""
        return Before(len(life.machines[name].record.boots), secret)

    def truth(self, life: LifeSite, name: str, before: Before) -> list[str]:
        """What is wrong at the machine, however it came to its state."""
        return self.judge(life, name, before)

    def plainly(self, life: LifeSite, name: str, before: Before) -> list[str]:
        """And what is wrong where nobody but the daemon was in the way: nothing was done twice."""
        machine, wrong = life.machines[name], self.truth(life, name, before)
        boots = len(machine.record.boots) - before.boots
        if boots != self.boots:
            wrong.append(f"it was started {boots} times")
        if tuple(machine.tasks) != self.done:
            wrong.append(f"its agent did {machine.tasks}")
        return wrong


def off_and_empty(machine: SimulatedMachine) -> list[str]:
    record, wrong = machine.record, []
    if record.power is not PowerState.OFF:
        wrong.append(f"the machine is {record.power}")
    if record.media is not None:
        wrong.append(f"{record.media} is still inserted")
    if record.override.device is not BootDevice.NONE:
        wrong.append(f"{record.override.device} is still armed")
    return wrong


def _untouched(life: LifeSite, name: str, before: Before) -> list[str]:
    machine = life.machines[name]
    held = life.holding(name, before.secret)
    return [f"{disk.serial} was written to" for disk in machine.disks if disk.serial not in held]


def _looked_at(life: LifeSite, name: str, before: Before) -> list[str]:
    return off_and_empty(life.machines[name]) + _untouched(life, name, before)


def _erased(life: LifeSite, name: str, before: Before) -> list[str]:
    machine = life.machines[name]
    return off_and_empty(machine) + [f"{disk.serial} is not empty" for disk in machine.disks if disk.blocks]


def _deployed(life: LifeSite, name: str, before: Before) -> list[str]:
    machine = life.machines[name]
    root, *others = machine.disks
    wrong = [f"{disk.serial} was written to" for disk in others if disk.blocks]
    if root.read(0, len(IMAGE)) != IMAGE:
        wrong.append("its disk holds another image")
    if root.config_drive is None or b"# of the tenant" not in root.config_drive:
        wrong.append("its config drive is missing")
    return wrong + _runs_its_system(life, name, before)


def _runs_its_system(life: LifeSite, name: str, before: Before) -> list[str]:
    machine = life.machines[name]
    boots = machine.record.boots
    wrong = [] if boots and boots[-1].device == "disk" else ["its last start was from something else than its disk"]
    if machine.record.power is not PowerState.ON:
        wrong.append(f"the machine is {machine.record.power}")
    if machine.record.media is not None:
        wrong.append(f"{machine.record.media} is still inserted")
    if before.secret:
        wrong += _untouched(life, name, before)
    return wrong


def _rescued(life: LifeSite, name: str, before: Before) -> list[str]:
    machine = life.machines[name]
    wrong = _untouched(life, name, before)
    if machine.disks[0].read(0, len(IMAGE)) != IMAGE:
        wrong.append("its system was written to")
    opened = machine.rescued_with or {}
    if tuple(opened.get("sshKeys", ())) != KEYS or opened.get("passwordHash") != CRYPTED:
        wrong.append(f"it is not open to who was named, but to {sorted(opened)}")
    return wrong


TESTED: Final = ("inventory", "test", "test", "test", *ERASED)
LIFE: Final = (
    Chapter(Verb.INSPECT, State.INSPECTED, _looked_at, 1, ("inventory",), {"deep": True}, plant=True),
    Chapter(Verb.COMMISSION, State.AVAILABLE, _erased, 2, TESTED, plant=True),
    Chapter(
        Verb.DEPLOY,
        State.DEPLOYED,
        _deployed,
        2,
        ("inventory", "writeImage", "writeConfigDrive", "setBoot"),
        {"image": {"name": "system"}, "kind": "image", "sshKeys": list(KEYS)},
        {"user-data": SecretStr(USER_DATA)},
    ),
    Chapter(
        Verb.RESCUE,
        State.RESCUED,
        _rescued,
        1,
        ("rescue",),
        {"sshKeys": list(KEYS), "passwordHash": True},
        {"password-hash": SecretStr(CRYPTED)},
        plant=True,
    ),
    Chapter(Verb.UNRESCUE, State.DEPLOYED, _runs_its_system, 1),
    Chapter(Verb.RELEASE, State.AVAILABLE, _erased, 2, ("inventory", *ERASED), plant=True),
    Chapter(Verb.RETIRE, State.RETIRED, _erased, 0),
)


async def finish(life: LifeSite, node_id: str, chapter: Chapter) -> list[str]:
    """Through to the chapter's end; whether it is the right one."""
    await life.site.settle()
    node = await life.node(node_id)
    return [] if node.facts.state is chapter.state else [f"it is {node.facts.state}: {node.last_error}"]


async def live_before(life: LifeSite, name: str, verb: Verb) -> str:
    """A node whose life came to just before this verb; its id."""
    node_id = await life.enroll(name)
    for chapter in LIFE:
        if chapter.verb is verb:
            break
        before = chapter.before(life, name)
        await chapter.begin(life, node_id)
        assert await finish(life, node_id, chapter) + chapter.truth(life, name, before) == []
    life.machines[name].tasks.clear()
    return node_id
