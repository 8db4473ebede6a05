"""What an admin asks of each machine, round after round, through a daemon that may be dead at any moment.

A verb is asked with one idempotency key until an answer comes: whether the first one was heard is not known. After each verb the rack's
oracle says what is true.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from bcmetal.client import ApiError, Client, Unreachable
from bcmetal.demo.site import IPMI_POOL, POOL, TENANT
from bcmetal.states import BUSY, State
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import PowerAction, PowerState
from crash.life import LIFE, Judge, plant_everywhere
from e2e.mortal_site import MortalSite

View = Mapping[str, Any]
POLL_S: Final = 0.05
REMOVED: Final = "removed"


@dataclass(frozen=True, slots=True)
class Chapter:
    """One verb, where it leads, and what must be true at the machine then. `before`: what happens at the machine meanwhile."""

    method: str
    goal: str
    judge: Judge
    body: Mapping[str, Any] = field(default_factory=dict)
    before: Callable[[EmulatedBmc], None] = lambda bmc: None
    confirmed: bool = False


def _untouched(bmc: EmulatedBmc, boots_before: int) -> list[str]:
    return [] if len(bmc.machine.boots) == boots_before else ["it was started"]


def _off_with_its_data(bmc: EmulatedBmc, boots_before: int) -> list[str]:
    """Under `erase: none`: switched off, and nothing else."""
    wrong = _untouched(bmc, boots_before)
    if bmc.machine.power is not PowerState.OFF:
        wrong.append(f"the machine is {bmc.machine.power}")
    return wrong + [f"drive {d.serial} was erased" for d in bmc.machine.drives.values() if not d.holds_data]


def _runs_with_data(bmc: EmulatedBmc) -> None:
    """Somebody switched it on by hand, and writes on its disks."""
    plant_everywhere(bmc)
    machine = bmc.machine
    lag_s, machine.power_lag_s = machine.power_lag_s, 0.0
    machine.set_power(PowerAction.ON)
    machine.power_lag_s = lag_s


ENROLL: Final = Chapter("enroll", State.ENROLLED, _untouched, before=plant_everywhere)
REMOVE: Final = Chapter("remove", REMOVED, _untouched)
WITH_MEDIA: Final = (
    ENROLL,
    *(
        Chapter(c.verb, c.state, c.judge, c.given, plant_everywhere)
        if c.plant
        else Chapter(c.verb, c.state, c.judge, c.given)
        for c in LIFE
    ),
)
WITHOUT_MEDIA: Final = (
    ENROLL,
    Chapter("inspect", State.INSPECTED, _untouched, before=_runs_with_data),
    Chapter("adopt", State.DEPLOYED, _untouched),
    Chapter("release", State.AVAILABLE, _off_with_its_data, confirmed=True),
    Chapter("commission", State.AVAILABLE, _off_with_its_data, before=_runs_with_data, confirmed=True),
    Chapter("retire", State.RETIRED, _off_with_its_data, before=_runs_with_data, confirmed=True),
)


@dataclass(slots=True)
class Life:
    """One machine's rounds. `fault`: why it ended before it should."""

    bmc: EmulatedBmc
    pool: str
    chapters: tuple[Chapter, ...]
    round: int = 1
    at: int = 0
    view: View = field(default_factory=dict)
    begun: bool = False  # the present chapter is decided upon: it is asked until it is answered
    answered: bool = False
    boots_before: int = 0
    over: bool = False
    fault: str | None = None
    unanswered: int = 0  # calls that the daemon may have heard, and died

    @property
    def name(self) -> str:
        return self.bmc.name

    @property
    def chapter(self) -> Chapter:
        return self.chapters[self.at] if self.at < len(self.chapters) else REMOVE

    def where(self) -> dict[str, str]:
        return {"tenantId": TENANT, "poolId": self.pool, "nodeId": str(self.view["nodeId"])}

    def ask(self, client: Client) -> None:
        """Ask for the present chapter, with the key that it has. Raises Unreachable."""
        chapter = self.chapter
        if not self.begun:
            chapter.before(self.bmc)
            self.boots_before, self.begun = len(self.bmc.machine.boots), True
        body: dict[str, Any] = {
            "idempotencyKey": f"{self.name}-{self.round}-{self.at}-{chapter.method}",
            **chapter.body,
        }
        if chapter is ENROLL:
            body |= {
                "tenantId": TENANT,
                "poolId": self.pool,
                "name": self.name,
                "inspect": False,
                "bmc": self._access(),
            }
        else:
            body |= self.where()
        if chapter.confirmed:
            body["confirmErase"] = (self.view.get("identity") or {}).get("serial") or self.view["nodeId"]
        try:
            self.view = client.mutate("metal", chapter.method, body)
        except Unreachable:
            self.unanswered += 1
            raise
        except ApiError as e:
            self.end(f"{chapter.method} was refused, {e.code}: {e.message} {dict(e.details)}")
            return
        self.answered = True

    def _access(self) -> dict[str, Any]:
        access: dict[str, Any] = {
            "address": self.bmc.address,
            "username": self.bmc.username,
            "password": self.bmc.password.get_secret_value(),
        }
        return access | ({"tls": {"fingerprint": self.bmc.fingerprint}} if self.bmc.fingerprint else {})

    def settle(self, view: View | None, operations: Callable[[], Sequence[View]], more: bool) -> None:
        """What the daemon shows now. `more`: begin anew after the last chapter."""
        chapter = self.chapter
        if chapter is REMOVE:
            if view is not None:
                self.end("it was removed, and is still listed")
                return
            self._judge(chapter)
            self.round, self.at, self.begun, self.answered = self.round + 1, 0, False, False
            return
        if view is None:
            self.end("it is no longer listed")
            return
        self.view = view
        if view.get("operation") or view["state"] in BUSY:
            return
        if view["state"] != chapter.goal:
            self.end(f"{chapter.method} ended in {view['state']}, not {chapter.goal}: {view.get('lastError')}")
            return
        self._judge(chapter)
        if self.at + 1 == len(self.chapters):
            self._judge_history(operations())
            self.over = self.over or not more
        if not self.over:
            self.at, self.begun, self.answered = self.at + 1, False, False

    def _judge(self, chapter: Chapter) -> None:
        wrong = chapter.judge(self.bmc, self.boots_before)
        if wrong:
            self.end(f"after {chapter.method}: {'; '.join(wrong)}")

    def _judge_history(self, operations: Sequence[View]) -> None:
        """Each verb was started exactly once, however often it was asked, and none failed."""
        done = [(one["verb"], one["status"]) for one in reversed(operations)]
        wanted = [(chapter.method, "done") for chapter in self.chapters]
        if done != wanted:
            self.end(f"its operations were {done}")

    def end(self, fault: str) -> None:
        self.over = True
        self.fault = self.fault or f"round {self.round}: {fault}"


