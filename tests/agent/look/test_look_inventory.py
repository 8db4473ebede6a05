"""A whole inventory, of a made machine and of this one: what is there is told, what is not says why, and the message keeps its bounds."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agent.look.recorded import Told, a_machine, a_scsi_disk, write
from bcmetal_agent import wire, wire_tasks
from bcmetal_agent.tasks import disks, look_disks
from bcmetal_agent.tasks.doing import Stopped
from bcmetal_agent.tasks.inventory import MESSAGE_LIMIT, inventory, within_limit
from bcmetal_agent.tasks.look_bounds import fitted
from bcmetal_agent.tasks.look_files import Machine
from bcmetal_agent.wire_inventory import Disk, Inventory, Nic, PciDevice

GIB = 2**30


def look(machine: Machine) -> Inventory:
    found = inventory(wire_tasks.InventoryParams(), Told(), machine)
    assert wire.decode(Inventory, wire.encode(found), wire_tasks.REPORT_LIMIT) == found
    return found


def test_a_machine_is_told_whole(tmp_path: Path) -> None:
    found = look(a_machine(tmp_path))
    assert found.notes == {}
    assert found.identifiers.serial == found.board.serial == "SN-4711"
    assert (found.board.maker, found.board.product, found.board.board_serial) == (
        "Dell Inc.",
        "PowerEdge R760",
        "BOARD-1",
    )
    assert found.board.chassis_serial == "CHASSIS-1"
    assert found.board.sku == "SKU=0A1B"
    assert (found.firmware.version, found.firmware.boot_mode, found.firmware.secure_boot) == ("2.16.1", "uefi", True)
    assert [(one.socket, one.cores, one.threads, one.max_mhz, one.maker) for one in found.cpus] == [
        (0, 2, 2, 3800, "Intel"),
        (1, 2, 2, 3800, "Intel"),
    ]
    assert found.cpus[0].flags == ("fpu", "vme", "avx512f")
    assert found.memory_bytes == 80 * GIB
    assert [(one.slot, one.size_bytes, one.type, one.speed_mts) for one in found.dimms] == [
        ("A1", 64 * GIB, "DDR5", 4400),
        ("B1", 16 * GIB, "DDR5", 4400),
    ]
    assert found.dimms[0].part == "M321R8GA0BB0-CQK"
    assert [(one.node, one.cpus) for one in found.numa] == [(0, "0-1"), (1, "2-3")]
    assert found.tpm is not None
    assert found.tpm.version == "2.0"
    assert found.kernel == "6.1.0-40-amd64"


def test_disks_bear_the_names_that_an_installed_system_gives_them(tmp_path: Path) -> None:
    (disk,) = look(a_machine(tmp_path)).disks
    assert (disk.name, disk.serial, disk.transport, disk.size_bytes) == ("nvme0n1", "S64GNE0R1", "nvme", 3840 * 10**9)
    assert disk.by_path == "/dev/disk/by-path/pci-0000:41:00.0-nvme-1"
    assert disk.by_id == (
        "/dev/disk/by-id/nvme-SAMSUNG_MZQL23T8HCLS-00A07_S64GNE0R1",
        "/dev/disk/by-id/nvme-eui.36344730521000010025384e00000001",
    )


def test_cards_and_gpus_have_their_places_and_names(tmp_path: Path) -> None:
    found = look(a_machine(tmp_path))
    first, second = found.nics
    assert (first.name, first.pci, first.permanent_mac) == ("ens1f0np0", "0000:17:00.0", "3c:ec:ef:00:11:20")
    assert (first.speed_mbps, first.carrier, first.driver) == (25000, True, "mlx5_core")
    assert first.model == "MT2894 Family [ConnectX-6 Lx]"
    assert first.addresses == ("2001:db8::7",)
    assert (second.speed_mbps, second.carrier) == (None, False)
    assert [(one.pci, one.maker, one.model) for one in found.gpus] == [
        ("0000:3b:00.0", "NVIDIA Corporation", "GH100 [H100 SXM5 80GB]")
    ]
    assert [one.address for one in found.pci] == ["0000:03:00.0", "0000:17:00.0", "0000:17:00.1", "0000:3b:00.0"]
    assert (found.pci[3].link_width, found.pci[3].link_speed) == (16, "32 GT/s")


def test_the_kernels_complaints_are_the_worst_first_and_each_once(tmp_path: Path) -> None:
    assert look(a_machine(tmp_path)).complaints == (
        "mce: [Hardware Error]: Machine check events logged",
        "nvme nvme0: I/O 12 QID 3 timeout, aborting (×2)",
    )


def test_an_empty_machine_is_an_inventory_with_notes(tmp_path: Path) -> None:
    found = look(Machine(tmp_path))
    assert found == Inventory(found.identifiers, firmware=found.firmware, notes=found.notes)
    assert found.firmware.boot_mode == "legacy"
    assert "smbios" in found.notes
    assert "complaints" in found.notes


@pytest.mark.parametrize("size", [0, 3, 40, 700])
def test_rubbish_in_every_file_leaves_an_inventory_that_keeps_its_bounds(tmp_path: Path, size: int) -> None:
    machine = a_machine(tmp_path)
    rubbish = (b"\xff\x00\x1b[31m9999999999999999999" * 64)[:size]
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(rubbish)
    found = look(machine)
    assert found.disks == ()
    assert all(one.permanent_mac is None and one.speed_mbps is None for one in found.nics)


def test_one_section_that_cannot_be_read_keeps_no_other_from_it(tmp_path: Path) -> None:
    machine = a_machine(tmp_path)
    (tmp_path / "dev/kmsg").unlink()
    (tmp_path / "dev/kmsg").mkdir()
    found = look(machine)
    assert found.notes.keys() == {"complaints"}
    assert found.complaints == ()
    assert found.disks


def test_a_cpu_and_a_module_that_the_kernel_does_not_have_are_noted(tmp_path: Path) -> None:
    machine = a_machine(tmp_path)
    text = (tmp_path / "proc/cpuinfo").read_text()
    write(tmp_path, "proc/cpuinfo", "\n\n".join(text.split("\n\n")[:2]))
    for n in range(16, 40):
        write(tmp_path, f"sys/devices/system/memory/memory{n}/state", "offline")
    write(tmp_path, "proc/meminfo", "MemTotal:       33000000 kB")
    found = look(machine)
    assert found.notes["cpus"] == "the firmware tells of 2 CPUs, the kernel runs 1"
    assert found.notes["memory"] == "the modules hold 81920 MiB, and the kernel has 32768 MiB of it"


def test_efi_variables_that_are_not_mounted_are_noted(tmp_path: Path) -> None:
    machine = a_machine(tmp_path)
    shutil.rmtree(tmp_path / "sys/firmware/efi/efivars")
    found = look(machine)
    assert (found.firmware.boot_mode, found.firmware.secure_boot) == ("uefi", None)
    assert "not mounted" in found.notes["firmware"]


def test_it_stops_when_nobody_waits_any_more(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        inventory(wire_tasks.InventoryParams(), Told(stop_after=5), a_machine(tmp_path))


def test_this_machine_is_told_too() -> None:
    told = Told()
    found = inventory(wire_tasks.InventoryParams(), told, listen_s=0)
    assert wire.decode(Inventory, wire.encode(found), wire_tasks.REPORT_LIMIT) == found
    assert found.cpus
    assert found.memory_bytes
    assert max(n for n, _ in told.steps) <= 1000


def test_a_message_is_made_to_keep_its_bounds(tmp_path: Path) -> None:
    wild = replace(
        look(a_machine(tmp_path)),
        disks=tuple(
            Disk(f"sd{n}", -1, serial="x" * 1000, by_id=("/y",) * 99, health_detail={"a": 2**80, "b": {}})
            for n in range(600)
        ),
        nics=(Nic("eth0", mac="\x1b[0m" + "z" * 40, speed_mbps=2**60, addresses=("1",) * 99),),
        notes={"k\n": "v" * 9999},
    )
    found = fitted(wild)
    assert wire.decode(Inventory, wire.encode(found), 2**24) == found
    assert len(found.disks) == 512
    assert found.disks[0].size_bytes == 0
    assert found.nics[0].speed_mbps is None


def test_a_report_that_would_be_too_long_loses_what_matters_least() -> None:
    one = PciDevice("0000:00:00.0", "8086", "1234", "020000", driver="d" * 100)
    many = Inventory(
        wire.Identifiers(), pci=(one,) * 1024, kernel="k", disks=(Disk("sda", 1, by_id=("b" * 500,) * 16),) * 120
    )
    found = within_limit(many)
    assert len(wire.encode(found)) <= MESSAGE_LIMIT
    assert found.pci == ()
    assert "too long" in found.notes["pci"]
    assert within_limit(replace(many, pci=(one,), disks=())).pci == (one,)


def test_a_disk_of_the_inventory_is_found_again_by_its_own_words(tmp_path: Path) -> None:
    machine = a_machine(tmp_path)
    a_scsi_disk(tmp_path, "sda", "0000:05:00.0", 64 * 2**20)
    found = look(machine).disks
    assert [one.name for one in found] == ["nvme0n1", "sda"]
    for one in found:
        ref = wire_tasks.DiskRef(one.serial or "", one.size_bytes, one.model, one.wwn)
        assert disks.find(ref, look_disks.where(machine)).name == one.name
    assert found[1].by_path == "/dev/disk/by-path/pci-0000:05:00.0-scsi-0:0:3:0"
    assert found[1].by_id == ("/dev/disk/by-id/wwn-0x5000c500a1b2c3d5", "/dev/disk/by-id/scsi-35000c500a1b2c3d5")
