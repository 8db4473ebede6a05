"""Repeat, crash and interfere: every step of every workflow, on real protocols, judged by the rack's oracle.

*Crash*: a run is recorded, then made again and killed after each of its effects in turn. *Repeat*: each step is run once more after it
was done. *Interfere*: between two steps somebody at the machine or the BMC does something.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from bcmetal.decisions import Params
from bcmetal.states import BUSY, State, Verb
from bcmetal.store import nodes, operations
from bcmetal.workflows import workflow_of
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import BootDevice, PowerAction
from crash.effects import Crashed, Effects, MortalStore
from crash.life import LIFE, Chapter, leading_to, plant_everywhere
from emulated_site import Site, a_site

pytestmark = pytest.mark.slow
FETCH_POLLS = 8


@asynccontextmanager
async def a_mortal_site(folder: Path) -> AsyncIterator[tuple[Site, EmulatedBmc, Effects]]:
    async with a_site(folder) as site:
        bmc = site.rack.add_redfish("m1", drives=2)
        site.rack.start()
        effects = Effects(site.rack, site.store)
        site.engines_store = MortalStore(site.store, effects)
        await site.restart()
        yield site, bmc, effects


async def begin_life(site: Site, bmc: EmulatedBmc) -> str:
    return await site.enroll(bmc)


async def end_life(site: Site, node_id: str) -> None:
    await site.store.write(nodes.tombstone_and_delete, node_id, "end of its life", site.clock.now())


async def through(site: Site, bmc: EmulatedBmc, node_id: str, chapter: Chapter) -> list[str]:
    """Start the chapter's verb, and see it through whatever crashes; what the oracle finds wrong."""
    if chapter.plant:
        plant_everywhere(bmc)
    boots = len(bmc.machine.boots)
    await site.start(node_id, chapter.verb, chapter.params, **chapter.given)
    return await finish(site, bmc, node_id, chapter, boots)


async def finish(site: Site, bmc: EmulatedBmc, node_id: str, chapter: Chapter, boots: int) -> list[str]:
    node = await site.node(node_id)
    if node.facts.state is not chapter.state:
        await site.settle()
        node = await site.node(node_id)
    wrong = chapter.judge(bmc, boots)
    if node.facts.state is not chapter.state:
        wrong.append(f"it is {node.facts.state}: {node.last_error}")
    return wrong


async def record(folder: Path) -> dict[Verb, int]:
    """How many effects each verb has when nothing goes wrong."""
    async with a_mortal_site(folder) as (site, bmc, effects):
        counts: dict[Verb, int] = {}
        node_id = await begin_life(site, bmc)
        for chapter in LIFE:
            if chapter.plant:
                plant_everywhere(bmc)
            boots = len(bmc.machine.boots)
            await site.start(node_id, chapter.verb, chapter.params, **chapter.given)
            effects.begin()
            assert await finish(site, bmc, node_id, chapter, boots) == []
            counts[chapter.verb] = len(effects.seen)
        return counts


def test_a_crash_after_any_effect_of_any_workflow_changes_nothing_about_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> tuple[dict[Verb, int], list[str]]:
        (tmp_path / "recorded").mkdir()
        (tmp_path / "crashed").mkdir()
        recorded = await record(tmp_path / "recorded")
        crashes = dict.fromkeys(recorded, 0)
        wrong: list[str] = []
        left = set(recorded)  # verbs whose run still has an effect with the number `at`
        at = 0
        async with a_mortal_site(tmp_path / "crashed") as (site, bmc, effects):
            while left:
                at += 1
                node_id = await begin_life(site, bmc)
                for chapter in leading_to(left):
                    if chapter.plant:
                        plant_everywhere(bmc)
                    boots = len(bmc.machine.boots)
                    await site.start(node_id, chapter.verb, chapter.params, **chapter.given)
                    last = ""
                    if chapter.verb in left:
                        effects.begin(at)
                        with suppress(Crashed):
                            await site.settle()
                        if effects.dead:
                            crashes[chapter.verb] += 1
                            last = effects.seen[-1]
                        else:
                            left.discard(chapter.verb)
                        effects.begin()
                        await site.restart()
                    found = await finish(site, bmc, node_id, chapter, boots)
                    wrong.extend(f"{chapter.verb}, killed after effect {at} ({last}): {one}" for one in found)
                    assert not found, wrong
                await end_life(site, node_id)
        # Polls of a background fetch vary by a few from run to run; every other effect is there each time.
        assert all(crashes[verb] >= recorded[verb] - FETCH_POLLS for verb in recorded), (crashes, recorded)
        return crashes, wrong

    crashes, wrong = asyncio.run(run())
    with capsys.disabled():
        told = ", ".join(f"{verb} {count}" for verb, count in crashes.items())
        print(
            f"\n{sum(crashes.values())} crashes, one after each effect ({told}); {len(wrong)} ended otherwise than asked"
        )
    assert wrong == []


