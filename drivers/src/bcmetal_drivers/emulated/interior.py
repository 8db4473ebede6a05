"""What one Redfish BMC consists of, as its routes see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from bcmetal_drivers.emulated.accounts import Accounts
from bcmetal_drivers.emulated.application import ResourceDrivers
from bcmetal_drivers.emulated.faults import LiveRule
from bcmetal_drivers.emulated.hardware import Maker
from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Answer, Request, not_found
from bcmetal_drivers.emulated.outlets import Outlets
from bcmetal_drivers.emulated.quirks import Quirks
from bcmetal_drivers.emulated.sessions import Sessions
from bcmetal_drivers.emulated.tasks import Task, Tasks
from bcmetal_drivers.emulated.upkeep import Upkeep

ROOT = "/redfish/v1"


@dataclass(frozen=True, slots=True)
class Interior:
    """Mutable parts are shared with the front, and live."""

    name: str
    host: str
    maker: Maker
    machines: Mapping[str, Machine]  # by system id
    quirks: Quirks
    accounts: Accounts
    sessions: Sessions
    tasks: Tasks
    drivers: ResourceDrivers
    firmware: dict[str, str]  # versions by component: BMC, BIOS, NIC.1
    push_targets: list[str]  # what a plain push is for
    restart: Callable[[float, int], None]  # the BMC goes away for so many seconds, and flaps so often
    clock: Callable[[], float]
    upkeep: Upkeep
    password_changed: Callable[[str, SecretStr], None]
    outlets: Outlets = field(default_factory=Outlets)
    staged: dict[str, tuple[str, str] | None] = field(default_factory=dict)  # images that wait to be installed, by id
    reserved: list[str] = field(default_factory=list)  # who has the targets of a plain push: nobody, or "somebody"

    def machine(self, system_id: str) -> Machine:
        """Raises Refusal (404)."""
        try:
            return self.machines[system_id]
        except KeyError:
            raise not_found(f"{ROOT}/Systems/{system_id}") from None


@dataclass(slots=True)
class Call:
    """A request with the rules that apply to it. `token` is that of the session that asks, None under Basic."""

    request: Request
    rules: tuple[LiveRule, ...] = ()
    token: str | None = None

    def rule(self, action: str) -> LiveRule | None:
        return next((rule for rule in self.rules if rule.action == action), None)


Handler = Callable[..., Answer]


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def collection(path: str, kind: str, members: list[str]) -> Answer:
    return Answer(
        200,
        {
            "@odata.id": path,
            "@odata.type": f"#{kind}Collection.{kind}Collection",
            "Name": f"{kind} Collection",
            "Members@odata.count": len(members),
            "Members": [link(member) for member in members],
        },
    )


def resource(path: str, kind: str, name: str, **more: object) -> Answer:
    """`kind` with its version, such as `Drive.v1_17_0`."""
    return Answer(
        200,
        {
            "@odata.id": path,
            "@odata.type": f"#{kind}.{kind.partition('.')[0]}",
            "Id": path.rpartition("/")[2],
            "Name": name,
            **more,
        },
    )


def accepted(tasks: Tasks, task: Task) -> Answer:
    """202 with the Task, and where it can be asked for."""
    tasks.settle()
    return Answer(202, tasks.document(task), {"Location": task.path})
