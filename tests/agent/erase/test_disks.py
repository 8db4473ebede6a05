"""Which disks there are, and which one a plan means, from trees as of sysfs."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from bcmetal_agent.tasks.disk_identity import same_model, same_serial, same_wwn
from bcmetal_agent.tasks.disks import BlockDevice, Where, devices, find, in_use, resolve
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.wire_tasks import DiskRef
from bcmetal_drivers.emulated.disks import Cabinet, FakeDisk, Kind

MIB = 1 << 20


class Machine:
    """A cabinet over plain files: nothing is opened here, so no block devices are needed."""

    def __init__(self, folder: Path) -> None:
        self.cabinet = Cabinet(folder / "cabinet")
        self.where = Where(self.cabinet.sys, self.cabinet.dev, self.cabinet.proc)
        self._folder = folder

    def add(self, kind: Kind, serial: str, **settings: Any) -> FakeDisk:
        node = self._folder / f"node-{len(list(self._folder.iterdir()))}"
        with node.open("wb") as f:
            f.truncate(4 * MIB)
        return self.cabinet.add(kind, node, serial, **settings)

    def block(self, disk: FakeDisk) -> Path:
        return self.cabinet.sys / "block" / disk.name

    def device(self, disk: FakeDisk) -> BlockDevice:
        return next(device for device in devices(self.where) if device.name == disk.name)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def refused(ref: DiskRef, where: Where) -> str:
    with pytest.raises(TaskFailed) as failed:
        resolve(ref, where)
    return failed.value.code


@pytest.mark.parametrize(
    ("kind", "transport", "shared"),
    [
        (Kind.NVME, "nvme", False), (Kind.ATA, "ata", False), (Kind.SAS, "sas", False), (Kind.VIRTIO, "virtio", False),
        (Kind.USB, "usb", False), (Kind.NVME_TCP, "nvme-of", True), (Kind.FC, "fc", True), (Kind.ISCSI, "iscsi", True),
    ],
)  # fmt: skip
def test_a_disk_says_how_it_is_attached_and_whether_others_may_see_it(
    machine: Machine, kind: Kind, transport: str, shared: bool
) -> None:
    disk = machine.add(kind, "S1")
    device = machine.device(disk)
    assert (device.serial, device.transport, device.shared) == ("S1", transport, shared)
    if shared:
        assert refused(DiskRef("S1", 4 * MIB), machine.where) == "disk-shared"
    else:
        assert resolve(DiskRef("S1", 4 * MIB), machine.where) == device


def test_only_whole_disks_of_hardware_that_hold_something_are_disks(machine: Machine) -> None:
    disk = machine.add(Kind.SAS, "S1")
    for name in ("loop0", "ram0", "zram0", "dm-0", "md127", "nbd0", "sr0", "sda1", "nvme0c0n1", "fd0"):
        (machine.cabinet.sys / "block" / name).mkdir()
        (machine.cabinet.sys / "block" / name / "size").write_text("8192")
    for attribute, value in (("size", "0"), ("hidden", "1"), ("device/type", "5")):
        other = machine.add(Kind.SAS, f"S-{attribute}")
        (machine.block(other) / attribute).write_text(value)
    assert [device.name for device in devices(machine.where)] == [disk.name]


@pytest.mark.parametrize(
    ("vendor", "model"),
    [
        ("AMI", "Virtual HDisk0"), ("iDRAC", "LCDRIVE"), ("Linux", "File-Stor Gadget"), ("HPE", "iLO Virtual USB"),
        ("Cisco", "Virtual FDD"), ("IPMI", "Virtual Floppy"),
    ],
)  # fmt: skip
def test_a_bmcs_medium_is_never_a_disk_of_a_plan(machine: Machine, vendor: str, model: str) -> None:
    disk = machine.add(Kind.USB, "S1", vendor=vendor, model=model)
    assert machine.device(disk).virtual_medium
    assert refused(DiskRef("S1", 4 * MIB), machine.where) == "disk-missing"


def test_a_hypervisors_virtual_disk_is_a_disk(machine: Machine) -> None:
    disk = machine.add(Kind.SAS, "S1", vendor="VMware", model="Virtual disk")
    assert not machine.device(disk).virtual_medium
    assert resolve(DiskRef("S1", 4 * MIB), machine.where).name == disk.name


def test_a_namespace_over_two_controllers_is_shared(machine: Machine) -> None:
    disk = machine.add(Kind.NVME, "S1")
    subsystem = machine.cabinet.sys / "devices/virtual/nvme-subsystem/nvme-subsys0"
    for name in ("nvme0", "nvme1"):
        (subsystem / name).mkdir(parents=True)
        (subsystem / name / "transport").write_text("pcie\n")
    (subsystem / "serial").write_text("S1\n")
    (machine.block(disk) / "device").unlink()
    (machine.block(disk) / "device").symlink_to(subsystem)
    assert machine.device(disk).shared
    (subsystem / "nvme1/transport").unlink()
    assert not machine.device(disk).shared


def test_one_wwn_over_two_paths_is_shared(machine: Machine) -> None:
    disks = [machine.add(Kind.SAS, "S1", wwn="5000c500aaaaaaaa") for _ in range(2)]
    assert all(machine.device(disk).shared for disk in disks)
    assert refused(DiskRef("S1", 4 * MIB), machine.where) == "disk-ambiguous"


def test_an_ata_disk_is_named_in_full_by_its_own_identity(machine: Machine) -> None:
    disk = machine.add(Kind.ATA, "SHORT")
    identity = bytearray(512)
    for at, size, text in (
        (20, 20, "  FULL-SERIAL"),
        (46, 8, "FW123456"),
        (54, 40, "A MODEL OF MORE THAN SIXTEEN CHARACTERS"),
    ):
        raw = text.encode().ljust(size)
        identity[at : at + size : 2], identity[at + 1 : at + size : 2] = raw[1::2], raw[0::2]
    page = b"\x00\x89" + struct.pack(">H", 568) + bytes(56) + bytes(identity)
    (machine.block(disk) / "device/vpd_pg89").write_bytes(page)
    device = machine.device(disk)
    assert (device.serial, device.firmware) == ("FULL-SERIAL", "FW123456")
    assert device.model == "A MODEL OF MORE THAN SIXTEEN CHARACTERS"
    assert device.wwn == f"naa.{disk.wwn}"


@pytest.mark.parametrize(
    "page", [b"", b"\0", b"\0\x80\xff\xff", b"\0\x80\0\4\0\0\0\0", b"\0\x80\0\4\x1b[2J", bytes(5000)]
)
def test_nonsense_from_a_disk_is_no_identity(machine: Machine, page: bytes) -> None:
    disk = machine.add(Kind.SAS, "S1")
    for name in ("80", "83", "89"):
        (machine.block(disk) / f"device/vpd_pg{name}").write_bytes(page)
    serial = machine.device(disk).serial
    assert serial is None or serial.isprintable()
    assert refused(DiskRef("", 4 * MIB), machine.where) == "disk-missing"


def test_a_disk_without_a_serial_is_never_meant(machine: Machine) -> None:
    machine.add(Kind.VIRTIO, "")
    for serial in ("", " ", "\0"):
        assert refused(DiskRef(serial, 4 * MIB), machine.where) == "disk-missing"


def test_what_is_wrong_with_the_nearest_disk_is_said(machine: Machine) -> None:
    machine.add(Kind.SAS, "S1")
    with pytest.raises(TaskFailed, match="sda has that serial, 4194304 bytes"):
        find(DiskRef("S1", 8 * MIB), machine.where)


def test_holders_mounts_and_swap_are_in_use(machine: Machine) -> None:
    disk = machine.add(Kind.SAS, "S1")
    part = machine.block(disk) / "sda1"
    (part / "holders/md0").mkdir(parents=True)
    (part / "partition").write_text("1")
    (part / "dev").write_text("8:1")
    device = machine.device(disk)
    assert in_use(device, machine.where) == "md0 is built on sda1"
    (part / "holders/md0").rmdir()
    assert in_use(device, machine.where) is None
    mounts = machine.cabinet.proc / "self/mountinfo"
    mounts.write_text("36 35 8:1 / /data rw - ext4 /dev/root rw\n")
    assert in_use(device, machine.where) == "mounted at /data"
    mounts.write_text("36 35 0:44 / /data rw - btrfs /dev/sda1 rw\n")
    assert in_use(device, machine.where) == "mounted at /data"
    mounts.write_text("36 35 8:17 / /data rw - ext4 /dev/sdb1 rw\n")
    assert in_use(device, machine.where) is None
    (machine.cabinet.proc / "swaps").write_text("Filename Type\n/dev/sda1 partition 1 0 -2\n")
    assert refused(DiskRef("S1", 4 * MIB), machine.where) == "disk-in-use"


def test_no_sysfs_is_no_disks(tmp_path: Path) -> None:
    assert devices(Where(tmp_path / "sys", tmp_path / "dev", tmp_path / "proc")) == ()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("S1", " S1  ", True), ("s1a", "S1A", True), ("WD-X 1", "WD-X1", True), ("S1", "S11", False), ("", "", False),
        ("\0\0", " ", False),
    ],
)  # fmt: skip
def test_serials_agree_but_for_blanks_and_case(one: str, other: str, same: bool) -> None:
    assert same_serial(one, other) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("naa.5000c500a1b2c3d4", "0x5000C500A1B2C3D4", True), ("50:00:c5:00:a1:b2:c3:d4", "5000c500a1b2c3d4", True),
        ("eui.0025385a91b0c1d2", "0025385A91B0C1D2", True), ("5000c500a1b2c3d4", "5000c500a1b2c3d5", False),
        ("", "", False), ("naa.", "0x", False), ("12", "12", False),
    ],
)  # fmt: skip
def test_wwns_agree_by_their_digits(one: str, other: str, same: bool) -> None:
    assert same_wwn(one, other) is same


@pytest.mark.parametrize(
    ("given", "model", "vendor", "same"),
    [
        ("ST4000NM0025", "ST4000NM0025", "SEAGATE", True), ("SEAGATE ST4000NM0025", "ST4000NM0025", "SEAGATE", True),
        ("SAMSUNG MZ7LH480HAHQ-00005", "SAMSUNG_MZ7LH480HAHQ-00005", None, True),
        ("SAMSUNG MZ7LH480HAHQ-00005", "SAMSUNG MZ7LH480", None, True), ("SAMSUNG MZ7", "SAMSUNG MZ7LH480", None, False),
        ("ST4000NM0025", "ST4000NM0035", "SEAGATE", False), ("", "", None, False),
    ],
)  # fmt: skip
def test_models_agree_but_for_the_maker_and_a_cut(given: str, model: str, vendor: str | None, same: bool) -> None:
    assert same_model(given, model, vendor) is same