def _again(c: Connection, operation_id: str, step: str) -> None:
    c.execute(
        text("UPDATE operations SET step = :step, wake_at = 0 WHERE operation_id = :operation_id"),
        {"step": step, "operation_id": operation_id},
    )


@pytest.mark.parametrize("chapter", LIFE, ids=lambda chapter: chapter.verb.value)
def test_a_repeated_step_has_no_further_effect(chapter: Chapter, tmp_path: Path) -> None:
    async def run() -> None:
        async with a_site(tmp_path) as site:
            bmc = site.rack.add_redfish("m1", drives=2)
            site.rack.start()
            node_id = await begin_life(site, bmc)
            for before in LIFE[: LIFE.index(chapter)]:
                assert await through(site, bmc, node_id, before) == []
            if chapter.plant:
                plant_everywhere(bmc)
            boots = len(bmc.machine.boots)
            operation_id = await site.start(node_id, chapter.verb, chapter.params, **chapter.given)
            names = tuple(workflow_of(chapter.verb).steps)
            repeated: list[str] = []
            while (operation := await site.operation(operation_id)).ended_at is None:
                step = operation.step
                assert step is not None
                await one_step(site, operation_id, step)
                after = await site.operation(operation_id)
                if after.ended_at is None and after.step != step:
                    writes = len([w for w in site.rack.writes if w.kind == "effect"])
                    await site.store.write(_again, operation_id, step)
                    await one_step(site, operation_id, step)
                    now = [f"{w.method} {w.path}" for w in site.rack.writes if w.kind == "effect"]
                    assert now[writes:] == [], f"{step}, repeated"
                    repeated.append(step)
            assert repeated == list(names[:-1])
            assert await finish(site, bmc, node_id, chapter, boots) == []

    asyncio.run(run())


async def one_step(site: Site, operation_id: str, step: str) -> None:
    """Run the engine until this operation is past the step."""
    await site.up_to(operation_id, lambda operation, settled: settled != step)


def _person_powers_on(bmc: EmulatedBmc) -> None:
    bmc.machine.set_power(PowerAction.ON)


def _person_powers_off(bmc: EmulatedBmc) -> None:
    bmc.machine.set_power(PowerAction.OFF)


def _person_ejects(bmc: EmulatedBmc) -> None:
    bmc.machine.eject()


def _person_clears_the_override(bmc: EmulatedBmc) -> None:
    bmc.machine.arm(BootDevice.NONE, once=False)


def _person_arms_the_network(bmc: EmulatedBmc) -> None:
    bmc.machine.arm(BootDevice.PXE, once=True)


INTERFERENCES: tuple[Callable[[EmulatedBmc], None], ...] = (
    _person_powers_on,
    _person_powers_off,
    _person_ejects,
    _person_clears_the_override,
    _person_arms_the_network,
)


