"""What an operation does for hours, its budget has room for: tests, a hold and an erase each add their own time, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent_life.site import DISK_BYTES, TESTS, a_life_site
from agent_life.test_people_inside import BROKEN, HELD
from bcmetal.decisions import SECOND
from bcmetal.states import WORKFLOWS, State, Verb
from bcmetal.workflows.erasing_inside import WRITTEN_BYTES_PER_S

WITHIN_S = WORKFLOWS[Verb.COMMISSION].budget_s


def test_tests_and_an_erase_by_the_agent_both_add_to_the_budget(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path, erase='["overwrite"]', commission=TESTS) as life:
            life.add("m1")
            node_id = await life.enroll("m1")
            assert await life.live(node_id, Verb.INSPECT) is State.INSPECTED
            operation_id = await life.begin(node_id, Verb.COMMISSION)
            await life.site.settle()
            found = await life.site.operation(operation_id)
            assert found.status == "done"
            added_s = 3 * 60 + DISK_BYTES // WRITTEN_BYTES_PER_S  # the clock, the disks' own word, the CPUs
            assert found.budget_us == (WITHIN_S + added_s) * SECOND

    asyncio.run(run())


def test_a_machine_that_is_held_is_held_on_a_budget_of_its_own(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path, commission=HELD) as life:
            machine = life.add("m1")
            machine.tests["cpu"] = BROKEN
            node_id = await life.enroll("m1")
            assert await life.live(node_id, Verb.INSPECT) is State.INSPECTED
            operation_id = await life.begin(node_id, Verb.COMMISSION)
            await life.until(lambda: machine.rescued_with is not None)
            found = await life.site.operation(operation_id)
            assert found.budget_us == (WITHIN_S + 60 + 600 + 3600) * SECOND  # the clock, the CPUs, the hold

    asyncio.run(run())
