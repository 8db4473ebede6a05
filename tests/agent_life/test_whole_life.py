"""A machine's whole life by the agent, over virtual media and over the network: what each verb leaves, judged by the machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import SecretStr

from agent_life.site import IMAGE, TESTS, LifeSite, a_life_site
from bcmetal.states import Disks, State, Verb
from bcmetal.store import drives, rescues
from bcmetal_drivers.resources import BootDevice, PowerState

ERASED = ["erase:inspect", "erase:plant", "erase:erase", "erase:verify"]
KEYS = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB me@there"]


@pytest.mark.parametrize("kind", ["redfish", "ipmi"])
def test_a_machine_lives_from_its_first_look_to_its_end(kind: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path, commission=TESTS) as life:
            await _a_life(life, kind)

    asyncio.run(run())


async def _a_life(life: LifeSite, kind: str) -> None:
    machine = life.add("m1", kind)
    site, root = life.site, machine.disks[0]
    node_id = await life.enroll("m1")
    found = life.plant("m1")

    assert await life.live(node_id, Verb.INSPECT, deep=True) is State.INSPECTED, (await life.node(node_id)).last_error
    assert machine.tasks == ["inventory"]
    assert life.holding("m1", found) == [disk.serial for disk in machine.disks]
    assert _off(life)
    known = {row.serial for row in await site.store.read(drives.of_node, node_id)}
    assert known == {disk.serial for disk in machine.disks}

    machine.tasks.clear()
    assert await life.live(node_id, Verb.COMMISSION) is State.AVAILABLE, (await life.node(node_id)).last_error
    assert machine.tasks == ["inventory", "test", "test", "test", *ERASED]
    assert life.holding("m1", found) == []
    assert [disk.blocks for disk in machine.disks] == [{}, {}]
    assert _off(life)
    assert (await life.node(node_id)).facts.disks is Disks.CLEAN

    machine.tasks.clear()
    given = {"image": {"name": "system"}, "kind": "image", "sshKeys": KEYS}
    secrets = {"user-data": SecretStr("#cloud-config\n# of the tenant\n")}
    assert await life.live(node_id, Verb.DEPLOY, secrets, **given) is State.DEPLOYED, (
        await life.node(node_id)
    ).last_error
    assert machine.tasks == ["inventory", "writeImage", "writeConfigDrive", "setBoot"]
    assert root.read(0, len(IMAGE)) == IMAGE
    assert root.config_drive is not None
    assert b"# of the tenant" in root.config_drive
    assert machine.boot_entry == root.serial
    assert machine.disks[1].blocks == {}
    await life.turn()
    assert machine.runs == root.serial
    assert machine.record.media is None
    secret = life.plant_beside("m1")

    machine.tasks.clear()
    crypted = {"password-hash": SecretStr("$y$j9T$abc$def")}
    state = await life.live(node_id, Verb.RESCUE, crypted, sshKeys=KEYS, passwordHash=True)
    assert state is State.RESCUED, (await life.node(node_id)).last_error
    assert machine.tasks == ["rescue"]
    assert machine.rescued_with is not None
    assert machine.rescued_with["sshKeys"] == KEYS
    assert machine.rescued_with["passwordHash"] == "$y$j9T$abc$def"
    assert root.read(0, len(IMAGE)) == IMAGE
    rescue = await site.store.read(rescues.of, node_id)
    assert rescue is not None
    assert rescue.ready is not None
    assert rescue.ready["addresses"] == [machine.address]

    assert await life.live(node_id, Verb.UNRESCUE) is State.DEPLOYED, (await life.node(node_id)).last_error
    await life.turn()
    assert (machine.runs, machine.agent, machine.record.media) == (root.serial, None, None)

    machine.tasks.clear()
    assert await life.live(node_id, Verb.RELEASE) is State.AVAILABLE, (await life.node(node_id)).last_error
    assert machine.tasks == ["inventory", *ERASED]
    assert life.holding("m1", secret) == []
    assert [disk.blocks for disk in machine.disks] == [{}, {}]
    assert _off(life)
    records = await site.erasure_records(node_id)
    assert [one["verifier"] for one in records] == ["daemon"] * 4

    machine.tasks.clear()
    assert await life.live(node_id, Verb.RETIRE) is State.RETIRED, (await life.node(node_id)).last_error
    assert machine.tasks == []
    assert _off(life)


def _off(life: LifeSite) -> bool:
    machine = life.machines["m1"].record
    return machine.power is PowerState.OFF and machine.media is None and machine.override.device is BootDevice.NONE
