"""A made machine: its /sys, /proc and /dev as files, its SMBIOS tables, programs that say what a test wants, and what a task tells."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from bcmetal_agent.tasks.doing import Stopped
from bcmetal_agent.tasks.look_files import Machine


@dataclass
class Told:
    """A `Doing` that keeps what it is told, and asks to stop after so many checks."""

    stop_after: int = 10**9
    text: str = ""
    steps: list[tuple[int, str | None]] = field(default_factory=list)

    def progress(self, thousandths: int, message: str | None = None) -> None:
        self.steps.append((thousandths, message))

    def log(self, text: str) -> None:
        self.text += text

    def check(self) -> None:
        self.stop_after -= 1
        if self.stop_after < 0:
            raise Stopped


def a_structure(kind: int, handle: int, formatted: bytes, *strings: str) -> bytes:
    """One of DSP0134's: header, formatted part, strings, two zeros."""
    head = struct.pack("<BBH", kind, 4 + len(formatted), handle)
    return (
        head + formatted + (b"\0".join(one.encode() for one in strings) or b"\0") + b"\0" + (b"\0" if strings else b"")
    )


def a_module(
    handle: int, locator: str, mib: int, *, serial: str = "", speed: int = 4800, bank: str = "BANK 0", extended: int = 0
) -> bytes:
    formatted = bytearray(0x5C - 4)
    struct.pack_into("<H", formatted, 0x0C - 4, mib)
    formatted[0x10 - 4], formatted[0x11 - 4], formatted[0x12 - 4] = 1, 2, 0x22
    struct.pack_into("<H", formatted, 0x15 - 4, speed)
    formatted[0x17 - 4], formatted[0x18 - 4], formatted[0x1A - 4] = 3, 4, 5
    struct.pack_into("<I", formatted, 0x1C - 4, extended)
    struct.pack_into("<H", formatted, 0x20 - 4, min(speed, 4400))
    return a_structure(
        17, handle, bytes(formatted), locator, bank, "Samsung", serial or f"S{handle:04X}", "M321R8GA0BB0-CQK "
    )


def tables() -> bytes:
    bios = bytes([1, 2, 0, 0, 3]) + bytes(0x12 - 9)
    system = bytes([1, 2, 0, 3]) + bytes(16) + bytes([6, 4, 0])
    base = bytes([1, 2, 0, 3])
    chassis = bytes([0, 1, 0, 2])
    cpu = bytearray(0x1A - 4)
    cpu[0], cpu[1], cpu[0x18 - 4] = 1, 3, 0x41
    struct.pack_into("<H", cpu, 0x14 - 4, 3800)
    return b"".join(
        [
            a_structure(0, 0, bios, "Dell Inc.", "2.16.1", "03/12/2024"),
            a_structure(1, 1, system, "Dell Inc.", "PowerEdge R760", "SN-4711", "SKU=0A1B"),
            a_structure(2, 2, base, "Dell Inc.", "0VRV9X", "BOARD-1"),
            a_structure(3, 3, chassis, "Dell Inc.", "CHASSIS-1"),
            *(a_structure(4, 4 + n, bytes(cpu), f"CPU{n + 1}") for n in range(2)),
            a_module(0x1100, "A1", 0x7FFF, extended=65536),
            a_module(0x1101, "A2", 0, serial="none"),
            a_module(0x1102, "B1", 16384),
            a_structure(127, 0xFEFF, b""),
        ]
    )


def put(root: Path, **files: str | bytes) -> None:
    """`files`: path with its text; a text gets the newline that the kernel writes."""
    for name, content in files.items():
        write(root, name, content)


