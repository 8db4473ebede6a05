"""Machines that start from the wrong medium, and calls whose answers are lost: no disk is written to but the plan's, and only by its own agent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agent_life.agent import Line
from agent_life.life import off_and_empty
from agent_life.site import LifeSite
from bcmetal.errors import LAST_ERRORS
from bcmetal.states import State, Verb
from bcmetal_agent import wire_tasks
from bcmetal_agent.wire_tasks import Task
from bcmetal_drivers.resources import BootDevice
from boot.origin import a_file
from faults_on_the_machine.real_disks import RealAgent, RealMachine, a_system, holds, noted
from faults_on_the_machine.test_deploys import (
    deployed,
    not_deployed,
    on_a_machine,
    sha256_of,
    with_page,
)
from image_bench import ImageBench
from in_process import Answered


def untouched(machine: RealMachine) -> bool:
    return all(noted(disk) for disk in machine.planned) and machine.tasks == []


def test_a_machine_that_starts_its_disk_instead_is_told_as_silent(tmp_path: Path, bench: ImageBench) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        machine.chooses = lambda device: BootDevice.NONE
        assert "console" in await not_deployed(life, machine, node_id, "agent-silent")
        assert len(machine.record.boots) == 2  # it was tried once more
        assert untouched(machine)

    on_a_machine(scenario, tmp_path, bench)


def test_a_medium_that_is_not_mapped_to_the_host_is_told_with_the_setting_to_look_at(
    tmp_path: Path, bench: ImageBench
) -> None:
    """medium-not-mapped: the agent's call is the only proof."""

    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        life.site.rack.bmcs[machine.record.name].behave("medium-not-mapped")
        await not_deployed(life, machine, node_id, "agent-silent")
        assert [boot.device for boot in machine.record.boots] == ["disk", "disk"]  # it was tried once more
        assert "attached to the host" in LAST_ERRORS["agent-silent"].hint
        assert untouched(machine)

    on_a_machine(scenario, tmp_path, bench)


def test_an_override_that_an_extra_restart_used_up_is_armed_again(tmp_path: Path, bench: ImageBench) -> None:
    """boot-once-used-up: the agent does not call, and the machine is started from its medium once more."""

    image = a_system(tmp_path)

    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        life.site.rack.bmcs[machine.record.name].behave("boot-once-used-up")
        await deployed(life, node_id, "odd")
        assert [boot.device for boot in machine.record.boots] == ["cd", "disk", "cd", "disk"]

    with_page(tmp_path, bench, a_file(image), scenario, sha256_of(image), "raw")


def test_an_installed_machine_is_started_without_a_boot_change_by_its_bmc(tmp_path: Path, bench: ImageBench) -> None:
    """boot-change-halts-an-installed-machine: once the agent runs, only the firmware's own boot entry is changed."""

    image = a_system(tmp_path)

    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        rack = life.site.rack
        rack.bmcs[machine.record.name].behave("boot-change-halts-an-installed-machine")
        await deployed(life, node_id, "odd")
        boots = machine.record.boots
        assert [boot.device for boot in boots] == ["cd", "disk"]
        patched = [write.at for write in rack.writes if write.method == "PATCH" and write.path.endswith("/Systems/1")]
        assert patched
        assert max(patched) <= boots[0].at

    with_page(tmp_path, bench, a_file(image), scenario, sha256_of(image), "raw")


def test_an_agent_from_the_medium_of_an_earlier_operation_is_nobody(tmp_path: Path, bench: ImageBench) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        read: list[str] = []

        def old(token: str) -> str:
            read.append(token)
            return read[0]

        machine.reads, machine.boots_agents = old, True
        image = {"name": "system"}
        operation_id = await life.begin(node_id, Verb.DEPLOY, image=image, kind="image")
        await life.until(lambda: bool(read))
        machine.agent = None
        machine.crash()
        await life.site.settle()
        node = await life.node(node_id)
        assert node.last_error is not None
        assert (node.facts.state, node.last_error["code"]) == (State.DEPLOY_FAILED, "agent-silent")
        assert len(set(read)) == len(read) > 1
        assert (await life.site.operation(operation_id)).ended_at is not None
        assert untouched(machine)
        assert off_and_empty(machine) == []

    on_a_machine(scenario, tmp_path, bench)


def test_another_machine_that_starts_from_this_ones_medium_gets_no_task(tmp_path: Path, bench: ImageBench) -> None:
    image = a_system(tmp_path)

    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        stranger = RealAgent(RealMachine(life.add("m2"), bench), "")

        def after_it(line: Line) -> Line:
            async def asked(
                method: str, path: str, body: bytes, headers: Mapping[str, str], address: str
            ) -> Answered | None:
                if path == wire_tasks.HELLO_PATH and machine.agent is not None:
                    stranger.token = machine.agent.token
                    await stranger.turn(life.line)
                return await line(method, path, body, headers, address)

            return asked

        machine.through = after_it
        await deployed(life, node_id, "odd")
        assert holds(machine.planned[0], image)
        assert (stranger.fenced, stranger.session_id, stranger.machine.tasks) == ("other-machine", "", [])

    with_page(tmp_path, bench, a_file(image), scenario, sha256_of(image), "raw")


def test_somebody_who_comes_second_with_each_token_ends_the_deploy_by_that_name(
    tmp_path: Path, bench: ImageBench
) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        shadows: list[RealAgent] = []

        def at_work(task: Task) -> bool:
            """While the machine's own agent is at its task."""
            if task.kind == "writeImage" and machine.agent is not None and not machine.agent.fenced:
                if all(one.token != machine.agent.token for one in shadows):
                    shadows.append(RealAgent(machine, machine.agent.token))
                return True
            return False

        async def turn() -> None:
            for shadow in shadows:
                await shadow.turn(life.line)

        machine.doing = at_work
        life.site.beside.append(turn)
        assert "3 times" in await not_deployed(life, machine, node_id, "boot-token-conflict")
        assert [(one.fenced, one.session_id) for one in shadows] == [("conflict", "")] * 3
        assert all(noted(disk) for disk in machine.planned)

    on_a_machine(scenario, tmp_path, bench)


def test_every_second_answer_may_be_lost_and_each_task_is_done_once(tmp_path: Path, bench: ImageBench) -> None:
    image = a_system(tmp_path)
    lost: dict[str, int] = {}
    calls = 0

    def lossy(line: Line) -> Line:
        async def asked(
            method: str, path: str, body: bytes, headers: Mapping[str, str], address: str
        ) -> Answered | None:
            nonlocal calls
            answer = await line(method, path, body, headers, address)
            calls += 1
            if calls % 2:
                lost[path] = lost.get(path, 0) + 1
                return None
            return answer

        return asked

    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        machine.through = lossy
        await deployed(life, node_id, "odd")
        assert holds(machine.planned[0], image)
        assert machine.tasks == ["inventory", "writeImage", "writeConfigDrive", "setBoot"]
        assert len(lost) >= 3, lost
        assert len(machine.record.boots) == 2  # the ramdisk once, the system once

    with_page(tmp_path, bench, a_file(image), scenario, sha256_of(image), "raw")
