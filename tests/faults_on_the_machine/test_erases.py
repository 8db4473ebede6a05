"""What can go wrong with an erase: the machine is not said to be clean, the reason names the drive, and what no plan named is left alone.

By a commission with real disks under fakes of their firmware; by a release where all that matters is what the agent says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from agent_life.life import live_before, off_and_empty
from agent_life.site import METHODS, TESTS, LifeSite, a_life_site
from bcmetal.states import Disks, State, Verb
from bcmetal_agent.wire_tasks import Task
from bcmetal_drivers.emulated.disks import FakeDisk, Kind
from faults_on_the_machine.real_disks import MIB, NOTE, RealMachine, a_real_machine, note, noted
from image_bench import ImageBench

SIZE: Final = 16 * MIB
OVERWRITE: Final = '["overwrite"]'
Scenario = Callable[[LifeSite, RealMachine, str], Awaitable[None]]


def beside(bench: ImageBench) -> list[FakeDisk]:
    """What hangs on the machine, and is no disk of its own: shared storage, and what the BMC shows as a stick."""

    def add(kind: Kind, serial: str, **settings: Any) -> FakeDisk:
        disk = bench.cabinet.add(kind, bench.loop(bench.file(SIZE)), serial, **settings)
        note(disk)
        return disk

    return [
        add(Kind.ISCSI, "LUN-1"),
        add(Kind.NVME_TCP, "SUBSYSTEM-1"),
        add(Kind.USB, "STICK-1", vendor="AMI", model="Virtual HDisk0"),
    ]


def on_a_machine(scenario: Scenario, folder: Path, bench: ImageBench, erase: str = METHODS, **settings: Any) -> None:
    """`settings`: of the machine's own two disks."""

    async def run() -> None:
        async with a_life_site(folder, erase=erase) as life:
            machine = a_real_machine(life, bench, SIZE, SIZE, **settings)
            machine.on_start = bench.cabinet.power_cycle
            others = beside(bench)
            for disk in machine.planned:
                note(disk)
            node_id = await life.enroll("m1")
            assert await life.live(node_id, Verb.INSPECT) is State.INSPECTED
            await scenario(life, machine, node_id)
            assert [disk.serial for disk in others if not noted(disk)] == []
            assert off_and_empty(machine) == []

    asyncio.run(run())


async def not_erased(life: LifeSite, node_id: str, code: str, disks: Disks = Disks.HALF) -> str:
    """Failed by this code; the message."""
    message = await life.failed(node_id, Verb.COMMISSION, code)
    facts = (await life.node(node_id)).facts
    assert (facts.state, facts.disks) == (State.COMMISSION_FAILED, disks)
    assert await life.site.erasure_records(node_id) == []
    return message


def at(bench: ImageBench, phase: str, disk: FakeDisk) -> Callable[[Task], bool]:
    """Pulled as this phase begins."""
    pulled: list[str] = []

    def pull(task: Task) -> bool:
        if task.kind == "erase" and task.params["phase"] == phase and not pulled:
            bench.cabinet.unplug(disk)
            pulled.append(disk.name)
        return False

    return pull


def test_what_is_not_the_machines_own_survives_its_erase(tmp_path: Path, bench: ImageBench) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        assert await life.live(node_id, Verb.COMMISSION) is State.AVAILABLE, (await life.node(node_id)).last_error
        for disk in machine.planned:
            assert NOTE not in disk.node.read_bytes()
            assert bench.cabinet.state(disk).commands == ["sanitize crypto"]
        records = await life.site.erasure_records(node_id)
        assert sorted(one["serial"] for one in records) == sorted(disk.serial for disk in machine.planned)
        assert all({"LUN-1", "SUBSYSTEM-1"} <= set(one["unplanned"]) for one in records)

    on_a_machine(scenario, tmp_path, bench)


def test_a_drive_that_says_erased_and_is_not_fails_with_its_serial(tmp_path: Path, bench: ImageBench) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        bench.cabinet.change(machine.planned[1], lies=True)
        message = await not_erased(life, node_id, "erase-not-verified")
        assert machine.planned[1].serial in message
        assert machine.planned[0].serial not in message

    on_a_machine(scenario, tmp_path, bench)


