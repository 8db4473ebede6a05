"""A site whose machines run: the emulated rack and engine, the media listener with its boot tokens, the agents' door, and machines on them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from pydantic import SecretStr

from agent_life.disks import BLOCK, Disk
from agent_life.machine import GIB, TOKEN_AT, Running, SimulatedMachine
from bcmetal.api.agents import AgentDoor, AgentServices
from bcmetal.api.joining import JoinServices, build_join_app
from bcmetal.api.verbs import params_of
from bcmetal.decisions import Micros, confirmation_of
from bcmetal.engine import Engine
from bcmetal.join.ca import pem_of
from bcmetal.states import ERASING, State, Verb
from bcmetal.store import agent_tasks, claims, outbox
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.store.values import NodeRow, OperationRow
from bcmetal.workflows.handing import Handing
from bcmetal_agent import boot_token
from bcmetal_drivers.emulated import hardware
from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.rack import EmulatedBmc
from crash.effects import Crashed
from emulated_site import Site, a_site, iso_server
from emulated_site_config import POOL
from in_process import Answered, answer_of
from join import authority

DISK_BYTES: Final = 64 * GIB
METHODS: Final = '["nvme-crypto", "ata-crypto", "overwrite"]'
IMAGE: Final = b"\xeb\x63\x90".ljust(510, b"\0") + b"\x55\xaa" + b"a system's own bytes ".ljust(64, b".") * 1000
IMAGE_SHA256: Final = hashlib.sha256(IMAGE).hexdigest()
MORE: Final = """
[images.system]
url = "{url}/system.raw"
sha256 = "{sha256}"
format = "raw"

