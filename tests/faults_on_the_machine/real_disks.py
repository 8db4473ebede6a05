"""A machine of the simulated rack whose disks are loop devices, and whose agent does to them what the real one does.

The image, the config drive and the erase are the agent's own tasks, over the real door: what a fault leaves on a disk is what a real one
would be left with. Beside the disks of the plan it has one that no plan names.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from agent_life.agent import Failing, Line, RamdiskAgent
from agent_life.machine import SimulatedMachine
from agent_life.site import LifeSite
from bcmetal.states import Disks, State, Verb
from bcmetal_agent import wire_tasks
from bcmetal_agent.tasks.config_partition import write_config_drive
from bcmetal_agent.tasks.disks import Where, devices, resolve
from bcmetal_agent.tasks.doing import Readable, TaskFailed
from bcmetal_agent.tasks.erase import erase
from bcmetal_agent.tasks.write_image import write_image
from bcmetal_agent.wire_inventory import Disk as Shown
from bcmetal_agent.wire_inventory import Inventory
from bcmetal_agent.wire_tasks import SetBoot, WriteImageParams, WroteImage
from bcmetal_drivers.emulated.disks import FakeDisk, Kind
from bcmetal_drivers.resources import BootDevice
from erase_bench import Recorder
from image_bench import QUICK, ImageBench
from in_process import Answered
from machine_images import Part, write_disk

MIB: Final = 1 << 20
NOTE: Final = b"this was here before, and is nobody's to write to ".ljust(512, b".")
NOTED: Final = (0, 5 * MIB)  # where it is, and once more at the disk's end


def note(disk: FakeDisk) -> None:
    with disk.node.open("r+b") as file:
        for at in (*NOTED, disk.size_bytes - len(NOTE)):
            file.seek(at)
            file.write(NOTE)
        file.flush()
        os.fsync(file.fileno())


def noted(disk: FakeDisk) -> bool:
    """Whether the notes are all there still."""
    with disk.node.open("rb") as file:
        return all(_read(file, at) == NOTE for at in (*NOTED, disk.size_bytes - len(NOTE)))


def _read(file: Any, at: int, size: int = len(NOTE)) -> bytes:
    file.seek(at)
    return bytes(file.read(size))


def starts_nothing(disk: FakeDisk) -> bool:
    """Neither boot sector nor partition table, at neither end."""
    with disk.node.open("rb") as file:
        return not any(_read(file, 0, MIB)) and not any(_read(file, disk.size_bytes - MIB, MIB))


def holds(disk: FakeDisk, image: bytes) -> bool:
    """All of it but its partition table, which is moved to the disk's size, and where a config drive lies behind it."""
    with disk.node.open("rb") as file:
        return _read(file, MIB, len(image) - 2 * MIB) == image[MIB:-MIB]


def a_system(folder: Path) -> bytes:
    """An image with a partition table, and nothing in its one partition that would start."""
    content, image = folder / "root", folder / "system.raw"
    content.write_bytes(os.urandom(2 * MIB))
    write_disk(image, [Part(uuid.UUID("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"), "root", content)])
    return image.read_bytes()


class _Part:
    """What came of the image in one answer, which may be less than it said."""

    def __init__(self, answer: Answered) -> None:
        self._left = answer.raw
        self._missing = int(answer.headers["content-length"]) - len(answer.raw)

    def read(self, size: int, /) -> bytes:
        chunk, self._left = self._left[:size], self._left[size:]
        if not chunk and self._missing:
            raise OSError(f"the server broke off with {self._missing} bytes still to come")
        return chunk


