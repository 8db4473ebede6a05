"""A machine of the emulated rack that runs: what it booted, its disks, and the agent that runs on it while it is in the ramdisk.

Its BMC is the rack's, so power, media and boot overrides are real. Software on it lives from one start to the next power-off or reset.
"""

from __future__ import annotations

import asyncio
import http.client
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from agent_life.agent import Line, RamdiskAgent
from agent_life.disks import Disk
from bcmetal_agent import boot_token, wire
from bcmetal_agent.wire_inventory import Board, Cpu, Inventory, Nic
from bcmetal_agent.wire_inventory import Firmware as FirmwareSeen
from bcmetal_agent.wire_tasks import Task, TestResult
from bcmetal_drivers.emulated.machine import CD, Hardware, Machine
from bcmetal_drivers.resources import BootDevice, BootMode

TOKEN_AT: Final = 40_960  # in the test's medium
GIB: Final = 2**30
_INITRD: Final = re.compile(r"initrd --name initrd (/boot/initrd/[0-9a-z]{16})")
_KERNEL: Final = re.compile(r"kernel (/boot/kernel/[0-9a-z]{16})")
_MARK: Final = b"bcmetal-boot-token/1\n"


class Running:
    """What the BMC switches: `bcmetal_drivers.emulated.machine.Body`, called from the BMC's threads."""

    def __init__(self, folder: Path, slots: tuple[str, ...]) -> None:
        self._folder = folder
        self._slots = slots
        self.on = False
        self.starts = 0  # power-ons, resets and power-offs: what ran before one of them does not run after it
        self.device = BootDevice.NONE
        self.medium: Path | None = None

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def slots(self) -> tuple[str, ...]:
        return self._slots

    def is_on(self) -> bool:
        return self.on

    def start(self, device: BootDevice, mode: BootMode) -> None:
        self.device, self.on, self.starts = device, True, self.starts + 1

    def stop(self) -> None:
        self.on, self.starts = False, self.starts + 1

    def press_power_button(self) -> None:
        self.stop()

    def nmi(self) -> None:
        """Nothing of it shows."""

    def load(self, slot: str, file: Path | None) -> None:
        if slot == CD:
            if self.medium is not None:
                self.medium.unlink(missing_ok=True)
            self.medium = file


@dataclass(slots=True)
class SimulatedMachine:
    """`doing`: asked before a task is done, and again each turn until it answers False: the task takes that long. `answers`: what the
    agent would answer → what it answers. `tests`: name → what it shows. `boots_agents` False: its ramdisk never calls."""

    record: Machine
    running: Running
    disks: list[Disk]
    address: str
    network_boot: str = ""  # where its firmware asks for iPXE
    tests: dict[str, TestResult] = field(default_factory=dict)
    doing: Callable[[Task], bool] = lambda task: False
    answers: Callable[[Task, Mapping[str, Any]], Mapping[str, Any]] = lambda task, answer: answer
    boots_agents: bool = True
    agent: RamdiskAgent | None = None
    boot_entry: str = ""
    rescued_with: Mapping[str, Any] | None = field(default=None, repr=False)
    tasks: list[str] = field(default_factory=list)  # kinds that were done, and the phases of erases
    runs: str = ""  # ramdisk, a disk's serial, or nothing
    _seen: int = 0

    @property
    def hardware(self) -> Hardware:
        return self.record.hardware

    def disk(self, serial: str) -> Disk:
        return next(one for one in self.disks if one.serial == serial)

    def crash(self) -> None:
        """Somebody holds the power button, then presses it."""
        self.running.stop()
        self.record.settle()

    async def turn(self, line: Line) -> None:
        """A moment of what runs on it."""
        running = self.running
        if self._seen != running.starts:
            starts = running.starts
            self.agent, self.runs, self.rescued_with = None, "", None
            if running.on:
                await self._boot(running.device)
            self._seen = starts
        if self.agent is not None and running.on:
            await self.agent.turn(line)

    async def _boot(self, device: BootDevice) -> None:
        token = None
        if device is BootDevice.CD and self.running.medium is not None:
            raw = self.running.medium.read_bytes()
            token = _token_in(raw[TOKEN_AT : TOKEN_AT + boot_token.SIZE])
            self.runs = "ramdisk"
        elif device is BootDevice.PXE:
            token = await asyncio.to_thread(self._from_the_network)
            self.runs = "ramdisk" if token is not None else self._own_system()
        else:
            self.runs = self._own_system()
        if token is not None and self.boots_agents:
            self.agent = RamdiskAgent(self, token)

    def _own_system(self) -> str:
        bootable = [one for one in self.disks if 0 in one.blocks]
        first = [one for one in bootable if one.serial == self.boot_entry] or bootable
        return first[0].serial if first else ""

    def _from_the_network(self) -> str | None:
        """As iPXE: the script for each MAC in turn, then the kernel and the initrd that it names."""
        for mac in self.hardware.macs:
            script = self._fetched(f"/boot/ipxe/{mac}").decode()
            initrd, kernel = _INITRD.search(script), _KERNEL.search(script)
            if initrd is not None and kernel is not None:
                self._fetched(kernel[1])
                raw = self._fetched(initrd[1])
                at = raw.find(_MARK)
                return _token_in(raw[at : at + boot_token.SIZE]) if at >= 0 else None
        return None

    def _fetched(self, path: str) -> bytes:
        parts = urlsplit(self.network_boot)
        line = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
        try:
            line.request("GET", path)
            answer = line.getresponse()
            body = answer.read()
            return body if answer.status == 200 else b""
        finally:
            line.close()

    # -------------------------------------------------------- what its agent sees

    def identifiers(self) -> wire.Identifiers:
        return wire.Identifiers(
            product_uuid=str(self.hardware.uuid), serial=self.hardware.serial, macs=self.hardware.macs
        )

    def inventory(self) -> Inventory:
        hardware = self.hardware
        cpu = Cpu(0, hardware.cpu_model, hardware.cpu_maker, hardware.cores, hardware.cores * hardware.threads_per_core)
        return Inventory(
            identifiers=self.identifiers(),
            board=Board(maker=hardware.manufacturer, product=hardware.model, serial=hardware.serial),
            firmware=FirmwareSeen(boot_mode=self.record.boot_mode.value),
            cpus=tuple(cpu for _ in range(hardware.cpus)),
            memory_bytes=hardware.memory_gib * GIB - GIB // 2,
            disks=tuple(disk.shown() for disk in self.disks),
            nics=tuple(Nic(f"eth{n}", mac=mac, permanent_mac=mac, carrier=True) for n, mac in enumerate(hardware.macs)),
        )


def _token_in(raw: bytes) -> str | None:
    """None: it is a template, or none at all, and whoever boots it calls nobody."""
    try:
        return boot_token.parse(raw)
    except boot_token.BadBootToken:
        return None
