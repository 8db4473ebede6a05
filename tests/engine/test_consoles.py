"""Serial consoles held open through the daemon: one holder, bounded, and ended when nobody is at them or may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from bcmetal import consoles
from bcmetal.consoles import IDLE_S, UNREAD_S, Consoles, OpenConsole, Piece
from bcmetal.errors import Conflict, RateLimited
from bcmetal.states import Verb
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.ipmi import IpmiFront
from bcmetal_drivers.emulated.ipmi_sol import Serial
from bcmetal_drivers.errors import Unsupported
from emulated_site import OnASite, Site, SkippingClock
from emulated_site_config import POOL

WITHIN_S = 10.0


class TurnedClock(SkippingClock):
    """One whose seconds can be turned forward too."""

    turned_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.turned_s


class AtOnce:
    """A call that may start."""

    async def ready(self) -> None:
        """Nothing is in its way."""

    def in_time(self) -> bool:
        return True


@dataclass
class Person:
    node_id: str
    by: str = "key:test"
    may_not: str = ""
    told: list[str] = field(default_factory=list)

    async def opens(self) -> None:
        self.told.append("opens")

    async def why_not(self) -> str:
        return self.may_not

    async def ended(self, console: OpenConsole) -> None:
        self.told.append(console.why)


@dataclass
class Bench:
    site: Site
    serial: Serial
    node_id: str
    clock: TurnedClock = field(default_factory=TurnedClock)
    consoles: Consoles = field(init=False)

    def __post_init__(self) -> None:
        self.consoles = Consoles(self.site.store, self.clock, self.site.lines, look_every_s=0.02)

    async def changes_its_password(self) -> None:
        """By the line alone, as a step of a rotation would."""
        line = self.site.lines.to(await self.site.peek(self.node_id), self.site.settings.pools[POOL], "")
        same = line.credential
        await line.change_password(AtOnce(), same, None)

    async def open(self, person: Person, number: int = 1) -> OpenConsole:
        work, pool = await self.site.peek(self.node_id), self.site.settings.pools[POOL]
        return await self.consoles.open(work, pool, f"cs_{number}", person)


@asynccontextmanager
async def a_bench(site: Site) -> AsyncIterator[Bench]:
    bmc = site.rack.add_ipmi("serial")
    site.rack.start()
    node_id = await site.enroll(bmc)
    await site.live(node_id, Verb.INSPECT)
    assert isinstance(bmc.front, IpmiFront)
    bench = Bench(site, bmc.front.serial, node_id)
    try:
        yield bench
    finally:
        await bench.consoles.close()


async def read_until(console: OpenConsole, wanted: bytes) -> bytes:
    async with asyncio.timeout(WITHIN_S):
        heard = b""
        while wanted not in heard:
            piece = await console.read(WITHIN_S)
            assert piece is not None, console.why
            heard += piece.data
        return heard


async def its_end(console: OpenConsole) -> str:
    async with asyncio.timeout(WITHIN_S):
        while await console.read(WITHIN_S) is not None:
            pass
        return console.why


async def told_the_end(person: Person) -> str:
    async with asyncio.timeout(WITHIN_S):
        while len(person.told) < 2:
            await asyncio.sleep(0.01)
        return person.told[-1]


def test_a_console_has_one_holder_and_is_free_once_that_one_left(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        async with a_bench(site) as bench:
            first, second = Person(bench.node_id), Person(bench.node_id, "key:other")
            console = await bench.open(first)
            assert await read_until(console, b"login: ") == b"login: "
            elsewhere = Consoles(site.store, bench.clock, site.lines)  # another daemon
            work = await site.peek(bench.node_id)
            for one in (bench.consoles, elsewhere):
                with pytest.raises(Conflict):
                    await one.open(work, site.settings.pools[POOL], "cs_2", second)
            assert second.told == []
            assert bench.consoles.held("cs_1", bench.node_id, second.by) is None
            assert console.type(b"root\r")
            await read_until(console, b"root\r")
            console.end("enough")
            assert (await its_end(console), await told_the_end(first)) == ("enough", "enough")
            again = await bench.open(second, 2)
            await read_until(again, b"login: ")
            assert site.rack.sessions("serial") == 2
            await elsewhere.close()
        assert second.told == ["opens", "the daemon stops"]
        assert not bench.serial.in_use

    on_each_database(scenario)


def test_a_console_ends_when_nobody_is_at_it_or_may_be(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        async with a_bench(site) as bench:
            person = Person(bench.node_id)
            console = await bench.open(person)
            await read_until(console, b"login: ")
            person.may_not = "they may not have it any more"
            assert await its_end(console) == person.may_not
            await told_the_end(person)

            away = Person(bench.node_id)
            await bench.open(away)
            bench.clock.turned_s += UNREAD_S + 1
            assert await told_the_end(away) == "nobody reads it any more"

            idle = Person(bench.node_id)
            console = await bench.open(idle)
            await read_until(console, b"login: ")
            for _ in range(int(IDLE_S // 40) + 1):  # it is read all the time
                bench.clock.turned_s += 40
                await console.read(0.001)
            assert await its_end(console) == "nothing was typed for 30 minutes"
            await told_the_end(idle)

            left = Person(bench.node_id)
            console = await bench.open(left)
            await read_until(console, b"login: ")
            await bench.changes_its_password()
            assert await its_end(console) == "the BMC's password is being changed"
            await told_the_end(left)

            robbed = Person(bench.node_id)
            console = await bench.open(robbed)
            await read_until(console, b"login: ")
            bench.serial.take_away()
            assert "taken away" in await its_end(console)

    on_a_site(scenario)


def test_what_nobody_reads_and_what_is_typed_too_fast_is_bounded(
    on_a_site: OnASite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consoles, "HEARD_LIMIT", 1000)
    monkeypatch.setattr(consoles, "TYPED_LIMIT", 100)
    monkeypatch.setattr(consoles, "AT_ONCE", 1)

    async def scenario(site: Site) -> None:
        async with a_bench(site) as bench:
            console = await bench.open(Person(bench.node_id))
            await read_until(console, b"login: ")
            bench.serial.output(b"x" * 3000 + b"end")
            async with asyncio.timeout(WITHIN_S):
                while console.read_bytes < 3003 + len(b"login: "):
                    await asyncio.sleep(0.01)
            piece = await console.read(1.0)
            assert piece is not None
            assert (len(piece.data), piece.lost, piece.data[-3:]) == (1000, 2003, b"end")
            bench.serial.echoes = False
            assert console.type(b"y" * 100)
            assert not console.type(b"z")
            with pytest.raises(RateLimited):
                await bench.open(Person(bench.node_id), 2)

    on_a_site(scenario)


def test_a_bmc_that_takes_nothing_says_so_and_one_without_a_console_too(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        site.lines.limits = replace(site.lines.limits, read_s=0.1)
        async with a_bench(site) as bench:
            holder = Person(bench.node_id)
            console = await bench.open(holder)
            await read_until(console, b"login: ")
            rule = site.rack.rule(Rule(action="drop_before", method="sol-packet"))
            assert console.type(b"hello")
            async with asyncio.timeout(WITHIN_S):
                while (piece := await console.read(WITHIN_S)) != Piece(untaken=5):
                    assert piece == Piece()
            site.rack.clear(rule)
            bench.serial.output(b"the machine is on")
            await read_until(console, b"the machine is on")
            console.end("done")
            await told_the_end(holder)

            bench.serial.enabled = False
            with pytest.raises(Unsupported, match="switched off"):
                await bench.open(Person(bench.node_id), 2)

    on_a_site(scenario)
