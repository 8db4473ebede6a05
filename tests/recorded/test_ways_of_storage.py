"""Where drives and volumes are told, in the ways that makers' trees differ: the drives that can be erased are those of the inventory."""

from __future__ import annotations

import pytest

from bcmetal_drivers.errors import ServerFault
from recorded import trees
from recorded.bench import bmc_of
from recorded.trees import CHASSIS, ROOT, SYSTEM, Docs, a_drive, link

BACKPLANE = f"{ROOT}/Chassis/Backplane"


def beside_storage(contained: bool = True) -> Docs:
    """Some drives hang on a controller, others only a backplane in the chassis lists (Huawei, Dell's enclosures, Cray)."""
    docs = trees.everything()
    docs[BACKPLANE] = {"Id": "Backplane", "ChassisType": "Enclosure", "Links": {}}
    if contained:
        docs[CHASSIS]["Links"]["Contains"] = [link(BACKPLANE)]
    else:
        docs[f"{ROOT}/Chassis"]["Members"].append(link(BACKPLANE))
    listed = {"7": a_drive("BAY-7", Protocol="NVMe"), "8": a_drive("BAY-8"), "again": a_drive("DRIVE-0")}
    trees.set_parts(docs, BACKPLANE, Drives=listed)
    return docs


@pytest.mark.parametrize("contained", [True, False])
def test_drives_that_only_a_backplane_lists_are_drives_beside_those_of_a_controller(contained: bool) -> None:
    with bmc_of(beside_storage(contained)) as bmc:
        found = [drive.serial for drive in bmc.drives()]
        assert sorted(found) == ["BAY-7", "BAY-8", "DRIVE-0", "DRIVE-1", "DRIVE-2"]
        assert sorted(drive.serial for drive in bmc.inventory().drives) == sorted(found)


def test_a_virtual_medium_with_a_serial_is_no_drive_to_erase() -> None:
    docs = trees.everything()
    docs[f"{SYSTEM}/Storage/RAID/Drives/D2"] |= {"Model": "Virtual HDisk Device", "SerialNumber": "AAAABBBBCCCC1"}
    docs[f"{SYSTEM}/Storage/RAID/Drives/D1"]["Status"] = {"State": "Absent"}
    with bmc_of(docs) as bmc:
        assert [drive.serial for drive in bmc.drives()] == ["DRIVE-0"]
        assert [drive.serial for drive in bmc.inventory().drives] == ["DRIVE-0"]


def test_a_chassis_that_cannot_be_read_may_hold_the_only_drives() -> None:
    with bmc_of(beside_storage(), (CHASSIS,)) as bmc:
        assert "DRIVE-1" in [drive.serial for drive in bmc.drives()]
    with bmc_of(trees.by_the_chassis(), (CHASSIS,)) as bmc, pytest.raises(ServerFault):
        bmc.drives()
    with bmc_of(beside_storage(), (f"{BACKPLANE}/Drives/8",)) as bmc, pytest.raises(ServerFault):
        bmc.drives()


def test_the_inventorys_volumes_are_those_that_were_made() -> None:
    docs = trees.everything()
    where = f"{SYSTEM}/Storage/RAID/Volumes"
    docs[f"{where}/raw"] = {"Id": "raw", "VolumeType": "RawDevice", "RAIDType": "None"}
    docs[f"{where}/old"] = {"Id": "old", "Name": "N/A", "VolumeType": "SpannedStripesWithParity", "CapacityBytes": "9"}
    docs[where]["Members"] += [link(f"{where}/raw"), link(f"{where}/old")]
    with bmc_of(docs) as bmc:
        found = bmc.volumes()
        assert [(one.ref.rpartition("/")[2], one.raid) for one in found] == [("1", "RAID1"), ("old", "RAID50")]
        assert bmc.inventory().volumes == found
