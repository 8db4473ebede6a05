"""What the agent sees from inside the machine, as a message. What cannot be read is absent; a section that failed is named in `notes`.

Sources: sysfs, procfs, SMBIOS tables, EFI variables, the kernel's log, LLDP, the GPUs' tools.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from bcmetal_agent.wire import AtMost, Identifiers, Json, Word

Name = Annotated[str, AtMost(256)]
Path = Annotated[str, AtMost(512)]
Line = Annotated[str, AtMost(1000)]


@dataclass(frozen=True)
class Cpu:
    """One package (socket)."""

    socket: int
    model: Name | None = None
    maker: Name | None = None
    cores: int | None = None
    threads: int | None = None
    max_mhz: int | None = None
    microcode: Word | None = None
    flags: Annotated[tuple[Annotated[str, AtMost(64)], ...], AtMost(512)] = ()


@dataclass(frozen=True)
class Dimm:
    """One slot that holds a module."""

    slot: Name
    size_bytes: int | None = None
    type: Word | None = None
    speed_mts: int | None = None
    maker: Name | None = None
    part: Name | None = None
    serial: Name | None = None


@dataclass(frozen=True)
class Disk:
    """A whole block device that could hold a system. `transport`: nvme, ata, sas, scsi, virtio, usb, mmc, fc, iscsi, nvme-of.

    `shared`: it is reached over a fabric, so that other machines may see it too. `health`: ok, failing or unknown."""

    name: Word
    size_bytes: int
    serial: Word | None = None
    wwn: Word | None = None
    model: Name | None = None
    firmware: Word | None = None
    transport: Word | None = None
    rotational: bool | None = None
    removable: bool = False
    read_only: bool = False
    shared: bool = False
    virtual_medium: bool = False
    block_bytes: int = 512
    by_id: Annotated[tuple[Path, ...], AtMost(16)] = ()
    by_path: Path | None = None
    health: Word | None = None
    health_detail: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Neighbour:
    """What LLDP told of the other end of the cable."""

    chassis: Name | None = None
    system: Name | None = None
    port: Name | None = None
    port_description: Name | None = None
    vlans: Annotated[tuple[int, ...], AtMost(64)] = ()


@dataclass(frozen=True)
class Nic:
    name: Word
    mac: Annotated[str, AtMost(17)] | None = None
    permanent_mac: Annotated[str, AtMost(17)] | None = None
    driver: Word | None = None
    firmware: Word | None = None
    pci: Word | None = None
    model: Name | None = None
    speed_mbps: int | None = None
    carrier: bool | None = None
    addresses: Annotated[tuple[Annotated[str, AtMost(64)], ...], AtMost(32)] = ()
    neighbour: Neighbour | None = None


@dataclass(frozen=True)
class Gpu:
    pci: Word
    maker: Name | None = None
    model: Name | None = None
    uuid: Word | None = None
    memory_bytes: int | None = None
    serial: Word | None = None


@dataclass(frozen=True)
class PciDevice:
    address: Word
    vendor_id: Annotated[str, AtMost(8)]
    device_id: Annotated[str, AtMost(8)]
    class_id: Annotated[str, AtMost(8)]
    subsystem: Annotated[str, AtMost(16)] | None = None
    driver: Word | None = None
    numa_node: int | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    link_speed: Word | None = None
    link_speed_max: Word | None = None


@dataclass(frozen=True)
class NumaNode:
    node: int
    cpus: Word
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Tpm:
    version: Word | None = None
    maker: Word | None = None
    firmware: Word | None = None


@dataclass(frozen=True)
class Firmware:
    """`boot_mode`: uefi or legacy. `secure_boot`: absent where the firmware does not tell."""

    maker: Name | None = None
    version: Name | None = None
    date: Word | None = None
    boot_mode: Word | None = None
    secure_boot: bool | None = None


@dataclass(frozen=True)
class Board:
    maker: Name | None = None
    product: Name | None = None
    serial: Name | None = None
    sku: Name | None = None
    board_maker: Name | None = None
    board_product: Name | None = None
    board_serial: Name | None = None
    chassis_serial: Name | None = None


@dataclass(frozen=True)
class Inventory:
    """`complaints`: what the kernel logged at level err and above, its worst lines. `notes`: section → why it is empty or partial."""

    identifiers: Identifiers
    board: Board = field(default_factory=Board)
    firmware: Firmware = field(default_factory=Firmware)
    cpus: Annotated[tuple[Cpu, ...], AtMost(64)] = ()
    memory_bytes: int | None = None
    dimms: Annotated[tuple[Dimm, ...], AtMost(256)] = ()
    disks: Annotated[tuple[Disk, ...], AtMost(512)] = ()
    nics: Annotated[tuple[Nic, ...], AtMost(128)] = ()
    gpus: Annotated[tuple[Gpu, ...], AtMost(64)] = ()
    numa: Annotated[tuple[NumaNode, ...], AtMost(128)] = ()
    pci: Annotated[tuple[PciDevice, ...], AtMost(1024)] = ()
    tpm: Tpm | None = None
    kernel: Name | None = None
    complaints: Annotated[tuple[Line, ...], AtMost(64)] = ()
    notes: Json = field(default_factory=dict)