def write(root: Path, name: str, content: str | bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    return path


CPU = """processor\t: {n}
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8480+
microcode\t: 0x2b0005c0
physical id\t: {socket}
core id\t\t: {core}
cpu cores\t: 2
flags\t\t: fpu vme avx512f
"""
KMSG = b"""6,1,100,-;Linux version 6.1
3,2,200,-;nvme nvme0: I/O 12 QID 3 timeout, aborting
 SUBSYSTEM=nvme
3,3,300,-;nvme nvme0: I/O 12 QID 3 timeout, aborting
2,4,400,-;mce: [Hardware Error]: Machine check events logged
27,5,500,-;a daemon's complaint, not the kernel's
4,6,600,-;a warning
"""


def a_machine(root: Path) -> Machine:
    """Two sockets of two cores, 80 GiB in two modules, two cards of one adapter, an NVMe and a SATA disk, a GPU, UEFI, a TPM."""
    write(root, "sys/firmware/dmi/tables/DMI", tables())
    write(root, "sys/class/dmi/id/product_uuid", "4c4c4544-0042-3510-8054-b4c04f4d5a33")
    write(root, "sys/class/dmi/id/product_serial", "SN-4711")
    write(root, "proc/cpuinfo", "\n".join(CPU.format(n=n, socket=n // 2, core=n % 2) for n in range(4)))
    write(root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3800000")
    write(root, "proc/meminfo", "MemTotal:       82000000 kB\nMemAvailable:   80000000 kB")
    write(root, "sys/devices/system/memory/block_size_bytes", "80000000")
    for n in range(40):
        write(root, f"sys/devices/system/memory/memory{n}/state", "online")
    for n in range(2):
        write(root, f"sys/devices/system/node/node{n}/cpulist", f"{2 * n}-{2 * n + 1}")
        write(root, f"sys/devices/system/node/node{n}/meminfo", f"Node {n} MemTotal:       41000000 kB")
    for n in range(2):
        a_pci(
            root,
            f"0000:17:00.{n}",
            "0x15b3",
            "0x101f",
            "0x020000",
            driver="mlx5_core",
            speed="16.0 GT/s PCIe",
            width="8",
        )
        a_card(root, f"ens1f{n}np{n}", f"0000:17:00.{n}", f"3c:ec:ef:00:11:2{n}", carrier="1" if n == 0 else "0")
    a_pci(root, "0000:3b:00.0", "0x10de", "0x2330", "0x030200", width="16", speed="32.0 GT/s PCIe")
    a_pci(root, "0000:03:00.0", "0x1a03", "0x2000", "0x030000")
    a_disk(root, "nvme0n1", "0000:41:00.0", "nvme/nvme0", 3840 * 10**9)
    write(root, "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\0\0\0\1")
    write(root, "sys/class/tpm/tpm0/tpm_version_major", "2")
    write(root, "proc/sys/kernel/osrelease", "6.1.0-40-amd64")
    write(root, "dev/kmsg", KMSG)
    write(
        root,
        "proc/net/if_inet6",
        "20010db8000000000000000000000007 02 40 00 00 ens1f0np0\nfe80" + "0" * 28 + " 02 40 20 80 ens1f0np0",
    )
    write(
        root,
        "usr/share/misc/pci.ids",
        "# names\n10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n\t\t10de 16c1  a board\n"
        "15b3  Mellanox Technologies\n\t101f  MT2894 Family [ConnectX-6 Lx]\nC 00  Unclassified device",
    )
    return Machine(root)


def a_pci(
    root: Path,
    address: str,
    vendor: str,
    device: str,
    class_id: str,
    *,
    driver: str = "",
    speed: str = "",
    width: str = "",
) -> Path:
    at = root / "sys/devices/pci0000:00" / address
    files = {"vendor": vendor, "device": device, "class": class_id, "numa_node": "-1"}
    files |= {
        "current_link_width": width,
        "max_link_width": width,
        "current_link_speed": speed,
        "max_link_speed": speed,
    }
    for name, text in files.items():
        if text:
            write(at, name, text)
    if driver:
        (at / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    listed = root / "sys/bus/pci/devices" / address
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.symlink_to(at)
    return at


def a_card(root: Path, name: str, pci: str, mac: str, *, carrier: str, speed: str = "25000") -> Path:
    card = root / "sys/devices/pci0000:00" / pci / "net" / name
    for file, text in {
        "address": mac,
        "type": "1",
        "addr_assign_type": "0",
        "carrier": carrier,
        "carrier_changes": "2",
    }.items():
        write(card, file, text)
    write(card, "speed", speed if carrier == "1" else "-1")
    for counter in ("rx_errors", "tx_errors", "rx_crc_errors"):
        write(card, f"statistics/{counter}", "0")
    (card / "device").symlink_to(root / "sys/devices/pci0000:00" / pci)
    listed = root / "sys/class/net" / name
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.symlink_to(card)
    return card


def a_disk(root: Path, name: str, pci: str, behind: str, size: int) -> Path:
    controller = root / "sys/devices/pci0000:00" / pci / behind
    for file, text in {
        "serial": "S64GNE0R1",
        "model": "SAMSUNG MZQL23T8HCLS-00A07",
        "firmware_rev": "GDC5302Q",
        "transport": "pcie",
    }.items():
        write(controller, file, text)
    block = controller / name
    for file, text in {
        "size": str(size // 512),
        "dev": "259:0",
        "nsid": "1",
        "wwid": "eui.36344730521000010025384e00000001",
        "ro": "0",
    }.items():
        write(block, file, text)
    write(block, "queue/rotational", "0")
    write(block, "queue/logical_block_size", "512")
    (block / "device").symlink_to(controller)
    listed = root / "sys/block" / name
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.symlink_to(block)
    return block


def a_program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def a_scsi_disk(root: Path, name: str, pci: str, size: int) -> Path:
    """As qemu's virtio-scsi shows one: the maker's name stands in the model too. Its host is the second of the machine."""
    write(root, "sys/devices/pci0000:00/0000:04:00.0/host0/proc_name", "ahci")
    device = root / "sys/devices/pci0000:00" / pci / "virtio1/host1/target1:0:3/1:0:3:0"
    files = {"vendor": "QEMU", "model": "QEMU HARDDISK", "rev": "2.5+", "type": "0", "wwid": "naa.5000c500a1b2c3d5"}
    for file, text in files.items():
        write(device, file, text)
    write(device, "vpd_pg80", b"\0\x80\0\x08SCSI0001")
    block = device / "block" / name
    for file, text in {"size": str(size // 512), "dev": "8:0", "ro": "0", "removable": "0"}.items():
        write(block, file, text)
    (block / "device").symlink_to(device)
    listed = root / "sys/block" / name
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.symlink_to(block)
    return block
