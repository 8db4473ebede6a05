"""Which disk the system goes to: the same at each deploy, and never one that is not to be written."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from bcmetal.comparing.root_device import Hints, NoRootDevice, root_device
from bcmetal_agent.wire_inventory import Disk

GIB = 2**30
PCI = "/dev/disk/by-path/pci-0000:"
BOOT = Disk(
    "nvme2n1", 480 * GIB, "BOOT-1", "eui.0025385b11500001", "SAMSUNG MZ1L2480HCHQ", transport="nvme",
    rotational=False, by_path=f"{PCI}41:00.0-nvme-1",
)  # fmt: skip
DATA = replace(
    BOOT,
    name="nvme0n1",
    size_bytes=3840 * GIB,
    serial="DATA-1",
    wwn="eui.0025385b11500002",
    by_path=f"{PCI}61:00.0-nvme-1",
)
SPINNING = Disk(
    "sda", 16000 * GIB, "ZL2A0001", "naa.5000c500a1b2c3d4", "ST16000NM001G", transport="sas", rotational=True,
    by_path=f"{PCI}03:00.0-sas-0x5000c500a1b2c3d5-lun-0",
)  # fmt: skip
RACK = (DATA, SPINNING, BOOT)


def name_of(found: Disk | NoRootDevice) -> str:
    assert isinstance(found, Disk), found
    return found.name


def refusal(found: Disk | NoRootDevice) -> str:
    assert isinstance(found, NoRootDevice), found
    return found.message


def test_without_hints_the_smallest_disk_takes_the_system() -> None:
    assert name_of(root_device(RACK)) == "nvme2n1"


def test_of_equal_disks_the_same_one_is_taken_whatever_the_kernel_calls_them() -> None:
    twins = [
        replace(BOOT, name=name, serial=serial, wwn=None, by_path=f"{PCI}{slot}:00.0-nvme-1")
        for name, serial, slot in (("nvme0n1", "B", "c1"), ("nvme1n1", "A", "41"), ("nvme9n1", "C", "e1"))
    ]
    spinning = replace(twins[0], name="sdb", serial="D", rotational=True, by_path=f"{PCI}01:00.0-ata-1")
    taken = {name_of(root_device(order)) for order in permutations([*twins, spinning])}
    assert taken == {"nvme1n1"}


def test_slots_are_counted_and_not_spelt() -> None:
    second, tenth = (
        replace(BOOT, name=f"sd{n}", serial=n, wwn=None, by_path=f"{PCI}00:17.0-ata-{n}") for n in ("2", "10")
    )
    assert root_device((tenth, second)) == second


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"virtual_medium": True}, "virtual medium"),
        ({"shared": True}, "shared"),
        ({"removable": True}, "removable"),
        ({"read_only": True}, "read-only"),
        ({"size_bytes": 3 * GIB}, "smaller than 4.0 GiB"),
        ({"serial": None}, "tells no serial"),
        ({"serial": "  "}, "tells no serial"),
    ],
)
@pytest.mark.parametrize("hints", [Hints(), Hints(by_path=BOOT.by_path)], ids=["chosen", "named"])
def test_a_disk_that_is_not_to_be_written_is_never_taken(change: dict[str, Any], why: str, hints: Hints) -> None:
    found = root_device((replace(BOOT, **change),), hints)
    assert why in refusal(found)
    assert "nvme2n1" in refusal(found)


def test_a_disk_that_cannot_be_told_from_another_is_not_taken() -> None:
    clone = replace(BOOT, name="sdx", by_path=None)
    assert "the serial of another disk" in refusal(root_device((BOOT, clone)))
    namespace = replace(clone, name="nvme2n2", wwn="eui.0025385b11500099")
    assert isinstance(root_device((BOOT, namespace)), Disk)


def test_the_image_has_to_have_room() -> None:
    assert name_of(root_device(RACK, least_bytes=500 * GIB)) == "nvme0n1"
    assert "smaller than 20000.0 GiB" in refusal(root_device(RACK, least_bytes=20_000 * GIB))


@pytest.mark.parametrize(
    ("hints", "name"),
    [
        (Hints(serial=" boot-1 "), "nvme2n1"),
        (Hints(wwn="0x5000C500A1B2C3D4"), "sda"),
        (Hints(model="mz1l2480hchq", min_size_bytes=1000 * GIB), "nvme0n1"),
        (Hints(rotational=True), "sda"),
        (Hints(by_path="pci-0000:61:00.0-nvme-1"), "nvme0n1"),
        (Hints(transport="SAS"), "sda"),
        (Hints(transport="nvme", max_size_bytes=500 * GIB), "nvme2n1"),
    ],
)
def test_hints_name_one_disk_however_they_are_spelt(hints: Hints, name: str) -> None:
    assert name_of(root_device(RACK, hints)) == name


def test_hints_that_several_disks_agree_with_are_refused_with_their_names() -> None:
    message = refusal(root_device(RACK, Hints(transport="nvme")))
    assert "transport nvme" in message
    assert "BOOT-1" in message
    assert "DATA-1" in message
    assert "ZL2A0001" not in message


def test_hints_that_no_disk_agrees_with_are_refused_with_what_there_is() -> None:
    message = refusal(root_device(RACK, Hints(serial="GONE", rotational=False)))
    assert "serial GONE, rotational false" in message
    assert all(one.serial is not None and one.serial in message for one in RACK)


def test_a_machine_without_disks_says_so() -> None:
    assert refusal(root_device(())) == "the machine has no disk"


def test_stored_hints_are_read_and_an_unknown_one_is_not_passed_over() -> None:
    assert Hints.of({"minSizeBytes": 5, "by_path": "x"}) == Hints(min_size_bytes=5, by_path="x")
    assert Hints.of(None) == Hints()
    with pytest.raises(ValueError, match="hctl"):
        Hints.of({"hctl": "0:0:0:0"})