class Admin(threading.Thread):
    """Takes all machines through their rounds until `enough` is set and each is retired, or one is at fault."""

    def __init__(self, site: MortalSite, deadline: float) -> None:
        super().__init__(name="admin")
        self.site = site
        self.lives = [Life(bmc, POOL, WITH_MEDIA) for bmc in site.redfish]
        self.lives += [Life(bmc, IPMI_POOL, WITHOUT_MEDIA) for bmc in site.ipmi]
        self.enough = threading.Event()
        self.give_up = threading.Event()
        self._deadline = deadline

    @property
    def over(self) -> bool:
        return all(life.over for life in self.lives) or any(life.fault for life in self.lives)

    def run(self) -> None:
        while self._goes_on():
            try:
                with self.site.client() as client:
                    while self._goes_on():
                        self._look(client)
                        self._ask(client)
                        time.sleep(POLL_S)
            except Unreachable:
                time.sleep(POLL_S)  # the daemon is dead, or its successor is not ready yet

    def _goes_on(self) -> bool:
        return not self.over and not self.give_up.is_set() and time.monotonic() < self._deadline

    def _look(self, client: Client) -> None:
        page = client.call("metal", "list", {"tenantId": TENANT, "limit": 200})
        views = {str(view["nodeId"]): view for view in page["nodes"]}
        for life in self.lives:
            if life.answered and not life.over:
                view = views.get(str(life.view["nodeId"]))
                life.settle(view, partial(timeline, client, life), not self.enough.is_set())

    def _ask(self, client: Client) -> None:
        for life in self.lives:
            if not life.answered and not life.over:
                life.ask(client)


def timeline(client: Client, life: Life) -> Sequence[View]:
    """Newest first."""
    found: list[View] = client.call("metal", "timeline", {**life.where(), "limit": 50})["operations"]
    return found


def story(operations: Sequence[View]) -> str:
    """A timeline as lines, oldest first."""
    lines: list[str] = []
    for one in reversed(operations):
        lines.append(f"    {one.get('verb')} {one.get('status')} {one.get('error') or ''}")
        for run in one.get("steps") or []:
            lines.append(f"      {run.get('step')} {run.get('attempt')} {run.get('outcome')} {run.get('why') or ''}")
    return "\n".join(lines)
