"""Drives that are missing, nameless, shared, twins or liars: a machine is clean only where every one of its drives was proven to be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from agent_life.disks import Disk
from agent_life.life import live_before
from agent_life.machine import SimulatedMachine
from agent_life.site import DISK_BYTES, LifeSite, a_life_site
from bcmetal.states import Disks, State, Verb
from bcmetal_agent.wire_tasks import Task

Answers = Callable[[Task, Mapping[str, Any]], Mapping[str, Any]]


def test_an_erase_that_was_said_and_not_done_is_found_out(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.COMMISSION)
            machine.disks[1].obeys = False
            message = await life.failed(node_id, Verb.COMMISSION, "erase-not-verified")
            assert machine.disks[1].serial in message
            assert machine.disks[0].serial not in message
            node = await life.node(node_id)
            assert (node.facts.state, node.facts.disks) == (State.COMMISSION_FAILED, Disks.HALF)
            assert await life.site.erasure_records(node_id) == []

            machine.disks[1].obeys = True
            assert await life.live(node_id, Verb.COMMISSION) is State.AVAILABLE
            assert [disk.blocks for disk in machine.disks] == [{}, {}]

    asyncio.run(run())


def _gone(machine: SimulatedMachine) -> None:
    del machine.disks[1]


def _nameless(machine: SimulatedMachine) -> None:
    machine.disks.append(Disk("sdz", "", DISK_BYTES, model="a stick"))


def _placeholder(machine: SimulatedMachine) -> None:
    machine.disks.append(Disk("sdz", "0000000000", DISK_BYTES))


def _twin_serial(machine: SimulatedMachine) -> None:
    """Of another size: a plan that went by serials alone would pass over one of them."""
    first = machine.disks[0]
    machine.disks.append(Disk("sdz", first.serial, DISK_BYTES * 2, "5002538ffffff001", first.model))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_gone, "erase-drive-missing"),
        (_nameless, "erase-unsupported"),
        (_placeholder, "erase-unsupported"),
        (_twin_serial, "erase-unsupported"),
    ],
    ids=lambda one: getattr(one, "__name__", "").removeprefix("_"),
)
def test_drives_that_cannot_all_be_told_end_a_commission_before_any_is_written(
    change: Callable[[SimulatedMachine], None], code: str, tmp_path: Path
) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.COMMISSION)
            await life.site.store.write(_hold_data, node_id)
            change(machine)
            secret = life.plant("m1")
            await life.failed(node_id, Verb.COMMISSION, code)
            assert life.holding("m1", secret) == [disk.serial for disk in machine.disks]
            assert not any(task.startswith("erase:plant") for task in machine.tasks)
            assert (await life.node(node_id)).facts.disks is Disks.FOREIGN

    asyncio.run(run())


def _hold_data(c: Connection, node_id: str) -> None:
    c.execute(text("UPDATE drives SET may_hold_data = true WHERE node_id = :node_id"), {"node_id": node_id})


def test_a_drive_that_is_reached_over_a_fabric_is_in_no_plan(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1")
            lun = Disk("sdz", "600A098038303053", DISK_BYTES, "600a0980", transport="fc", shared=True)
            machine.disks.append(lun)
            medium = Disk("sr0", "AMI0001", DISK_BYTES, transport="usb", virtual_medium=True)
            machine.disks.append(medium)
            node_id = await live_before(life, "m1", Verb.COMMISSION)
            secret = life.plant("m1")
            assert await life.live(node_id, Verb.COMMISSION) is State.AVAILABLE
            assert life.holding("m1", secret) == [lun.serial, medium.serial]
            records = await life.site.erasure_records(node_id)
            assert {one["serial"] for one in records} == {disk.serial for disk in machine.disks[:2]}
            assert set(records[0]["unplanned"]) == {lun.serial, medium.serial}

    asyncio.run(run())


def test_a_drive_whose_name_another_node_sees_too_is_not_written(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine, other = life.add("m1"), life.add("m2")
            twin = Disk("sdz", "OTHER0001", DISK_BYTES, machine.disks[0].wwn, "another box's name for it")
            other.disks.append(twin)  # multipath: one drive, two enclosures
            node_id = await live_before(life, "m1", Verb.COMMISSION)
            await live_before(life, "m2", Verb.COMMISSION)
            secret = life.plant("m1")
            await life.failed(node_id, Verb.COMMISSION, "erase-shared-drive")
            assert life.holding("m1", secret) == [disk.serial for disk in machine.disks]
            await life.failed(node_id, Verb.COMMISSION, "erase-shared-drive")

    asyncio.run(run())


def _about_others(answer: Mapping[str, Any]) -> dict[str, Any]:
    first, *rest = answer["drives"]
    return {**answer, "drives": [{**first, "serial": "ANOTHER01"}, *rest]}


def _about_one(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {**answer, "drives": answer["drives"][:1]}


def _twice(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {**answer, "drives": [*answer["drives"], answer["drives"][0]]}


def _nonsense(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"drives": "all of them"}


@pytest.mark.parametrize("phase", ["inspect", "erase", "verify"])
def test_an_answer_that_is_not_about_the_plans_drives_is_not_taken(phase: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.COMMISSION)
            says: Callable[[Mapping[str, Any]], dict[str, Any]]
            for says in (_about_others, _about_one, _twice, _nonsense):
                machine.answers = _saying(says, phase)
                await life.failed(node_id, Verb.COMMISSION, "agent-malformed-answer")
                assert (await life.node(node_id)).facts.state is State.COMMISSION_FAILED, says
            assert await life.site.erasure_records(node_id) == []

    asyncio.run(run())


def _saying(says: Callable[[Mapping[str, Any]], dict[str, Any]], phase: str) -> Answers:
    return lambda task, answer: says(answer) if task.params.get("phase") == phase else answer


def test_a_verify_that_answers_for_fewer_sectors_than_were_planted_proves_nothing(tmp_path: Path) -> None:
    def fewer(task: Task, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        if task.params.get("phase") != "verify":
            return answer
        return {**answer, "drives": [{**one, "samples": one["samples"][1:]} for one in answer["drives"]]}

    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            life.add("m1").answers = fewer
            node_id = await live_before(life, "m1", Verb.COMMISSION)
            await life.failed(node_id, Verb.COMMISSION, "erase-not-verified")

    asyncio.run(run())


def test_a_waiver_passes_over_a_drive_and_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            await _waived(life)

    asyncio.run(run())


async def _waived(life: LifeSite) -> None:
    machine = life.add("m1")
    node_id = await live_before(life, "m1", Verb.RELEASE)
    kept = machine.disks.pop(1)  # pulled, and kept in a safe
    life.plant_beside("m1")
    await life.failed(node_id, Verb.RELEASE, "erase-drive-missing")
    waiver = {"serials": [kept.serial], "reason": "it broke", "custody": "the safe"}
    assert await life.live(node_id, Verb.RELEASE, profile="waived", eraseWaiver=waiver) is State.AVAILABLE
    assert machine.disks[0].blocks == {}
    node = await life.node(node_id)
    assert node.facts.not_erased
    assert node.facts.disks is not Disks.CLEAN
    records = {one["serial"]: one for one in await life.site.erasure_records(node_id)}
    assert records[kept.serial]["result"] == "not erased"
    assert records[kept.serial]["custody"] == "the safe"
    assert (await life.site.conditions(node_id))["erasure"] == ("warning", "not-erased")