def test_a_drive_that_dies_while_it_erases_fails_with_its_serial(tmp_path: Path, bench: ImageBench) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        bench.cabinet.change(machine.planned[1], dies=True)
        message = await not_erased(life, node_id, "erase-failed")
        assert machine.planned[1].serial in message

    on_a_machine(scenario, tmp_path, bench)


def test_a_drive_that_is_gone_before_the_plan_ends_it_before_anything_is_written(
    tmp_path: Path, bench: ImageBench
) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        bench.cabinet.unplug(machine.planned[1])
        message = await not_erased(life, node_id, "erase-drive-missing", Disks.FOREIGN)
        assert machine.planned[1].serial in message
        assert noted(machine.planned[0])
        assert noted(machine.planned[1])

    on_a_machine(scenario, tmp_path, bench)


@pytest.mark.parametrize(
    ("phase", "code", "disks"),
    [
        ("inspect", "erase-drive-missing", Disks.FOREIGN),
        ("plant", "erase-drive-missing", Disks.HALF),
        ("erase", "erase-drive-missing", Disks.HALF),
        ("verify", "erase-not-verified", Disks.HALF),
    ],
)
def test_a_drive_that_is_pulled_in_the_middle_is_told(
    phase: str, code: str, disks: Disks, tmp_path: Path, bench: ImageBench
) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        machine.doing = at(bench, phase, machine.planned[1])
        message = await not_erased(life, node_id, code, disks)
        assert machine.planned[1].serial in message

    on_a_machine(scenario, tmp_path, bench)


def test_twins_in_one_machine_are_both_left_alone(tmp_path: Path, bench: ImageBench) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        one = machine.planned[0]
        twin = bench.cabinet.add(Kind.SAS, bench.loop(bench.file(SIZE)), "OTHER-SERIAL", model=one.model, wwn=one.wwn)
        note(twin)
        message = await not_erased(life, node_id, "erase-shared-drive", Disks.FOREIGN)
        assert one.serial in message
        assert all(noted(disk) for disk in (twin, *machine.planned))

    on_a_machine(scenario, tmp_path, bench)


# ---------------------------------------------------------------- released


def on_a_deployed_machine(scenario: Callable[[LifeSite, str], Awaitable[None]], folder: Path) -> None:
    async def run() -> None:
        async with a_life_site(folder, commission=TESTS) as life:
            life.add("m1")
            await scenario(life, await live_before(life, "m1", Verb.RELEASE))

    asyncio.run(run())


async def not_released(life: LifeSite, node_id: str, code: str) -> str:
    message = await life.failed(node_id, Verb.RELEASE, code)
    facts = (await life.node(node_id)).facts
    assert facts.state is State.RELEASE_FAILED
    assert facts.disks is not Disks.CLEAN
    assert off_and_empty(life.machines["m1"]) == []
    return message


def test_an_agent_that_is_told_to_say_yes_does_not_release_a_machine(tmp_path: Path) -> None:
    async def scenario(life: LifeSite, node_id: str) -> None:
        machine = life.machines["m1"]
        secret = life.plant_beside("m1")
        machine.disks[1].obeys = False
        before = len(await life.site.erasure_records(node_id))
        assert machine.disks[1].serial in await not_released(life, node_id, "erase-not-verified")
        assert life.holding("m1", secret) == [machine.disks[1].serial]
        assert len(await life.site.erasure_records(node_id)) == before

        machine.disks[1].obeys = True  # replaced, or it was its cable
        assert await life.live(node_id, Verb.RELEASE) is State.AVAILABLE
        assert life.holding("m1", secret) == []

    on_a_deployed_machine(scenario, tmp_path)


def test_a_drive_that_the_tenant_took_along_keeps_the_machine_from_its_release(tmp_path: Path) -> None:
    async def scenario(life: LifeSite, node_id: str) -> None:
        machine = life.machines["m1"]
        secret, taken = life.plant_beside("m1"), machine.disks.pop()
        assert taken.serial in await not_released(life, node_id, "erase-drive-missing")
        assert life.holding("m1", secret) == [machine.disks[0].serial]  # nothing was begun

    on_a_deployed_machine(scenario, tmp_path)