@pytest.mark.parametrize("interfere", INTERFERENCES, ids=lambda fn: fn.__name__.removeprefix("_person_"))
def test_interference_between_any_two_steps_ends_as_asked_or_with_a_reason(
    interfere: Callable[[EmulatedBmc], None], tmp_path: Path
) -> None:
    """Success must be true: a node that says deployed runs its image, one that says available is off and erased."""

    async def run() -> None:
        async with a_site(tmp_path) as site:
            bmc = site.rack.add_redfish("m1", drives=2)
            site.rack.start()
            steps = {chapter.verb: tuple(workflow_of(chapter.verb).steps) for chapter in LIFE}
            for at in range(max(map(len, steps.values()))):
                node_id = await begin_life(site, bmc)
                for chapter in leading_to([verb for verb, names in steps.items() if at < len(names)]):
                    names = steps[chapter.verb]
                    if chapter.plant:
                        plant_everywhere(bmc)
                    operation_id = await site.start(node_id, chapter.verb, chapter.params, **chapter.given)
                    if at < len(names) and chapter.verb is not Verb.INSPECT:
                        for step in names[:at]:
                            if (await site.operation(operation_id)).step == step:
                                await one_step(site, operation_id, step)
                        interfere(bmc)
                    await site.settle()
                    node = await site.node(node_id)
                    assert node.facts.state not in BUSY
                    where = f"{chapter.verb}, {interfere.__name__} before step {at + 1}"
                    if node.facts.state is chapter.state:
                        assert _truth(bmc, chapter) == [], where
                        continue
                    assert node.last_error, where
                    await _go_on(site, bmc, node_id, chapter)
                await end_life(site, node_id)

    asyncio.run(run())


def _truth(bmc: EmulatedBmc, chapter: Chapter) -> list[str]:
    """What the state claims, whatever happened on the way."""
    machine = bmc.machine
    last = machine.boots[-1].medium_sha256 if machine.boots else None
    if chapter.verb in (Verb.DEPLOY, Verb.RESCUE):
        wanted = chapter.judge.__closure__[0].cell_contents if chapter.judge.__closure__ else None
        return [] if last == wanted else [f"its last start was from {last}"]
    if chapter.verb in (Verb.COMMISSION, Verb.RELEASE, Verb.RETIRE):
        holding = [d.serial for d in machine.drives.values() if d.holds_data]
        return [f"drive {serial} holds data" for serial in holding]
    return []


async def _go_on(site: Site, bmc: EmulatedBmc, node_id: str, chapter: Chapter) -> None:
    """No failure is a dead end: the verb is done again, and then it succeeds."""
    node = await site.node(node_id)
    verb = Verb.RETRY if node.facts.failed_verb is not None else chapter.verb
    given = {} if verb is Verb.RETRY else chapter.given
    serial = node.facts.serial or node_id
    await site.start(node_id, verb, Params(confirm_erase=serial), **(given or chapter.given))
    await site.settle()
    assert await site.state(node_id) is chapter.state, (await site.node(node_id)).last_error


def test_an_abort_between_any_two_steps_leaves_nothing_behind(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_site(tmp_path) as site:
            bmc = site.rack.add_redfish("m1", drives=2)
            site.rack.start()
            node_id = await begin_life(site, bmc)
            for before in LIFE[:2]:
                assert await through(site, bmc, node_id, before) == []
            deploy = LIFE[2]
            names = tuple(workflow_of(Verb.DEPLOY).steps)
            for at in range(len(names)):
                operation_id = await site.start(node_id, Verb.DEPLOY, **deploy.given)
                for step in names[:at]:
                    await one_step(site, operation_id, step)
                audit = site.audit("abort", node_id)
                await site.store.write(operations.request_abort, node_id, "key:test", audit, [], site.clock.now())
                await site.settle()
                operation = await site.operation(operation_id)
                node = await site.node(node_id)
                assert operation.status == "aborted"
                assert node.facts.state is (State.DEPLOY_FAILED if operation.touched else State.AVAILABLE)
                assert bmc.machine.media is None
                assert bmc.machine.power.value == "off"
                if node.facts.state is State.DEPLOY_FAILED:
                    await site.live(node_id, Verb.RELEASE)
                assert await site.state(node_id) is State.AVAILABLE

    asyncio.run(run())
