"""RAID volumes: made of drives named by their serials, deleted, and what the drives hold all the while."""

from __future__ import annotations

from typing import Any

import pytest

from bcmetal_drivers.capabilities import DriveErase, Inventories, Volumes, need, offers
from bcmetal_drivers.emulated.rack import Rack, Rule
from bcmetal_drivers.errors import MaybeSent, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.resources import JobState, VolumeWanted
from driver_bench import Bench, Seat, ended

VOLUMES = r"/Volumes(/[^/]+)?$"


def serials(seat: Seat, count: int = 2) -> tuple[str, ...]:
    return tuple(seat.bmc.machine.drives)[:count]


def mirror(seat: Seat) -> VolumeWanted:
    return VolumeWanted("RAID1", serials(seat), name="os")


def test_a_volume_is_made_of_drives_and_deleted_and_their_data_stays_until_they_are_erased(seat: Seat) -> None:
    opened = seat.open()
    if not offers(opened, Volumes):
        pytest.skip("this driver has no RAID volumes")
    bmc, machine = need(opened, Volumes), seat.bmc.machine
    assert bmc.volumes() == ()
    assert ended(bmc, bmc.create_volume(mirror(seat))).state is JobState.DONE
    (volume,) = bmc.volumes()
    assert (volume.name, volume.raid, set(volume.drives)) == ("os", "RAID1", set(serials(seat)))
    assert volume.capacity_bytes == machine.drives[serials(seat)[0]].capacity_bytes
    machine.plant(serials(seat)[0])
    assert ended(bmc, bmc.delete_volume(volume.ref)).state is JobState.DONE
    assert bmc.volumes() == ()
    assert bmc.delete_volume(volume.ref).state is JobState.DONE
    first = next(drive for drive in need(opened, DriveErase).drives() if drive.serial == serials(seat)[0])
    assert first.has_data is False  # what the BMC shows
    assert machine.drives[first.serial].holds_data  # and what is so
    ended(bmc, need(opened, DriveErase).erase(first.serial))
    assert not machine.drives[first.serial].holds_data


FORMS: tuple[dict[str, Any], ...] = (
    {"volume_form": "type"},
    {"volume_form": "type", "volume_time_demanded": True},
    {"volume_capabilities": True},
    {"volume_times": ("Immediate", "OnReset"), "volume_time_demanded": True},
    {"volume_time_demanded": True},
    {"volume_task": False},
    {"volume_s": 0.1},
)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
def test_each_form_of_volume_is_made_once(redfish: Seat, form: dict[str, Any]) -> None:
    redfish.bmc.set(**form)
    bmc = need(redfish.open(), Volumes)
    assert ended(bmc, bmc.create_volume(mirror(redfish))).state is JobState.DONE
    (volume,) = bmc.volumes()
    assert (volume.raid, set(volume.drives)) == ("RAID1", set(serials(redfish)))
    assert [made.name for made in redfish.bmc.machine.board.volumes.values()] == ["os"]
    asked = len(redfish.effects())
    assert bmc.create_volume(mirror(redfish)).state is JobState.DONE
    assert len(redfish.effects()) == asked
    assert ended(bmc, bmc.delete_volume(volume.ref)).state is JobState.DONE
    assert not redfish.bmc.machine.board.volumes


def test_a_controller_that_works_at_the_next_boot_has_its_task_run_until_then(redfish: Seat) -> None:
    redfish.bmc.set(volume_times=("OnReset",), volume_time_demanded=True)
    bmc = need(redfish.open(), Volumes)
    job = bmc.create_volume(mirror(redfish))
    assert job.state is JobState.RUNNING
    assert bmc.volumes() == ()
    redfish.boot()
    assert ended(bmc, job).state is JobState.DONE
    (volume,) = bmc.volumes()
    bmc.delete_volume(volume.ref)
    assert len(bmc.volumes()) == 1
    redfish.boot()
    assert bmc.volumes() == ()


def test_drives_of_two_controllers_make_no_volume() -> None:
    rack = Rack()
    bench = Bench("two controllers", lambda rack: rack.add_redfish("bmc", drives=4, controllers=2), {})
    seat = Seat(bench, rack, bench.add(rack))
    with rack, seat.closing:
        first, second, third, _ = serials(seat, 4)
        bmc = need(seat.open(), Volumes)
        with pytest.raises(Refused, match="one controller"):
            bmc.create_volume(VolumeWanted("RAID1", (first, second)))
        assert ended(bmc, bmc.create_volume(VolumeWanted("RAID1", (first, third)))).state is JobState.DONE
        assert seat.effects() == [("POST", "/redfish/v1/Systems/1/Storage/Storage.1/Volumes")]


