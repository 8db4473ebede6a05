"""The inventory of each recorded tree against its checked table: the same facts, no resource read twice, in so many requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bcmetal_drivers import capabilities
from bcmetal_drivers.capabilities import offers
from bcmetal_drivers.errors import DriverError
from bcmetal_drivers.resources import Identity
from recorded.bench import driven
from recorded.recordings import archives, recorded
from recorded.tables import TREES

pytestmark = pytest.mark.recordings
GIB = 1024**3


@pytest.mark.parametrize("name", TREES)
def test_the_inventory_of_a_recorded_tree_is_what_a_reader_of_its_json_finds(name: str, tmp_path: Path) -> None:
    with driven(recorded(name), tmp_path, tls=False) as (bmc, _):
        found = bmc.inventory()
        table = TREES[name]
        assert found.identity.product_uuid == table.uuid
        assert found.identity.serial == table.serial
        assert found.identity.sku == table.sku
        assert found.identity.model == table.model
        assert sorted(found.identity.macs) == table.macs
        assert (found.bmc.model, found.bmc.firmware) == table.bmc
        assert found.bios_version == table.bios
        assert [cpu["model"] for cpu in found.cpus] == [table.cpu_model] * table.cpus
        assert sum(int(str(cpu["cores"])) for cpu in found.cpus) == table.cores
        assert sum(int(str(cpu["threads"])) for cpu in found.cpus) == table.threads
        assert found.memory_bytes == table.memory_gib * GIB
        assert sorted(str(dimm["serial"]) for dimm in found.dimms) == table.dimms
        assert {drive.serial: drive.capacity_bytes for drive in found.drives} == table.drives
        assert {drive.media for drive in found.drives} <= {"nvme", "ssd"}
        assert sorted(str(nic["mac"]) for nic in found.nics) == table.macs
        assert {str(card.get("serial", "")) for card in found.adapters} == set(table.adapters)
        assert sorted(str(gpu["serial"]) for gpu in found.gpus) == table.gpus
        assert all("model" in gpu for gpu in found.gpus)
        assert (found.tpm and (found.tpm["type"], found.tpm["firmware"])) == table.tpm
        assert {str(psu["serial"]): psu.get("capacityWatts") for psu in found.psus} == table.psus
        assert len(found.fans) == table.fans
        assert len(found.pcie) == table.pcie
        assert len(found.volumes) == table.volumes
        assert len(found.firmware) == table.firmware
        assert set(found.sections.values()) <= {"ok", "absent"}
        assert set(found.read_at) == set(found.sections)
        assert all(found.sources[name].startswith("/redfish/v1/") for name in ("nics", "drives", "memory", "psus"))


@pytest.mark.parametrize("expands", [True, False])
@pytest.mark.parametrize("name", TREES)
def test_no_resource_is_read_twice_and_the_requests_are_counted(name: str, expands: bool, tmp_path: Path) -> None:
    with driven(recorded(name), tmp_path, tls=False) as (bmc, served):
        served.expands = expands
        bmc.inventory()
        assert [path for path, times in served.reads.items() if times > 1] == []
        assert len(served.reads) <= TREES[name].resources
        assert served.requests <= (TREES[name].requests if expands else TREES[name].resources)


@pytest.mark.parametrize("name", TREES)
def test_a_baseline_reads_no_resource_twice_in_so_many_requests(name: str, tmp_path: Path) -> None:
    with driven(recorded(name), tmp_path, tls=False) as (bmc, served):
        found = bmc.baseline()
        assert found["sections"]
        assert [path for path, times in served.reads.items() if times > 1] == []
        assert served.requests <= TREES[name].baseline


@pytest.mark.parametrize("name", TREES)
def test_the_identity_alone_says_the_same_as_the_inventory(name: str, tmp_path: Path) -> None:
    with driven(recorded(name), tmp_path, tls=False) as (bmc, served):
        identity: Identity = bmc.identity()
        assert [path for path, times in served.reads.items() if times > 1] == []
        assert identity == bmc.inventory().identity
        assert bmc.bmc_info() == bmc.inventory().bmc


NEVER_OFFERED = {
    "dell-r750-idrac9-6.00": set(),
    "hpe-dl385-ilo5-2.72": {"DriveErase"},
    "lenovo-sr670v2-xcc-2.83": {"DriveErase"},
    "supermicro-sys821ge-11.01": {"DriveErase"},
}
UPKEEP = {"Sensors", "EventLog", "Indicator", "BmcReset", "BmcClock", "BmcNetwork", "Console", "HostWays"}


@pytest.mark.parametrize("name", TREES)
def test_the_capabilities_are_those_that_the_model_and_the_driver_have(name: str, tmp_path: Path) -> None:
    with driven(recorded(name), tmp_path, tls=False) as (bmc, _):
        named = set(bmc.inventory().capabilities)
        assert [one for one in named if not offers(bmc, getattr(capabilities, one))] == []
        assert named >= {"Power", "BootOnce", "VirtualMedia", "SecureBoot", "Bios", "Firmware", *UPKEEP}
        assert {"DriveErase"} - named == NEVER_OFFERED[name]


@pytest.mark.parametrize("name", sorted(set(archives()) - set(TREES)))
def test_any_other_tree_that_is_there_gives_an_inventory_or_a_typed_error(name: str, tmp_path: Path) -> None:
    with driven(recorded(name), tmp_path, tls=False) as (bmc, served):
        try:
            found = bmc.inventory()
        except DriverError:
            return
        assert found.sections
        assert [path for path, times in served.reads.items() if times > 1] == []
