"""The inventory of trees that differ as makers' do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bcmetal_drivers.connection import Limits
from bcmetal_drivers.emulated.recorded_front import RecordedService
from bcmetal_drivers.emulated.recorded_line import driving
from bcmetal_drivers.errors import AmbiguousSystem, Unreachable, Unsupported
from bcmetal_drivers.resources import Inventory
from recorded import trees
from recorded.bench import driven
from recorded.test_fuzzed_trees import LOOKS
from recorded.trees import CHASSIS, GIB, MAKERS, ROOT, SYSTEM, Docs, link, tree_of

LIMITS = Limits(connect_s=2, read_s=2, total_s=10)


@contextmanager
def served(docs: Docs) -> Iterator[RecordedService]:
    yield RecordedService(tree_of(docs))


def look(docs: Docs | RecordedService, system_path: str | None = None) -> Inventory:
    service = docs if isinstance(docs, RecordedService) else RecordedService(tree_of(docs))
    with driving(service, LIMITS, system_path) as bmc:
        return bmc.inventory()


def serials(parts: tuple[object, ...]) -> list[str]:
    return [
        str(part.get("serial", "")) if isinstance(part, dict) else str(getattr(part, "serial", "")) for part in parts
    ]


@pytest.mark.parametrize("tree", [name for name in MAKERS if name != "blades"])
def test_every_section_has_a_status_and_a_time_and_nothing_is_read_twice(tree: str) -> None:
    service = RecordedService(tree_of(MAKERS[tree]()))
    found = look(service)
    assert set(found.sections) == set(found.read_at)
    assert set(found.sections) >= {
        "cpus",
        "memory",
        "drives",
        "nics",
        "gpus",
        "tpm",
        "psus",
        "fans",
        "pcie",
        "firmware",
    }
    assert [path for path, times in service.reads.items() if times > 1] == []


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("tree", ["everything", "in-pages"])
def test_no_look_reads_anything_twice(tree: str, name: str) -> None:
    service = RecordedService(tree_of(MAKERS[tree]()))
    with driving(service, LIMITS) as bmc, suppress(Unsupported):
        LOOKS[name](bmc)
    assert service.reads
    assert [path for path, times in service.reads.items() if times > 1] == []


@pytest.mark.parametrize("expands", [True, False])
def test_a_plain_machine_is_told_whole(expands: bool) -> None:
    found = look(trees.everything(expands))
    assert [(cpu["cores"], cpu["threads"]) for cpu in found.cpus] == [(16, 32), (16, 32)]
    assert found.memory_bytes == 4 * 32 * GIB
    assert serials(found.dimms) == ["M0", "M1", "M2", "M3"]
    assert [nic["mac"] for nic in found.nics] == [f"00:1b:21:00:00:0{n}" for n in (3, 1, 2)]
    by_mac = {str(nic["mac"])[-1]: nic for nic in found.nics}
    assert [by_mac[n].get("linkStatus") for n in "123"] == ["up", "down", "up"]
    assert by_mac["3"]["speedMbps"] == 25000
    assert {nic["adapterModel"] for nic in found.nics} == {"N-25"}
    assert [(card["serial"], card["firmware"], card["ports"]) for card in found.adapters] == [("CARD-1", "14.2", 3)]
    assert [(drive.serial, drive.media, drive.life_left_percent) for drive in found.drives] == [
        ("DRIVE-0", "ssd", 90), ("DRIVE-1", "ssd", 91), ("DRIVE-2", "ssd", 92),
    ]  # fmt: skip
    assert [(volume.raid, volume.drives) for volume in found.volumes] == [("RAID1", ("DRIVE-0", "DRIVE-1"))]
    assert [(psu["serial"], psu["capacityWatts"]) for psu in found.psus] == [("PSU-0", 800)]
    assert [fan["name"] for fan in found.fans] == ["Fan 1"]
    assert found.tpm == {"type": "TPM2_0", "state": "Enabled", "firmware": "7.2"}
    assert (found.bios_version, found.secure_boot) == ("2.1", True)
    assert found.firmware == {"BIOS": "2.1", "BMC": "9.8.7"}
    assert set(found.sections.values()) <= {"ok", "absent"}


def test_a_collection_is_asked_for_with_its_members_where_the_service_can_and_as_before_where_it_cannot() -> None:
    one_by_one, at_once = RecordedService(tree_of(trees.everything())), RecordedService(tree_of(trees.everything(True)))
    lying = RecordedService(tree_of(trees.everything(True)))
    lying.expands = False
    assert look(one_by_one).dimms == look(at_once).dimms == look(lying).dimms
    assert at_once.requests < one_by_one.requests == lying.requests


def test_values_of_the_wrong_type_and_addresses_that_are_no_nics_cost_nothing_else() -> None:
    found = look(trees.odd_values())
    assert [(cpu["cores"], cpu["threads"]) for cpu in found.cpus] == [(16, 32)]
    assert [(dimm["serial"], dimm.get("capacityBytes")) for dimm in found.dimms] == [("M1", 32 * GIB), ("M2", None)]
    assert found.memory_bytes == 64 * GIB
    assert sorted(str(nic["mac"]) for nic in found.nics) == [f"00:1b:21:00:00:0{n}" for n in (1, 2, 3)]
    assert [(drive.serial, drive.capacity_bytes) for drive in found.drives] == [
        ("D-0", 960_197_124_096), ("D-1", None), ("", 960_197_124_096), ("D-4", 960_197_124_096),
    ]  # fmt: skip
    assert [drive.media for drive in found.drives] == ["ssd", "ssd", "ssd", "nvme"]
    assert found.drives[1].wwn == "5000c500a1"
    assert found.tpm == {"type": "TPM2_0"}
    assert found.bmc.maker == "Northwind"


def test_a_machine_that_is_off_has_unknown_cpus_and_memory_and_not_none() -> None:
    found = look(trees.off())
    assert (found.cpus, found.memory_bytes, found.dimms) == ((), None, ())
    assert found.sections["cpus"].startswith("unknown")
    assert found.sections["memory"].startswith("unknown")


def test_the_summaries_tell_of_what_no_collection_lists() -> None:
    found = look(trees.off_with_summary())
    assert found.cpus == ({"model": "Contoso 9000", "cores": 16, "threads": 32},) * 2
    assert found.memory_bytes == 256 * GIB
    assert found.sections["cpus"] == found.sections["memory"] == "ok"
    assert "ProcessorSummary" in found.sources["cpus"]


def test_what_only_the_chassis_tells_is_found() -> None:
    found = look(trees.by_the_chassis())
    assert serials(found.drives) == ["BAY-0", "BAY-1"]
    assert serials(found.psus) == ["PSU-1", "PSU-2"]
    assert serials(found.fans) == ["FAN-1", "FAN-2"]
    assert serials(found.pcie) == ["ACC-1", "HBA-2", ""]
    assert serials(found.gpus) == ["ACC-1"]
    assert found.tpm == {"type": "TPM2_0", "firmware": "1.3"}


def test_drives_that_only_simple_storage_lists_are_told_without_a_serial() -> None:
    found = look(trees.simple_storage())
    assert [(drive.serial, drive.model, drive.capacity_bytes) for drive in found.drives] == [
        ("", "D-960", 960_000_000_000)
    ]


def test_of_several_systems_the_one_that_is_a_machine_is_taken_with_the_gpus_beside_it() -> None:
    docs = trees.beside_a_baseboard()
    found = look(docs)
    assert found.identity.system_path == SYSTEM
    assert serials(found.gpus) == [f"GPU-{n}" for n in range(8)]
    assert len(found.cpus) == 1
    assert found.bmc.model == "Model B"
    docs[f"{ROOT}/Systems"]["Members"].reverse()
    assert look(docs).identity == found.identity


def test_cpus_and_memory_of_a_baseboard_are_the_hosts_where_it_lists_none() -> None:
    found = look(trees.all_on_the_baseboard())
    assert [cpu["model"] for cpu in found.cpus] == ["Arm 72"] * 2
    assert serials(found.dimms) == ["LP-0", "LP-1"]
    assert found.memory_bytes == 64 * GIB
    assert len(found.gpus) == 4


def test_of_two_machines_one_must_be_named_and_has_its_own_parts_only() -> None:
    docs = trees.blades()
    with pytest.raises(AmbiguousSystem, match=r"Node1.*Node2"):
        look(docs)
    for n in (1, 2):
        found = look(docs, f"{ROOT}/Systems/Node{n}")
        assert found.identity.serial == f"SER-Node{n}"
        assert found.identity.macs == (f"00:1b:21:00:01:0{n}",)
        assert serials(found.pcie) == [f"HBA-{n}"]


def test_a_system_that_cannot_be_read_may_be_a_machine_too() -> None:
    docs = trees.blades()
    service = RecordedService(tree_of(docs))
    service.failing[f"{ROOT}/Systems/Node2".lower()] = 404
    with pytest.raises(AmbiguousSystem):
        look(service)


def test_the_order_of_members_changes_nothing() -> None:
    docs = trees.everything()
    before = look(docs)
    for doc in docs.values():
        if isinstance(doc.get("Members"), list):
            doc["Members"].reverse()
    after = look(docs)
    assert (after.nics, after.dimms, after.drives, after.firmware) == (
        before.nics, before.dimms, before.drives, before.firmware,
    )  # fmt: skip


def test_pages_are_read_to_their_end() -> None:
    found = look(trees.in_pages())
    assert serials(found.dimms) == ["M0", "M1", "M2", "M3"]


def test_a_service_that_refuses_whole_collections_is_asked_for_none_again_and_one_that_is_busy_is() -> None:
    for status, remembered in ((400, False), (503, None)):
        service = RecordedService(tree_of(trees.everything(True)))
        service.whole_status = status
        with driving(service, LIMITS) as bmc:
            assert serials(bmc.inventory().dimms) == ["M0", "M1", "M2", "M3"]
            assert bmc.learned().get("expand") is remembered


@pytest.mark.parametrize("status", [404, 400, 500, 503])
def test_one_bad_member_drops_itself_and_what_fails_is_told(status: int) -> None:
    service = RecordedService(tree_of(trees.everything()))
    service.failing |= {f"{SYSTEM}/Memory/DIMM2".lower(): status, f"{SYSTEM}/EthernetInterfaces/1".lower(): status}
    found = look(service)
    assert serials(found.dimms) == ["M0", "M1", "M3"]
    assert len(found.nics) == 3, "its card tells the address of the interface that failed"
    assert found.sections["drives"] == "ok"
    if status >= 500:
        assert found.sections["memory"].startswith("partial: ")
        assert "DIMM2" in found.sections["memory"]


@pytest.mark.parametrize("change", ["more", "loop", "page-loop"])
def test_a_collection_that_lies_is_told_and_what_it_lists_is_kept(change: str) -> None:
    docs = trees.everything()
    memory = docs[f"{SYSTEM}/Memory"]
    if change == "more":
        memory["Members@odata.count"] = 9
    elif change == "loop":
        memory["Members"] += memory["Members"]
    else:
        memory["Members@odata.nextLink"] = f"{SYSTEM}/Memory"
    found = look(docs)
    assert serials(found.dimms) == ["M0", "M1", "M2", "M3"]
    assert found.sections["memory"].startswith("ok" if change == "loop" else "partial: ")


def test_chassis_that_contain_each_other_are_read_once() -> None:
    docs = trees.blades()
    blade = f"{ROOT}/Chassis/Blade1"
    docs[blade]["Links"]["Contains"] = [link(f"{blade}/Tray"), link(blade)]
    docs[f"{blade}/Tray"] = {"Id": "Tray", "Links": {"Contains": [link(blade), link(f"{blade}/Tray")]}}
    trees.set_parts(docs, f"{blade}/Tray", PCIeDevices={"2": {"Model": "HBA", "SerialNumber": "HBA-T"}})
    assert serials(look(docs, f"{ROOT}/Systems/Node1").pcie) == ["HBA-1", "HBA-T"]


def test_a_volume_that_is_the_drive_itself_tells_nothing_of_data() -> None:
    docs = trees.everything()
    storage = f"{SYSTEM}/Storage/RAID"
    docs[f"{storage}/Volumes/1"] |= {"RAIDType": None, "VolumeType": "RawDevice"}
    for n, protocol in enumerate(("NVMe", "SATA", "PCIe")):
        docs[f"{storage}/Drives/D{n}"] |= {"Protocol": protocol, "Links": {"Volumes": [link(f"{storage}/Volumes/1")]}}
    assert [drive.has_data for drive in look(docs).drives] == [None, True, None]


def test_a_slow_bmc_ends_with_the_sections_that_came(tmp_path: Path) -> None:
    with driven(tree_of(trees.everything()), tmp_path, tls=False, limits=Limits(2, 2, 2)) as (bmc, service):
        service.slow[f"{SYSTEM}/Memory/DIMM1".lower()] = 30
        found = bmc.inventory()
    assert len(found.nics) == 3
    assert len(found.drives) == 3
    assert serials(found.dimms) == ["M0"]
    assert found.sections["memory"].startswith("partial: ")
    assert "total deadline" in found.sections["firmware"] or "no answer" in found.sections["firmware"]


def test_a_line_that_is_cut_at_one_resource_costs_that_one(tmp_path: Path) -> None:
    with driven(tree_of(trees.everything()), tmp_path, tls=False) as (bmc, service):
        service.cutting.add(f"{SYSTEM}/Memory/DIMM1".lower())
        assert serials(bmc.inventory().dimms) == ["M0", "M2", "M3"]
    with driven(tree_of(trees.everything()), tmp_path, tls=False) as (bmc, service):
        service.cutting.update(f"{SYSTEM}/Memory/DIMM{n}".lower() for n in range(4))
        with pytest.raises(Unreachable):
            bmc.inventory()


TWINS: tuple[Callable[[], Docs], ...] = (trees.everything, trees.by_the_chassis)


@pytest.mark.parametrize("make", TWINS)
def test_the_drives_that_can_be_erased_are_those_of_the_inventory(make: Callable[[], Docs]) -> None:
    service = RecordedService(tree_of(make()))
    with driving(service, LIMITS) as bmc:
        assert {drive.serial for drive in bmc.drives()} == {drive.serial for drive in bmc.inventory().drives}


def test_a_serial_that_the_system_lacks_is_its_chassis_own() -> None:
    docs = trees.everything()
    docs[SYSTEM]["SerialNumber"] = None
    assert look(docs).identity.serial == "CH-1"
    docs[CHASSIS]["Links"]["ComputerSystems"] = [link(SYSTEM), link(f"{ROOT}/Systems/Other")]
    assert look(docs).identity.serial is None
