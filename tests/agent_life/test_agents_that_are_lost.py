"""Agents that die, are cut off, come in pairs or never: the machine is started anew, or the verb fails with what happened."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent_life.agent import RamdiskAgent
from agent_life.life import LIFE, live_before
from agent_life.machine import SimulatedMachine
from agent_life.site import TESTS, a_life_site
from bcmetal.decisions import SECOND, Micros
from bcmetal.states import State, Verb
from bcmetal.store import agents, boot_tokens
from bcmetal_agent.wire_tasks import Task
from bcmetal_drivers.resources import PowerAction

DEPLOY = LIFE[2]


def of_kind(machine: SimulatedMachine, kind: str) -> list[Task]:
    """The machine stays at tasks of this kind until the test takes `doing` away; those that it is at."""
    at: list[Task] = []

    def stays(task: Task) -> bool:
        if task.kind == kind:
            at.append(task)
        return task.kind == kind

    machine.doing = stays
    return at


def goes_on(machine: SimulatedMachine) -> None:
    machine.doing = lambda task: False


def test_an_agent_that_was_killed_goes_on_in_its_session(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.DEPLOY)
            operation_id = await DEPLOY.begin(life, node_id)
            at = of_kind(machine, "writeImage")
            await life.until(lambda: bool(at))
            agent = machine.agent
            assert agent is not None
            session = agent.session_id
            agent.kill()
            goes_on(machine)
            await life.site.settle()
            assert agent.session_id == session
            assert await life.site.state(node_id) is State.DEPLOYED
            assert (await life.site.operation(operation_id)).backs == 0
            assert machine.tasks.count("writeImage") == 1

    asyncio.run(run())


def test_a_machine_that_somebody_power_cycles_in_mid_task_is_started_anew_with_another_token(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.DEPLOY)
            operation_id = await DEPLOY.begin(life, node_id)
            at = of_kind(machine, "writeImage")
            await life.until(lambda: bool(at))
            before = machine.agent
            assert before is not None
            machine.record.set_power(PowerAction.OFF)
            machine.record.set_power(PowerAction.ON)
            goes_on(machine)
            await life.until(lambda: machine.agent not in (None, before))
            await life.until(lambda: machine.agent is not None and bool(machine.agent.session_id))
            assert machine.agent is not None
            assert (machine.agent.token != before.token, machine.agent.session_id != before.session_id) == (True, True)
            await before.turn(life.line)  # whoever kept the old session is nobody
            assert before.fenced == "not-yours"
            await life.site.settle()
            assert await life.site.state(node_id) is State.DEPLOYED
            assert (await life.site.operation(operation_id)).backs == 1
            assert DEPLOY.truth(life, "m1", DEPLOY.before(life, "m1")) == []

    asyncio.run(run())


def test_a_machine_that_somebody_switched_off_in_mid_erase_ends_erased(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path, commission=TESTS) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.COMMISSION)
            secret = life.plant("m1")
            operation_id = await life.begin(node_id, Verb.COMMISSION)
            at = of_kind(machine, "erase")
            await life.until(lambda: bool(at))
            machine.record.set_power(PowerAction.OFF)
            goes_on(machine)
            await life.site.settle()
            assert await life.site.state(node_id) is State.AVAILABLE
            assert (await life.site.operation(operation_id)).backs == 1
            assert life.holding("m1", secret) == []
            assert machine.tasks.count("test") == 3  # what was done is not done again

    asyncio.run(run())


def test_of_two_agents_with_one_token_neither_is_believed_and_the_next_start_is_another(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.DEPLOY)
            operation_id = await DEPLOY.begin(life, node_id)
            at = of_kind(machine, "writeImage")
            await life.until(lambda: bool(at))
            first = machine.agent
            assert first is not None
            twin = RamdiskAgent(machine, first.token)
            await twin.turn(life.line)
            assert twin.fenced == "conflict"
            assert await life.site.store.read(agents.current, operation_id) is None
            goes_on(machine)
            await life.site.settle()
            assert await life.site.state(node_id) is State.DEPLOYED
            assert (await life.site.operation(operation_id)).backs == 1
            [conflict] = await life.events("security.boot-token.conflict")
            assert conflict["conflicts"] == 1

    asyncio.run(run())


def test_the_third_token_that_two_agents_come_with_is_the_last(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.DEPLOY)
            operation_id = await DEPLOY.begin(life, node_id)

            def shadowed() -> None:
                """Somebody who reads the wire says hello with whatever token the machine has."""
                agent = machine.agent
                if agent is not None and agent.session_id and agent.token not in twins:
                    twins[agent.token] = RamdiskAgent(machine, agent.token)

            twins: dict[str, RamdiskAgent] = {}

            async def turn() -> None:
                shadowed()
                for twin in twins.values():
                    await twin.turn(life.line)

            life.site.beside.append(turn)
            await life.site.settle()
            node = await life.node(node_id)
            assert node.facts.state is State.DEPLOY_FAILED
            assert node.last_error is not None
            assert node.last_error["code"] == "boot-token-conflict"
            assert await life.site.store.read(boot_tokens.conflicts, operation_id) == 3
            assert [twin.fenced for twin in twins.values()] == ["conflict"] * 3
            assert "writeImage" not in machine.tasks
            assert machine.disks[0].blocks == {}

    asyncio.run(run())


def test_an_agent_that_vanishes_for_ever_ends_the_verb_as_silent(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.DEPLOY)
            await DEPLOY.begin(life, node_id)
            at = of_kind(machine, "writeImage")
            await life.until(lambda: bool(at))
            machine.boots_agents = False
            assert machine.agent is not None
            machine.agent.silent = True
            await life.site.settle()
            node = await life.node(node_id)
            assert node.last_error is not None
            assert node.last_error["code"] == "agent-silent"
            assert node.facts.state is State.DEPLOY_FAILED
            assert machine.record.media is None
            assert not machine.running.on

    asyncio.run(run())


def test_a_machine_that_never_asks_for_its_network_boot_is_told_of_with_what_to_look_at(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1", "ipmi")
            node_id = await life.enroll("m1")
            await life.site.set_node(node_id, boot_mac="3c:ec:ef:00:00:01")  # a cable in another port
            message = await life.failed(node_id, Verb.INSPECT, "agent-silent")
            assert "never asked for its ramdisk" in message
            assert "bootMac" in message
            assert machine.tasks == []

    asyncio.run(run())


def test_an_agent_is_not_given_up_for_the_time_that_the_daemon_was_away(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path, commission=TESTS) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.COMMISSION)
            operation_id = await life.begin(node_id, Verb.COMMISSION)
            at = of_kind(machine, "erase")
            await life.until(lambda: bool(at))
            boots = len(machine.record.boots)
            life.site.clock.skip_to(Micros(life.site.clock.now() + 3600 * SECOND))
            life.asleep = True  # the engine is the first to look, as after a start of the daemon
            await life.restart()
            await life.site.advance()
            life.asleep = False
            for _ in range(20):
                await life.site.advance()
            assert len(machine.record.boots) == boots
            goes_on(machine)
            await life.site.settle()
            assert await life.site.state(node_id) is State.AVAILABLE
            assert (await life.site.operation(operation_id)).backs == 0

    asyncio.run(run())


def test_the_wait_for_an_agent_does_not_count_the_time_that_the_daemon_was_away(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1")
            machine.boots_agents = False
            node_id = await life.enroll("m1")
            operation_id = await life.begin(node_id, Verb.INSPECT, deep=True)
            await life.up_to_step(operation_id, "wait_for_the_agent")
            for _ in range(3):
                await life.site.advance()
            life.site.clock.skip_to(Micros(life.site.clock.now() + 1200 * SECOND))
            await life.restart()
            await life.site.advance()
            operation = await life.site.operation(operation_id)
            assert (operation.step, operation.backs) == ("wait_for_the_agent", 0)
            await life.site.settle()
            error = (await life.node(node_id)).last_error
            assert error is not None
            assert error["code"] == "agent-silent"

    asyncio.run(run())