def test_what_cannot_be_made_is_refused_before_it_is_asked_for(redfish: Seat) -> None:
    redfish.bmc.set(raid_kinds=("RAID0", "RAID1"))
    bmc, drives = need(redfish.open(), Volumes), serials(redfish)
    with pytest.raises(Refused, match="no-such-drive"):
        bmc.create_volume(VolumeWanted("RAID1", (drives[0], "no-such-drive")))
    with pytest.raises(Refused, match="at least 3"):
        bmc.create_volume(VolumeWanted("RAID5", drives))
    with pytest.raises(Refused, match="once"):
        bmc.create_volume(VolumeWanted("RAID1", (drives[0], drives[0])))
    with pytest.raises(Refused, match="RAID7"):
        bmc.create_volume(VolumeWanted("RAID7", drives))
    redfish.bmc.set(raid_kinds=("RAID0",))
    with pytest.raises(Unsupported, match="RAID0"):
        bmc.create_volume(mirror(redfish))
    assert redfish.effects() == []


def test_a_drive_that_is_part_of_another_volume_is_refused(redfish: Seat) -> None:
    bmc = need(redfish.open(), Volumes)
    ended(bmc, bmc.create_volume(mirror(redfish)))
    with pytest.raises(Refused):
        bmc.create_volume(VolumeWanted("RAID0", serials(redfish, 1)))
    with pytest.raises(Refused):
        need(redfish.open(), DriveErase).erase(serials(redfish)[0])
    assert len(bmc.volumes()) == 1


def test_only_volumes_are_deleted(redfish: Seat) -> None:
    redfish.bmc.machine.plant(serials(redfish)[0])
    bmc = need(redfish.open(), Volumes)
    for ref in ("/redfish/v1/AccountService/Accounts/1", "/redfish/v1/Systems/1"):
        with pytest.raises(Refused):
            bmc.delete_volume(ref)
    assert redfish.effects() == []
    assert bmc.volumes() == ()  # a drive that was written is no volume that was made


@pytest.mark.parametrize("what", ["create", "delete"])
def test_what_is_acknowledged_and_not_done_is_not_as_asked(redfish: Seat, what: str) -> None:
    bmc = need(redfish.open(), Volumes)
    if what == "delete":
        ended(bmc, bmc.create_volume(mirror(redfish)))
    refs = [volume.ref for volume in bmc.volumes()]
    redfish.rack.rule(Rule(action="ignore", path=VOLUMES))
    with pytest.raises(NotAsAsked):
        bmc.create_volume(mirror(redfish)) if what == "create" else bmc.delete_volume(refs[0])


def test_a_task_that_fails_makes_no_volume(redfish: Seat) -> None:
    redfish.rack.rule(Rule(action="task", method="POST", path=VOLUMES, seconds=0.1, ends="exception"))
    bmc = need(redfish.open(), Volumes)
    assert ended(bmc, bmc.create_volume(mirror(redfish))).state is JobState.FAILED
    assert bmc.volumes() == ()


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_is_followed_by_a_look(redfish: Seat, arrives: bool) -> None:
    redfish.bmc.set(volume_task=False)
    bmc = need(redfish.open(), Volumes)
    redfish.rack.rule(Rule(action="drop_after" if arrives else "drop_before", path=VOLUMES, method="POST", times=1))
    if arrives:
        assert bmc.create_volume(mirror(redfish)).state is JobState.DONE
    else:
        with pytest.raises(MaybeSent):
            bmc.create_volume(mirror(redfish))
    assert len(redfish.bmc.machine.board.volumes) == int(arrives)
    assert len(redfish.effects()) == int(arrives)


def test_the_inventory_names_what_this_model_really_offers(redfish: Seat) -> None:
    ours = {"Bios", "BootAlways", "SecureBootKeys", "Firmware", "Volumes", "Jobs"}
    bmc = need(redfish.open(), Inventories)
    assert ours <= set(bmc.inventory().capabilities)
    redfish.bmc.set(bios=False, continuous=False, boot_order="none", secure_boot_keys="none", raid_kinds=())
    assert not (ours - {"Firmware", "Jobs"}) & set(bmc.inventory().capabilities)
