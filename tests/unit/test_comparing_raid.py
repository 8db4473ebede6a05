"""A RAID layout over the drives that are there: what fits stays, what does not goes, and what is missing is made of drives alike in size."""

from __future__ import annotations

import pytest

from bcmetal.comparing.raid import Layout, NoLayout, layout_of
from bcmetal.settings_profiles import RaidVolume
from bcmetal_drivers.resources import Drive, Volume, VolumeWanted

GB = 10**9


def drive(serial: str, media: str = "ssd", size: int = 960 * GB) -> Drive:
    return Drive(serial, capacity_bytes=size, media=media)


def volume(ref: str, raid: str, *drives: str) -> Volume:
    return Volume(ref, ref, raid, None, drives)


SSDS = (drive("A"), drive("B"), drive("C", size=1920 * GB), drive("D", size=1920 * GB), drive("H", "hdd", 4000 * GB))
MIRROR = RaidVolume(raid="RAID1", drives="ssd", count=2, name="system")


def test_a_missing_volume_is_made_of_the_smallest_drives_that_are_alike() -> None:
    assert layout_of([MIRROR], SSDS, []) == Layout((), (VolumeWanted("RAID1", ("A", "B"), "system"),))
    both = layout_of([MIRROR, MIRROR], SSDS, [])
    assert [one.drives for one in both.make] == [("A", "B"), ("C", "D")]


def test_a_volume_that_fits_stays_and_every_other_goes() -> None:
    there = [volume("v1", "RAID0", "A"), volume("v2", "RAID1", "C", "D"), volume("v3", "RAID1", "A", "B")]
    found = layout_of([MIRROR], SSDS, there)
    assert ([one.ref for one in found.delete], found.make) == (["v1", "v3"], ())
    assert layout_of([MIRROR], SSDS, [there[1]]).is_there


@pytest.mark.parametrize(
    "there",
    [
        volume("v1", "RAID0", "A", "B"),
        volume("v1", "RAID1", "A", "B", "C"),
        volume("v1", "RAID1", "A", "H"),
        volume("v1", "RAID1", "A", "GONE"),
    ],
)
def test_a_volume_of_another_kind_is_made_anew(there: Volume) -> None:
    found = layout_of([MIRROR], SSDS, [there])
    assert found.delete == (there,)
    assert found.make == (VolumeWanted("RAID1", ("A", "B"), "system"),)


def test_drives_that_do_not_make_it_are_named() -> None:
    with pytest.raises(NoLayout, match="RAID5 wants 3 drives of kind ssd alike in size"):
        layout_of([RaidVolume(raid="RAID5", drives="ssd", count=3)], SSDS, [])
    with pytest.raises(NoLayout, match="RAID0 wants 1 drives of kind nvme"):
        layout_of([RaidVolume(raid="RAID0", drives="nvme", count=1)], SSDS, [])