[profiles.release.waived]
erase = {methods}
unerased = "waiver"
"""
TESTS: Final = 'tests = {clock = true, disks = "smart", cpu_s = 60}'


def make_ramdisk(folder: Path) -> Path:
    """What `bcmetal ramdisk build` leaves, as far as the daemon reads it; nothing in it boots."""
    folder.mkdir()
    iso = bytearray(os.urandom(TOKEN_AT)) + boot_token.placeholder() + os.urandom(3000)
    files = {
        "bcmetal.iso": bytes(iso),
        "vmlinuz": os.urandom(2000),
        "initrd": os.urandom(3000),
        "bcmetal.efi": b"MZ" + os.urandom(100),
        "sbom.json": b"[]\n",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    manifest = {
        "format": "bcmetal-ramdisk/1",
        "commandLine": "console=tty0 quiet",
        "tokenOffset": TOKEN_AT,
        "tokenLength": boot_token.SIZE,
        "files": {
            name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
        },
    }
    (folder / "ramdisk.json").write_text(json.dumps(manifest))
    return folder


@dataclass
class LifeSite:
    """`bmcs` and `machines` by the same names. `asleep`: the machines' software does nothing, as while the daemon is down."""

    site: Site
    folder: Path
    roots: tuple[str, ...]
    media_url: str
    machines: dict[str, SimulatedMachine] = field(default_factory=dict)
    bmcs: dict[str, EmulatedBmc] = field(default_factory=dict)
    asleep: bool = False
    answered: list[tuple[str, int]] = field(default_factory=list)
    _app: tuple[Engine, FastAPI] | None = None

    # -------------------------------------------------------- machines

    def add(self, name: str, kind: str = "redfish", disks: int = 2) -> SimulatedMachine:
        maker = hardware.MAKERS["generic" if kind == "redfish" else "supermicro"]
        rack = self.site.rack
        drives = hardware.drives(rack.seed, name, "1", disks, maker)
        for drive in drives.values():
            drive.capacity_bytes = DISK_BYTES
        slots = ("Cd",) if kind == "redfish" else ()
        folder = self.folder / f"body-{name}"
        folder.mkdir()
        running = Running(folder, slots)
        record = Machine(hardware.hardware(rack.seed, name, "1", name, maker), drives, rack.clock, body=running)
        found = [
            Disk(f"sd{chr(97 + n)}", one.serial, DISK_BYTES, one.wwn, one.model)
            for n, one in enumerate(drives.values())
        ]
        number = len(self.machines) + 10
        machine = SimulatedMachine(record, running, found, f"127.0.0.{number}", self.media_url)
        self.machines[name] = machine
        self.bmcs[name] = (
            rack.add_redfish(name, machine=record) if kind == "redfish" else rack.add_ipmi(name, machine=record)
        )
        rack.start()
        return machine

    async def enroll(self, name: str) -> str:
        bmc = self.bmcs[name]
        node_id = await self.site.enroll(bmc)
        if bmc.kind == "ipmi":  # IPMI tells no MAC of the machine's
            await self.site.set_node(node_id, boot_mac=bmc.machine.macs[0])
        return node_id

    async def turn(self) -> None:
        """A moment of every machine's software."""
        if not self.asleep:
            for machine in self.machines.values():
                await machine.turn(self.line)

    # -------------------------------------------------------- the agents' door

    def app(self) -> FastAPI:
        """As the daemon makes it; anew after a restart."""
        engine = self.site.engine
        if self._app is None or self._app[0] is not engine:
            doors, settings = engine.doors, engine.doors.settings
            joining = JoinServices(
                store=doors.store,
                settings=settings,
                authority=lambda: None,
                vendors=lambda: (),
                clock=doors.clock.now,
                entropy=doors.entropy,
                wake=engine.wake,
            )
            door = AgentServices(
                store=doors.store,
                settings=settings,
                clock=doors.clock.now,
                entropy=doors.entropy,
                wake=engine.wake,
                images=doors.shelf.folder,
                prepare=Handing(doors, lambda: self.roots).prepare(),
                poll_s=0.0,
            )
            self._app = (engine, build_join_app(joining, AgentDoor(door)))
        return self._app[1]

    async def line(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], address: str
    ) -> Answered | None:
        """One call of an agent. None: the daemon died before it answered."""
        try:
            answer = await answer_of(self.app(), path, body, headers, method=method, address=address, stays=True)
        except Crashed:
            return None
        self.answered.append((path, answer.status))
        return answer

    # -------------------------------------------------------- verbs

    async def begin(
        self, node_id: str, verb: Verb, secrets: Mapping[str, SecretStr] | None = None, **given: Any
    ) -> str:
        """As the API would; the operation's id. What destroys data is confirmed."""
        row = await self.site.node(node_id)
        if verb in ERASING or verb is Verb.DEPLOY:
            given.setdefault("confirmErase", confirmation_of(row.facts))
        pool = self.site.settings.pools[POOL]
        params = params_of(verb, given, self.site.settings, pool)
        return await self.site.start(node_id, verb, params, secrets, **given)

    async def live(
        self, node_id: str, verb: Verb, secrets: Mapping[str, SecretStr] | None = None, **given: Any
    ) -> State:
        """Through to its end."""
        await self.begin(node_id, verb, secrets, **given)
        await self.site.settle()
        return await self.site.state(node_id)

    async def failed(self, node_id: str, verb: Verb, code: str, **given: Any) -> str:
        """See it fail by this code; the message."""
        state = await self.live(node_id, verb, **given)
        error = (await self.node(node_id)).last_error
        assert error is not None, f"{verb} did not fail: it is {state}"
        assert error["code"] == code, error
        return str(error["message"])

    async def until(self, met: Callable[[], bool], turns: int = 3000) -> None:
        """Run the engine and the machines until something shows."""
        for _ in range(turns):
            if met():
                return
            assert await self.site.advance(), "nothing is due, and it did not come to that"
        raise AssertionError("it did not come to that")

    async def up_to_step(self, operation_id: str, step: str) -> OperationRow:
        return await self.site.up_to(operation_id, lambda _, at: at == step)

    # -------------------------------------------------------- what is stored

    async def node(self, node_id: str) -> NodeRow:
        return await self.site.node(node_id)

    async def tasks(self, operation_id: str) -> dict[str, AgentTaskRow]:
        return {one.name: one for one in await self.site.store.read(agent_tasks.every, operation_id)}

    async def events(self, type_: str) -> list[Mapping[str, Any]]:
        await self.site.store.write(outbox.deliver, 100_000)
        return [one.data for one in await self.site.store.read(outbox.since, 0, 100_000) if one.type == type_]

    async def restart(self) -> None:
        await self.site.restart()
        await self.site.store.write(claims.clear_own, "")

    def plant(self, name: str) -> bytes:
        """The tenant writes to every disk; what it wrote."""
        secret = os.urandom(64)
        for disk in self.machines[name].disks:
            for at in (0, 7 * BLOCK, disk.size_bytes // 2 // BLOCK * BLOCK, disk.size_bytes - BLOCK):
                disk.write(at, secret)
        return secret

    def plant_beside(self, name: str) -> bytes:
        """The system that runs writes to each disk, behind its own blocks; what it wrote."""
        secret = os.urandom(64)
        for disk in self.machines[name].disks:
            disk.write(disk.size_bytes // 2 // BLOCK * BLOCK, secret)
        return secret

    def holding(self, name: str, secret: bytes) -> list[str]:
        return [disk.serial for disk in self.machines[name].disks if disk.holds(secret)]


@asynccontextmanager
async def a_life_site(
    folder: Path, *, erase: str = METHODS, commission: str = "", release: str = "", more: str = ""
) -> AsyncIterator[LifeSite]:
    """`commission`, `release`: lines of the pool's profiles. `more`: tables."""
    roots = tuple(pem_of([authority.a_site(Micros(1_700_000_000_000_000)).root.certificate]).splitlines(keepends=True))
    with iso_server(IMAGE) as url:
        tables = MORE.format(url=url, sha256=IMAGE_SHA256, methods=METHODS) + more
        places = {"commission": commission, "release": release, "more": tables}
        ramdisk = await asyncio.to_thread(make_ramdisk, folder / "ramdisk")
        async with a_site(folder, erase=erase, ramdisk=ramdisk, places=places) as site:
            media_url = site.settings.networks["bmc"].media_url
            assert media_url is not None
            life = LifeSite(site, folder, ("".join(roots),), media_url)
            site.beside.append(life.turn)
            yield life
