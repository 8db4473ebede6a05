"""A rack of qemu machines: each with a BMC at an address of its own in the tests' network."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack
from machine.disks import Disk
from machine.rack.body import QemuBody, drive_of, hardware_of
from machine.rack.wire import BMCS, Wire
from machine.virtual_machine import MachineSpec, VirtualMachine

MEMORY_MIB: Final = 1024


class QemuRack:
    """The BMCs serve as soon as they are added, and the machines may run, until it is left. Made and used inside its wire."""

    def __init__(self, wire: Wire, folder: Path) -> None:
        self.wire = wire
        self.folder = folder
        self.rack = Rack()
        self._bodies: dict[str, QemuBody] = {}

    def add_redfish(self, name: str, disks: Sequence[Disk], *, memory_mib: int = MEMORY_MIB) -> EmulatedBmc:
        """A machine behind a BMC with virtual media. Its BMC erases nothing and does not know what is on a drive."""
        host, machine = self.wire.bmc_address(), self._machine(name, disks, memory_mib)
        bmc = self.rack.add_redfish(name, host=host, reach=BMCS, machine=machine, erase=False, volumes_shown=False)
        self.rack.start()
        return bmc

    def add_ipmi(self, name: str, disks: Sequence[Disk], *, memory_mib: int = MEMORY_MIB) -> EmulatedBmc:
        """A machine behind a BMC without virtual media."""
        host, machine = self.wire.bmc_address(), self._machine(name, disks, memory_mib)
        bmc = self.rack.add_ipmi(name, host=host, machine=machine)
        self.rack.start()
        return bmc

    def vm(self, name: str) -> VirtualMachine:
        """What is behind the BMC: its serial port, its disks' files, its reset button."""
        return self._bodies[name].vm

    def _machine(self, name: str, disks: Sequence[Disk], memory_mib: int) -> Machine:
        tail = ":".join(f"{byte:02x}" for byte in secrets.token_bytes(3))
        spec = MachineSpec(
            name=name, uuid=str(uuid.uuid4()), serial=f"SN{secrets.token_hex(4).upper()}", mac=f"00:1b:21:{tail}",
            disks=tuple(disks), tap=self.wire.tap(), namespace=str(self.wire.path), memory_mib=memory_mib,
        )  # fmt: skip
        body = QemuBody(spec, self.folder / name)
        drives = {disk.serial: drive_of(disk) for disk in disks}
        body.machine = Machine(hardware_of(spec), drives, self.rack.clock, body=body)
        self._bodies[name] = body
        return body.machine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.rack.stop()
        for body in self._bodies.values():
            body.stop()
