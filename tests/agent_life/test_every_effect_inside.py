"""Crash and repeat, where the agent works: the daemon dies right after an effect, or does a step once more, and it ends as if nothing was.

An effect is each write that reached a BMC and each commit, but for those that only count an agent's calls. A whole life has some hundreds
of them; of each verb's a sample is tried here, spread over all of it. BCMETAL_SEED tries others, BCMETAL_LIVES so many times as many.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from agent_life.life import LIFE, Chapter, finish
from agent_life.site import TESTS, LifeSite, a_life_site
from bcmetal.states import Verb
from bcmetal.store import nodes
from bcmetal.workflows import workflow_of
from bcmetal.workflows.asked import asked_of
from crash.effects import Crashed, Effects, MortalStore
from emulated_site_config import POOL

pytestmark = pytest.mark.slow
UNCOUNTED = {"agents._counted", "media.served", "netboot.served"}
LIVES = {"redfish": 4, "ipmi": 3}
SEED = int(os.environ.get("BCMETAL_SEED", "1"))
LIVES_TIMES = int(os.environ.get("BCMETAL_LIVES", "1"))


class AgentEffects(Effects):
    """Without the commits that count an agent's call, and the counts of media that were fetched."""

    def _committed(self, names: str) -> None:
        if names not in UNCOUNTED:
            super()._committed(names)


@asynccontextmanager
async def a_mortal_life(folder: Path, kind: str) -> AsyncIterator[tuple[LifeSite, Effects]]:
    async with a_life_site(folder, commission=TESTS) as life:
        life.add("m1", kind)
        if kind == "ipmi":
            life.bmcs["m1"].set(max_sessions=255)  # those of daemons that died time out, but not on a clock that skips
        effects = AgentEffects(life.site.rack, life.site.store)
        life.site.engines_store = MortalStore(life.site.store, effects)
        await life.restart()
        yield life, effects


async def _recorded(life: LifeSite, effects: Effects) -> dict[Verb, list[str]]:
    """What each verb's effects are when nothing goes wrong."""
    found: dict[Verb, list[str]] = {}
    node_id = await life.enroll("m1")
    for chapter in LIFE:
        before = chapter.before(life, "m1")
        await chapter.begin(life, node_id)
        effects.begin()
        assert await finish(life, node_id, chapter) + chapter.plainly(life, "m1", before) == [], chapter.verb
        found[chapter.verb] = list(effects.seen)
    await _end(life, node_id)
    return found


async def _end(life: LifeSite, node_id: str) -> None:
    await life.site.store.write(nodes.tombstone_and_delete, node_id, "end of its life", life.site.clock.now())


def _places(counts: dict[Verb, int], lives: int) -> list[dict[Verb, int]]:
    """For each life the number of the effect of each verb after which the daemon dies: one in each of as many stretches."""
    chance = random.Random(SEED)  # a sample, not a secret
    spread = {
        verb: [1 + int((life + chance.random()) * count / lives) for life in range(lives)]
        for verb, count in counts.items()
    }
    return [{verb: places[life] for verb, places in spread.items()} for life in range(lives)]


@pytest.mark.parametrize("kind", list(LIVES))
def test_a_crash_after_an_effect_changes_nothing_about_its_end(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> tuple[int, int, list[str]]:
        async with a_mortal_life(tmp_path, kind) as (life, effects):
            counts = {verb: len(seen) for verb, seen in (await _recorded(life, effects)).items()}
            crashes, wrong = 0, list[str]()
            for places in _places(counts, LIVES[kind] * LIVES_TIMES):
                node_id = await life.enroll("m1")
                for chapter in LIFE:
                    at = places[chapter.verb]
                    before = chapter.before(life, "m1")
                    await chapter.begin(life, node_id)
                    effects.begin(at)
                    with suppress(Crashed):
                        await life.site.settle()
                    last = effects.seen[-1]
                    crashes += effects.dead
                    effects.begin()
                    await life.restart()
                    found = await finish(life, node_id, chapter) + chapter.plainly(life, "m1", before)
                    wrong.extend(f"{chapter.verb}, killed after effect {at} ({last}): {one}" for one in found)
                    assert wrong == []
                await _end(life, node_id)
            return sum(counts.values()), crashes, wrong

    effects, crashes, wrong = asyncio.run(run())
    with capsys.disabled():
        print(f"\n{kind}: {crashes} crashes, a sample of {effects} effects; {len(wrong)} ended otherwise than asked")
    assert wrong == []
    assert crashes >= len(LIFE) * LIVES[kind] // 2


def _again(c: Connection, operation_id: str, step: str) -> None:
    c.execute(
        text("UPDATE operations SET step = :step, wake_at = 0 WHERE operation_id = :operation_id"),
        {"step": step, "operation_id": operation_id},
    )


def _tokens(c: Connection) -> int:
    return int(c.execute(text("SELECT count(*) FROM boot_tokens")).scalar_one())


@pytest.mark.parametrize("kind", list(LIVES))
def test_a_repeated_step_has_no_further_effect_and_no_task_is_done_twice(kind: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path, commission=TESTS) as life:
            life.add("m1", kind)
            node_id = await life.enroll("m1")
            for chapter in LIFE:
                before = chapter.before(life, "m1")
                steps = await _steps_of(life, node_id, chapter)
                assert await _each_step_twice(life, await chapter.begin(life, node_id)) == steps[:-1], chapter.verb
                assert await finish(life, node_id, chapter) + chapter.plainly(life, "m1", before) == [], chapter.verb

    asyncio.run(run())


async def _each_step_twice(life: LifeSite, operation_id: str) -> list[str]:
    """All but the last, which ends it; their names."""
    repeated: list[str] = []
    while (operation := await life.site.operation(operation_id)).ended_at is None:
        step = operation.step
        assert step is not None
        after = await _past(life, operation_id, step)
        if after is None or after == step:
            break
        writes, tokens = _effects(life), await life.site.store.read(_tokens)
        await life.site.store.write(_again, operation_id, step)
        await _past(life, operation_id, step)
        assert _effects(life)[len(writes) :] == [], f"{step}, repeated"
        assert await life.site.store.read(_tokens) == tokens, f"{step}, repeated"
        repeated.append(step)
    return repeated


async def _steps_of(life: LifeSite, node_id: str, chapter: Chapter) -> list[str]:
    settings = life.site.settings
    asked = asked_of(await life.node(node_id), chapter.given, settings.pools[POOL], settings)
    return list(workflow_of(chapter.verb, asked).steps)


def _effects(life: LifeSite) -> list[str]:
    return [f"{write.method} {write.path}" for write in life.site.rack.writes if write.kind == "effect"]


async def _past(life: LifeSite, operation_id: str, step: str) -> str | None:
    """Run the engine until this operation is past the step; where it is then, None: at its end."""
    operation = await life.site.up_to(operation_id, lambda _, settled: settled != step)
    return operation.step if operation.ended_at is None else None
