"""What each machine goes through, asked over the API like anybody would, all machines at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bcmetal.client import ApiError, Client
from bcmetal.demo.site import IPMI_POOL, POOL, TENANT, Site
from bcmetal.states import BUSY, State
from bcmetal_drivers.emulated.rack import EmulatedBmc

POLL_S: Final = 0.25
View = Mapping[str, Any]
Body = Callable[[View], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Stage:
    """One verb and where it must lead. `side`: a side operation, which changes no state. `after` is done to the machine itself."""

    method: str
    goal: State
    body: Body = lambda view: {}
    side: bool = False
    after: Callable[[EmulatedBmc], None] | None = None


def _plant_everywhere(bmc: EmulatedBmc) -> None:
    """What a tenant does: write on every disk."""
    for serial in bmc.machine.drives:
        bmc.machine.plant(serial)


def _serial_or_id(view: View) -> str:
    serial = (view.get("identity") or {}).get("serial")
    return str(serial or view["nodeId"])


WHOLE_LIFE: Final = (
    Stage("inspect", State.INSPECTED),
    Stage("commission", State.AVAILABLE),
    Stage("deploy", State.DEPLOYED, lambda view: {"image": {"name": "demo"}, "kind": "iso"}, after=_plant_everywhere),
    Stage("rescue", State.RESCUED),
    Stage("unrescue", State.DEPLOYED),
    Stage("release", State.AVAILABLE),
    Stage("retire", State.RETIRED),
)

# Without virtual media: the machine's own system is adopted, and what cannot be erased out of band leaves by a waiver.
WITHOUT_MEDIA: Final = (
    Stage("inspect", State.INSPECTED),
    Stage("adopt", State.DEPLOYED),
    Stage("setPower", State.DEPLOYED, lambda view: {"action": "on"}, side=True),
    Stage("release", State.AVAILABLE, lambda view: {"confirmErase": _serial_or_id(view)}),
    Stage("commission", State.AVAILABLE, lambda view: {"confirmErase": _serial_or_id(view)}),
    Stage(
        "retire",
        State.RETIRED,
        lambda view: {
            "confirmErase": _serial_or_id(view),
            "eraseWaiver": {"reason": "IPMI cannot erase drives", "custody": "the demonstration", "machine": True},
        },
    ),
)


@dataclass(slots=True)
class Journey:
    """One machine's way. `fault` says where it ended if it did not end well."""

    bmc: EmulatedBmc
    pool: str
    stages: Iterator[Stage]
    stage_count: int
    view: View = field(default_factory=dict)
    stage: Stage | None = None
    began: float = 0.0
    ended: float | None = None
    passed: list[str] = field(default_factory=list)
    timeline: list[dict[str, Any]] = field(default_factory=list)
    fault: str | None = None

    @property
    def name(self) -> str:
        return self.bmc.name

    @property
    def over(self) -> bool:
        return self.ended is not None

    @property
    def duration_s(self) -> float:
        return (self.ended or time.monotonic()) - self.began

    def where(self) -> dict[str, str]:
        return {"tenantId": TENANT, "poolId": self.pool, "nodeId": str(self.view["nodeId"])}

    @property
    def recoveries(self) -> int:
        """How often a step met trouble or lost its ground, and went on."""
        return sum(
            1
            for operation in self.timeline
            for run in operation.get("steps") or []
            if run.get("outcome") in ("trouble", "back")
        )


def journeys_of(site: Site) -> list[Journey]:
    return [Journey(bmc, POOL, iter(WHOLE_LIFE), len(WHOLE_LIFE)) for bmc in site.redfish] + [
        Journey(bmc, IPMI_POOL, iter(WITHOUT_MEDIA), len(WITHOUT_MEDIA)) for bmc in site.ipmi
    ]


def enroll(client: Client, journey: Journey) -> None:
    """Enrol it; nothing more is asked, so an inspect by the daemon follows."""
    bmc = journey.bmc
    wanted: dict[str, Any] = {
        "address": bmc.address,
        "username": bmc.username,
        "password": bmc.password.get_secret_value(),
    }
    if bmc.fingerprint:
        wanted["tls"] = {"fingerprint": bmc.fingerprint}
    body = {"tenantId": TENANT, "poolId": journey.pool, "name": bmc.name, "bmc": wanted}
    journey.began = time.monotonic()
    journey.view = client.mutate("metal", "enroll", body)
    journey.stage = next(journey.stages)


def travel(
    client: Client, journeys: Sequence[Journey], show: Callable[[Sequence[Journey]], None], deadline: float
) -> None:
    """Until every journey is over, or the time is up."""
    for journey in journeys:
        enroll(client, journey)
        show(journeys)
    while not all(j.over for j in journeys):
        if time.monotonic() > deadline:
            for journey in journeys:
                if not journey.over:
                    _end(client, journey, "the time is up")
            break
        time.sleep(POLL_S)
        views = views_of(client)
        for journey in journeys:
            if not journey.over:
                journey.view = views.get(str(journey.view["nodeId"]), journey.view)
                _step(client, journey)
        show(journeys)


def views_of(client: Client) -> dict[str, View]:
    page = client.call("metal", "list", {"tenantId": TENANT, "limit": 200})
    return {str(view["nodeId"]): view for view in page["nodes"]}


def _step(client: Client, journey: Journey) -> None:
    stage = journey.stage
    if stage is None or journey.view.get("operation") or journey.view["state"] in BUSY:
        return
    if stage.method == "inspect" and journey.view["state"] == State.ENROLLED:
        return
    if stage.side and not _side_is_over(client, journey, stage):
        return
    if journey.view["state"] != stage.goal:
        error = journey.view.get("lastError") or {}
        why = f"{error.get('code')}: {error.get('message')}" if error else "no reason given"
        _end(client, journey, f"{stage.method} ended in {journey.view['state']}, {why}")
        return
    if stage.after is not None:
        stage.after(journey.bmc)
    journey.passed.append(stage.method)
    journey.stage = next(journey.stages, None)
    if journey.stage is None:
        _end(client, journey, None)
        return
    try:
        journey.view = client.mutate(
            "metal", journey.stage.method, {**journey.where(), **journey.stage.body(journey.view)}
        )
    except ApiError as e:
        _end(client, journey, f"{journey.stage.method} was refused, {e.code}: {e.message}")


def _side_is_over(client: Client, journey: Journey, stage: Stage) -> bool:
    operations = client.call("metal", "timeline", journey.where())["operations"]
    newest = next((o for o in operations if o.get("verb") == stage.method), None)
    if newest is None or newest.get("status") in ("queued", "running"):
        return False
    if newest.get("status") != "done":
        _end(client, journey, f"{stage.method} ended as {newest.get('status')}: {newest.get('error')}")
        return False
    return True


def _end(client: Client, journey: Journey, fault: str | None) -> None:
    journey.ended = time.monotonic()
    journey.fault = fault
    journey.timeline = client.call("metal", "timeline", journey.where())["operations"]
