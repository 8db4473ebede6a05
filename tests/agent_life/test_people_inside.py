"""What people meet: a machine held after a failed test, one that runs and is nobody's to switch off, a rescue whose time is over."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent_life.life import CRYPTED, KEYS, LIFE, finish, live_before
from agent_life.site import a_life_site
from bcmetal.decisions import SECOND, Micros
from bcmetal.states import State, Verb
from bcmetal.store import operations, rescues
from bcmetal.sweeps import expire
from bcmetal_agent.wire_tasks import TestResult
from bcmetal_drivers.resources import PowerAction

TESTED = "tests = {clock = true, cpu_s = 600}"
HELD = f'{TESTED}\nhold_on_failure_s = 3600\nhold_keys = ["{KEYS[0]}"]'
BROKEN = TestResult("core 7 computed wrongly 3 times", passed=False)


def test_a_machine_that_fails_a_test_is_off_and_untouched_and_tells_which(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path, commission=TESTED) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.COMMISSION)
            machine.tests["cpu"] = BROKEN
            secret = life.plant("m1")
            message = await life.failed(node_id, Verb.COMMISSION, "hardware-test")
            assert message == "cpu: core 7 computed wrongly 3 times"
            assert life.holding("m1", secret) == [disk.serial for disk in machine.disks]
            assert not machine.running.on
            assert (await life.site.conditions(node_id))["hardware"] == ("error", "hardware-test")
            machine.tests["cpu"] = TestResult("there is no stress-ng")  # one that cannot be run proves nothing
            await life.failed(node_id, Verb.COMMISSION, "hardware-test")
            machine.tests.clear()
            assert await life.live(node_id, Verb.COMMISSION) is State.AVAILABLE
            assert life.holding("m1", secret) == []

    asyncio.run(run())


def test_a_machine_that_failed_is_held_open_to_the_engineer_until_the_time_is_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path, commission=HELD) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.COMMISSION)
            machine.tests["cpu"] = BROKEN
            operation_id = await life.begin(node_id, Verb.COMMISSION)
            began = life.site.clock.now()
            await life.until(lambda: machine.rescued_with is not None)
            for _ in range(3):
                await life.site.advance()
            assert machine.rescued_with is not None
            assert machine.rescued_with["sshKeys"] == list(KEYS)
            assert machine.rescued_with["user"] == "engineer"
            assert 3500 < machine.rescued_with["expiresInS"] <= 3600
            waiting = (await life.site.operation(operation_id)).waiting_for
            assert waiting is not None
            assert waiting.startswith("failed cpu: core 7 computed wrongly 3 times; held for ")
            assert f"ssh engineer@{machine.address}" in waiting
            await life.site.settle()
            node = await life.node(node_id)
            assert node.last_error is not None
            assert node.last_error["code"] == "hardware-test"
            assert life.site.clock.now() - began >= 3600 * SECOND
            assert not machine.running.on
            assert machine.tasks.count("erase:plant") == 0

    asyncio.run(run())


def test_an_abort_ends_the_hold(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path, commission=HELD) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.COMMISSION)
            machine.tests["cpu"] = BROKEN
            operation_id = await life.begin(node_id, Verb.COMMISSION)
            await life.until(lambda: machine.rescued_with is not None)
            began = life.site.clock.now()
            audit = life.site.audit("abort", node_id)
            await life.site.store.write(operations.request_abort, node_id, "key:test", audit, [], began)
            await life.site.settle()
            assert (await life.site.operation(operation_id)).status == "aborted"
            assert await life.site.state(node_id) is State.COMMISSION_FAILED
            assert not machine.running.on
            assert machine.record.media is None
            assert life.site.clock.now() - began < 600 * SECOND

    asyncio.run(run())


def test_a_foreign_machine_that_runs_is_not_switched_off_to_be_looked_at(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine, network_only = life.add("m1"), life.add("m2", "ipmi")
            for one in (machine, network_only):
                one.record.set_power(PowerAction.ON)
            node_id = await life.enroll("m1")
            message = await life.failed(node_id, Verb.INSPECT, "machine-is-on", deep=True)
            assert "commission it" in message

            other_id = await life.enroll("m2")  # where it would be looked at from inside by default
            assert await life.live(other_id, Verb.INSPECT) is State.INSPECTED
            assert (await life.site.conditions(other_id))["agent"] == ("warning", "not-inspected-deep")
            await life.failed(other_id, Verb.INSPECT, "machine-is-on", deep=True)
            for one in (machine, network_only):
                assert (one.running.on, len(one.record.boots), one.tasks) == (True, 1, [])

            network_only.record.set_power(PowerAction.OFF)  # by its owner
            assert await life.live(other_id, Verb.INSPECT) is State.INSPECTED
            assert network_only.tasks == ["inventory"]
            assert "agent" not in await life.site.conditions(other_id)

    asyncio.run(run())


def test_a_rescue_whose_time_is_over_is_ended_by_the_sweep(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine, site = life.add("m1"), life.site
            node_id = await live_before(life, "m1", Verb.RESCUE)
            assert await life.live(node_id, Verb.RESCUE, sshKeys=list(KEYS), expiresAfterS=1800) is State.RESCUED
            assert machine.rescued_with is not None
            assert machine.rescued_with["expiresInS"] == 1800
            rescue = await site.store.read(rescues.of, node_id)
            assert rescue is not None
            assert rescue.ends_at is not None
            site.clock.skip_to(Micros(rescue.ends_at - 60 * SECOND))
            await expire(site.engine.doors, "test-daemon")
            await site.settle()
            assert await site.state(node_id) is State.RESCUED
            site.clock.skip_to(Micros(rescue.ends_at + SECOND))
            await expire(site.engine.doors, "test-daemon")
            assert await site.state(node_id) is State.UNRESCUING
            assert await finish(life, node_id, LIFE[4]) == []
            await life.turn()
            assert (machine.runs, machine.agent, machine.record.media) == (machine.disks[0].serial, None, None)

    asyncio.run(run())


def test_a_second_rescue_of_a_rescued_machine_opens_it_to_whom_it_names_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", Verb.UNRESCUE)
            assert (machine.rescued_with or {}).get("passwordHash") == CRYPTED
            other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC other@there"
            assert await life.live(node_id, Verb.RESCUE, sshKeys=[other]) is State.RESCUED
            assert machine.rescued_with is not None
            assert machine.rescued_with["sshKeys"] == [other]
            assert "passwordHash" not in machine.rescued_with

    asyncio.run(run())
