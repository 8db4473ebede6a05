"""The machine behind a BMC of the rack, as qemu runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from bcmetal_drivers.emulated.machine import CD, EmulatedDrive, Hardware, Machine
from bcmetal_drivers.resources import BootDevice, BootMode
from machine.disks import Disk, DiskKind
from machine.virtual_machine import CPU_MODEL, MachineSpec, Source, VirtualMachine

# what the firmware goes on with when the first does not boot
ORDERS: Final[Mapping[BootDevice, tuple[Source, ...]]] = {
    BootDevice.CD: (Source.CD, Source.DISK),
    BootDevice.PXE: (Source.NET, Source.DISK),
    BootDevice.DISK: (Source.DISK,),
}
PROTOCOLS: Final = {DiskKind.NVME: "NVMe", DiskKind.ATA: "SATA", DiskKind.SCSI: "SAS", DiskKind.VIRTIO: "PCIe"}


class QemuBody:
    """One machine of qemu's, which does what its record in the rack says. `machine` is that record."""

    slots = (CD,)

    def __init__(self, spec: MachineSpec, folder: Path) -> None:
        self.vm = VirtualMachine(spec, folder, self._reboots)
        self.machine: Machine
        self._medium: Path | None = None

    @property
    def folder(self) -> Path:
        return self.vm.folder

    def is_on(self) -> bool:
        return self.vm.is_on()

    def start(self, device: BootDevice, mode: BootMode) -> None:
        """Legacy boot there is none: the firmware is UEFI, whatever the mode."""
        order = self._order(device)
        if self.vm.is_on():
            self.vm.reset(order)
        else:
            self.vm.power_on(order)

    def stop(self) -> None:
        self.vm.power_off()

    def press_power_button(self) -> None:
        self.vm.press_power_button()

    def nmi(self) -> None:
        self.vm.nmi()

    def load(self, slot: str, file: Path | None) -> None:
        self.vm.change_medium(file)
        if self._medium is not None:
            self._medium.unlink()
        self._medium = file

    def _reboots(self) -> Sequence[Source]:
        return self._order(self.machine.reset_itself())

    def _order(self, device: BootDevice) -> Sequence[Source]:
        return ORDERS.get(device, self.vm.spec.boots_from)


def hardware_of(spec: MachineSpec) -> Hardware:
    """What its BMC says of it, which is what its firmware tells the system."""
    return Hardware(
        name=spec.name,
        system_id="1",
        uuid=UUID(spec.uuid),
        serial=spec.serial,
        board_serial=spec.chassis_serial or spec.serial,
        sku="",
        part_number="",
        manufacturer=spec.manufacturer,
        model=spec.model,
        macs=(spec.mac,),
        cpus=1,
        cores=1,
        memory_gib=spec.memory_mib // 1024,
        dimm_mib=spec.memory_mib,
        cpu_maker="QEMU",
        cpu_model=CPU_MODEL,
        threads_per_core=1,
    )


def drive_of(disk: Disk) -> EmulatedDrive:
    media = "HDD" if disk.rotational else "SSD"
    model = "QEMU NVMe Ctrl" if disk.kind is DiskKind.NVME else disk.model
    return EmulatedDrive(
        disk.serial, model, disk.size_bytes, media, disk.wwn, protocol=PROTOCOLS[disk.kind], manufacturer="QEMU"
    )