class RealAgent(RamdiskAgent):
    """`machine` is a RealMachine."""

    async def _write_image(self, line: Line, params: WriteImageParams) -> WroteImage:
        loop, machine = asyncio.get_running_loop(), of(self.machine)

        @contextmanager
        def door(offset: int) -> Iterator[Readable]:
            answer = asyncio.run_coroutine_threadsafe(self._part(line, offset), loop).result(30)
            if answer is None:
                raise OSError("no answer")
            yield _Part(answer)

        try:
            return await asyncio.to_thread(write_image, params, machine.recorder, door, machine.where, QUICK)
        except TaskFailed as error:
            raise Failing(error.code, str(error)) from error

    async def _part(self, line: Line, offset: int) -> Answered | None:
        async def ranged(
            method: str, path: str, body: bytes, headers: Mapping[str, str], address: str
        ) -> Answered | None:
            answer = await line(method, path, body, {**headers, "Range": f"bytes={offset}-"}, address)
            part = answer is not None and answer.status == 206
            return Answered(200, answer.headers, answer.raw) if answer is not None and part else answer

        return await self.call(ranged, "GET", wire_tasks.IMAGE_PATH)

    def _do(self, kind: str, params: Any) -> Any:
        machine = of(self.machine)
        try:
            if kind == "erase":
                return erase(params, machine.recorder, machine.where)
            if kind == "writeConfigDrive":
                return write_config_drive(params, machine.recorder, machine.where)
            if kind == "setBoot":
                machine.boot_entry = resolve(params.disk, machine.where).serial or ""
                return SetBoot(entry="0003")
        except TaskFailed as error:
            raise Failing(error.code, str(error)) from error
        return super()._do(kind, params)


class RealMachine(SimulatedMachine):
    """`through`: what lies between its agent and the door. `on_start`: called as it starts. `chooses`: what it starts from, of what it was
    told to. `reads`: the token that is on its medium → the one that its agent has."""

    def __init__(self, plain: SimulatedMachine, bench: ImageBench) -> None:
        super().__init__(plain.record, plain.running, plain.disks, plain.address, plain.network_boot)
        self.bench = bench
        self.where: Where = bench.where
        self.recorder = Recorder()
        self.through: Callable[[Line], Line] = lambda line: line
        self.on_start: Callable[[], None] = lambda: None
        self.chooses: Callable[[BootDevice], BootDevice] = lambda device: device
        self.reads: Callable[[str], str] = lambda token: token
        self.planned: list[FakeDisk] = []

    async def turn(self, line: Line) -> None:
        await super().turn(self.through(line))

    async def _boot(self, device: BootDevice) -> None:
        self.on_start()
        await super()._boot(self.chooses(device))
        if self.agent is not None:
            self.agent = RealAgent(self, self.reads(self.agent.token))

    def inventory(self) -> Inventory:
        seen = super().inventory()
        disks = tuple(
            Shown(
                name=one.name,
                size_bytes=one.size_bytes,
                serial=one.serial,
                wwn=one.wwn,
                model=one.model,
                transport=one.transport,
                rotational=one.rotational,
                removable=one.removable,
                shared=one.shared,
                virtual_medium=one.virtual_medium,
            )
            for one in devices(self.where)
        )
        return replace(seen, disks=disks)


def of(machine: SimulatedMachine) -> RealMachine:
    assert isinstance(machine, RealMachine)
    return machine


def a_real_machine(
    life: LifeSite,
    bench: ImageBench,
    *sizes: int,
    name: str = "m1",
    kind: Kind = Kind.ATA,
    folder: Path | None = None,
    **state: Any,
) -> RealMachine:
    """`sizes`: of the disks that its BMC knows too. `folder`: of the first disk's file. `state`: of the disks, see `Cabinet.add`."""
    machine = RealMachine(life.add(name, disks=len(sizes)), bench)
    life.machines[name] = machine
    for n, (size, drive, simulated) in enumerate(
        zip(sizes, machine.record.drives.values(), machine.disks, strict=True)
    ):
        node = bench.loop(bench.file(size, folder if n == 0 else None))
        disk = bench.cabinet.add(kind, node, drive.serial, model=drive.model, wwn=drive.wwn, **state)
        drive.capacity_bytes = simulated.size_bytes = size
        machine.planned.append(disk)
    return machine


async def ready_to_deploy(life: LifeSite, name: str = "m1") -> str:
    """A node as after its commission; its id. The site's profile erases nothing, for that is tested elsewhere."""
    node_id = await life.enroll(name)
    assert await life.live(node_id, Verb.INSPECT) is State.INSPECTED
    assert await life.live(node_id, Verb.COMMISSION) is State.AVAILABLE
    await life.site.set_node(node_id, disks=Disks.CLEAN)
    return node_id
