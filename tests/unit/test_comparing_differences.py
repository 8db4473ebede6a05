"""What a BMC tells and what the agent sees: every difference named, and nothing that only the spelling makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bcmetal.comparing.differences import differences
from bcmetal.comparing.views import stable
from bcmetal_agent.wire import Identifiers
from bcmetal_agent.wire_inventory import Disk, Nic
from bcmetal_drivers.resources import BmcInfo, Drive, Identity, Inventory
from unit.compared import AGENT, BMC, GIB


def named(agent: Any = AGENT, bmc: Any = BMC) -> list[str]:
    return [str(one) for one in differences(agent, bmc)]


def test_one_machine_has_no_differences_however_it_is_spelt() -> None:
    assert named() == []


def test_a_bmc_that_tells_nothing_makes_none() -> None:
    assert named(bmc=Inventory(Identity(), BmcInfo())) == []


def test_a_bmc_of_ipmi_makes_none() -> None:
    ipmi = Inventory(Identity(product_uuid=BMC.identity.product_uuid, serial="7XK2M93"), BmcInfo("Dell Inc."))
    assert named(bmc=ipmi) == []


@pytest.mark.parametrize(
    ("agent", "bmc", "told"),
    [
        (
            {"identifiers": Identifiers("4c4c4544-0099-3510-8054-b4c04f4d5a33", "7XK2M93")},
            {},
            "product UUID: the BMC says 4C4C4544-0042-3510-8054-B4C04F4D5A33, "
            "the agent sees 4c4c4544-0099-3510-8054-b4c04f4d5a33",
        ),
        ({}, {"identity": Identity(serial="OTHER-1")}, "serial number: the BMC says OTHER-1, the agent sees 7XK2M93"),
        (
            {"firmware": replace(AGENT.firmware, boot_mode="legacy")},
            {},
            "boot mode: the BMC says uefi, the agent sees legacy",
        ),
        (
            {"firmware": replace(AGENT.firmware, secure_boot=False)},
            {},
            "secure boot: the BMC says on, the agent sees off",
        ),
        ({}, {"firmware": {"BIOS": "2.10.0"}}, "BIOS version: the BMC says 2.10.0, the agent sees 2.16.1"),
        ({"cpus": AGENT.cpus[:1]}, {}, "CPUs: the BMC says 2, the agent sees 1"),
        (
            {"cpus": tuple(replace(one, cores=28) for one in AGENT.cpus)},
            {},
            "CPU cores: the BMC says 112, the agent sees 56",
        ),
        (
            {"cpus": tuple(replace(one, model="AMD EPYC 9654 96-Core Processor") for one in AGENT.cpus)},
            {},
            "CPU model: the BMC says Intel(R) Xeon(R) Platinum 8480+ @ 2.00GHz, "
            "the agent sees AMD EPYC 9654 96-Core Processor",
        ),
        (
            {"memory_bytes": 439 * GIB},
            {},
            "memory that the kernel has: the BMC says 512.0 GiB, the agent sees 439.0 GiB",
        ),
        (
            {"dimms": AGENT.dimms[:7]},
            {"memory_bytes": None},
            "memory module 0x80ce020007: the BMC says it is in DIMM.A7, the agent sees no such module",
        ),
        (
            {"disks": AGENT.disks[1:]},
            {},
            "disk  s64gne0r1: the BMC says it is there (SAMSUNG MZ1L2480HCHQ-00A07, 480 GB), the agent sees no such disk",
        ),
        (
            {"disks": (*AGENT.disks, Disk("nvme9n1", 10**12, "NEW-9", transport="nvme", model="KIOXIA"))},
            {},
            "disk NEW-9: the BMC says no such disk, the agent sees it as nvme9n1 (KIOXIA, 1000 GB)",
        ),
        (
            {"disks": (replace(AGENT.disks[0], size_bytes=240 * 10**9), *AGENT.disks[1:])},
            {},
            "disk  s64gne0r1 size: the BMC says 480 GB, the agent sees 240 GB",
        ),
        (
            {"disks": (replace(AGENT.disks[0], health="failing"), *AGENT.disks[1:])},
            {},
            "disk  s64gne0r1 health: the BMC says ok, the agent sees failing",
        ),
        (
            {"nics": AGENT.nics[:1]},
            {},
            "network card 3c:ec:ef:00:11:21: the BMC says it is there (NIC.1), the agent sees no such card",
        ),
        (
            {},
            {"nics": BMC.nics[:1]},
            "network card 3c:ec:ef:00:11:21: the BMC says no such card, the agent sees it as ens1f1np1",
        ),
        ({"gpus": AGENT.gpus[:7]}, {}, "GPUs: the BMC says 8, the agent sees 7"),
        ({"tpm": None}, {}, "TPM: the BMC says TPM2_0, the agent sees none"),
    ],
)
def test_each_difference_is_named_and_is_the_only_one(agent: dict[str, Any], bmc: dict[str, Any], told: str) -> None:
    assert named(replace(AGENT, **agent), replace(BMC, **bmc)) == [told]


@pytest.mark.parametrize(
    ("agent", "bmc"),
    [
        ({"dimms": (), "memory_bytes": 503 * GIB}, {}),  # firmware without tables: the kernel's share alone
        ({}, {"memory_bytes": None, "dimms": ()}),
        ({}, {"drives": (), "nics": (), "gpus": (), "tpm": None}),
        ({}, {"identity": Identity(serial="CNFCP0039C00A1")}),  # the board's
        (
            {},
            {
                "identity": Identity(
                    serial="To Be Filled By O.E.M.", product_uuid="03000200-0400-0500-0006-000700080009"
                )
            },
        ),
        ({}, {"firmware": {"System ROM": "U60 v2.16.1 (03/12/2024)"}}),
        ({}, {"tpm": {"type": "TPM2_0", "state": "Disabled"}}),
        ({"nics": (*AGENT.nics, Nic("usb0", "3c:ec:ef:99:99:99", None, "cdc_ether"))}, {}),
        (
            {"nics": (*AGENT.nics, Nic("ens9", "3c:ec:ef:99:99:98", None, "i40e", pci="0000:99:00.0"))},
            {},
        ),  # an add-in card
        ({"disks": (*AGENT.disks, Disk("sda", 64 * 10**9, "USB-1", transport="usb"))}, {}),
        (
            {"disks": (*AGENT.disks, Disk("sdb", 64 * 10**9, "SATA-1", transport="ata"))},
            {},
        ),  # it lists no SATA disk at all
        ({"disks": (*AGENT.disks, replace(AGENT.disks[0], name="sdc", serial="SAN-1", wwn=None, shared=True))}, {}),
        ({"notes": {"disks": "why"}, "disks": ()}, {}),
        (
            {"disks": (Disk("sda", 8 * 10**12, "00a1b2", transport="scsi", model="DELL PERC H755"),)},
            {},
        ),  # a RAID volume
    ],
)
def test_what_bmcs_legitimately_leave_out_is_no_difference(agent: dict[str, Any], bmc: dict[str, Any]) -> None:
    assert named(replace(AGENT, **agent), replace(BMC, **bmc)) == []


def test_a_drive_may_be_known_by_its_wwn_alone() -> None:
    drive = Drive("VENDORS-OWN-1", None, None, "nvme", wwn="eui.3634473052100001")
    assert named(bmc=replace(BMC, drives=(drive, *BMC.drives[1:]))) == []


def test_what_changes_with_each_boot_is_not_of_the_machine() -> None:
    again = replace(
        AGENT,
        kernel="6.12",
        memory_bytes=(AGENT.memory_bytes or 0) - 3 * 2**20,
        complaints=("x",),
        notes={"lldp": "x"},
        disks=tuple(
            replace(one, name=f"x{one.name}", health_detail={"temperature_c": 44}) for one in reversed(AGENT.disks)
        ),
        nics=tuple(replace(one, carrier=False, speed_mbps=None, addresses=("10.0.0.1",)) for one in AGENT.nics),
    )
    assert stable(again) == stable(AGENT)
    assert stable(replace(AGENT, disks=AGENT.disks[1:])) != stable(AGENT)
    assert stable(replace(AGENT, dimms=AGENT.dimms[1:])) != stable(AGENT)
