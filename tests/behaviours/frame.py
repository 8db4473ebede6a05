"""A daemon moves a machine that behaves in some way through the workflow that meets it; the oracle judges.

A file of rows is a test module:

    ROWS = (
        Row("token-expires", until=Verb.RELEASE),                                  # every verb up to it ends well
        Row("lockout-after-3", wrong_password=True, fails="bmc-credentials-rejected", judge=never_locked),
    )

    @pytest.mark.parametrize("row", ROWS, ids=str)
    def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
        shared.tell(row)

What holds for every row is in `_fair`: few failed logins, one session at most and none in the end, every medium inserted once, no reset
asked for twice, and after each verb what `crash.life` asks of the machine: what it booted, what its drives hold.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from bcmetal.errors import LAST_ERRORS
from bcmetal.states import State, Verb
from bcmetal.store import inventories
from bcmetal.store.inventories import InventoryRow
from bcmetal.store.values import NodeRow
from bcmetal_drivers.connection import Limits
from bcmetal_drivers.emulated.behaviours import REGISTRY
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack, Write
from crash.life import LIFE, Chapter, plant_everywhere
from emulated_site import Site, a_site

FAILED_LOGINS = 2  # the budget of ten minutes
ASIDE = (Verb.RESCUE, Verb.UNRESCUE)  # a release does not need them
IMPATIENT = Limits(connect_s=2.0, read_s=1.0, total_s=6.0)  # for BMCs that never answer


@dataclass(slots=True)
class Case:
    """One row under way: the site, the machine, and what was true before the verb that is judged."""

    site: Site
    bmc: EmulatedBmc
    node_id: str
    writes_before: int = 0
    boots_before: int = 0

    async def node(self) -> NodeRow:
        return await self.site.node(self.node_id)

    async def inventory(self) -> InventoryRow:
        """The newest one by the BMC."""
        found = await self.site.store.read(inventories.latest, self.node_id)
        assert found is not None
        return found

    async def live(self, verb: Verb, **given: Any) -> State:
        """One more verb, with what `crash.life` gives it."""
        chapter = next(chapter for chapter in LIFE if chapter.verb is verb)
        return await self.site.live(self.node_id, verb, chapter.params, **{**chapter.given, **given})

    async def code(self) -> str:
        error = (await self.node()).last_error
        return "" if error is None else str(error["code"])

    def writes(self, tail: str = "", method: str = "") -> list[Write]:
        """Effects that reached this BMC since the verb began."""
        return [
            write
            for write in self.site.rack.writes[self.writes_before :]
            if write.bmc == self.bmc.name and write.kind == "effect" and tail in write.path and method in write.method
        ]


Judge = Callable[[Case], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """`until`: the last verb of the life. `fails`: the `lastError.code` by which it ends. `judge`: more to hold, by asserts.

    `before`: what is done to the machine or BMC before the last verb. `wrong_password`: it is enrolled with one. `tolerates`: tails of paths
    of writes that may be asked for twice.
    """

    behaviour: str
    until: Verb = Verb.INSPECT
    fails: str = ""
    judge: Judge | None = None
    before: Judge | None = None
    setup: Mapping[str, Any] = field(default_factory=dict)
    enroll: Mapping[str, Any] = field(default_factory=dict)
    wrong_password: bool = False
    limits: Limits | None = None
    failed_logins: int = FAILED_LOGINS
    sessions_left: int = 0  # by the behaviour, at the very end
    anywhere: bool = False  # enrolled without the system's path
    fires: bool = True  # each of its rules took effect
    tolerates: tuple[str, ...] = ()
    note: str = ""  # where a behaviour has two rows

    def __str__(self) -> str:
        return f"{self.behaviour}{'-' if self.note else ''}{self.note}"


class Shared:
    """One site for all rows of a file: each brings a BMC of its own."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._stack = AsyncExitStack()
        self._folder = folder
        self._count = 0
        self.site: Site

    def __enter__(self) -> Shared:
        self.site = self._runner.run(self._stack.enter_async_context(a_site(self._folder)))
        self.site.rack = Rack(seed=1, clock=self.site.clock.seconds, shared=True)  # no threads for rows that are over
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stack.aclose())

    def tell(self, row: Row) -> None:
        self._runner.run(self._told(row))

    def run(self, scenario: Callable[[Site], Awaitable[None]]) -> None:
        """A row that needs more than `Row` says."""

        async def whole() -> None:
            await scenario(self.site)

        self._runner.run(whole())

    async def _told(self, row: Row) -> None:
        site = self.site
        self._count += 1
        bmc = site.rack.add_redfish(f"m{self._count}-{row.behaviour}"[:60], behaviours=(row.behaviour,), **row.setup)
        site.rack.start()
        with _patience(site, row.limits):
            password = SecretStr(secrets.token_urlsafe(12)) if row.wrong_password else None
            path = next(iter(bmc.by_system))
            given = {"system_path": f"/redfish/v1/Systems/{path}", **row.enroll}
            case = Case(site, bmc, await site.enroll(bmc, password, **given))
            if row.anywhere:
                await site.set_node(case.node_id, system_path=None)
            await _live(case, row)
            if row.judge is not None:
                await row.judge(case)
            await _fair(case, row)


@contextmanager
def _patience(site: Site, limits: Limits | None) -> Iterator[None]:
    usual = site.lines.limits
    site.lines.limits = limits or usual
    try:
        yield
    finally:
        site.lines.limits = usual


async def _live(case: Case, row: Row) -> None:
    for chapter in LIFE:
        last = chapter.verb is row.until
        if row.until is Verb.RELEASE and chapter.verb in ASIDE:
            continue
        if chapter.plant:
            plant_everywhere(case.bmc)
        if last and row.before is not None:
            await row.before(case)
        case.writes_before, case.boots_before = len(case.site.rack.writes), len(case.bmc.machine.boots)
        state = await case.site.live(case.node_id, chapter.verb, chapter.params, **chapter.given)
        if last and row.fails:
            await _failed(case, row, state)
        else:
            await _succeeded(case, row, chapter, state)
        if last:
            return


async def _failed(case: Case, row: Row, state: State) -> None:
    error = (await case.node()).last_error
    assert error is not None, f"it ended well, as {state}"
    assert error["code"] == row.fails, error
    assert LAST_ERRORS[row.fails].hint
    assert error["message"].isprintable()


async def _succeeded(case: Case, row: Row, chapter: Chapter, state: State) -> None:
    assert state is chapter.state, (await case.node()).last_error
    assert chapter.judge(case.bmc, case.boots_before) == []
    asked = Counter(write.path.rpartition("/")[2].rpartition(".")[2] for write in case.writes("Actions/"))
    twice = {name: n for name, n in asked.items() if name in ("InsertMedia",) and n > 1 and name not in row.tolerates}
    assert not twice, f"asked for more than once: {twice}"


async def _fair(case: Case, row: Row) -> None:
    """What holds whatever the BMC does."""
    rack = case.site.rack
    assert rack.failed_logins(case.bmc) <= row.failed_logins
    assert rack.sessions(case.bmc) <= 1 + row.sessions_left
    await case.site.lines.close_idle(older_s=-1.0)
    assert rack.sessions(case.bmc) == row.sessions_left
    if row.fires and REGISTRY[row.behaviour].rules:
        assert case.bmc.fired(row.behaviour) > 0, "it was never met"
