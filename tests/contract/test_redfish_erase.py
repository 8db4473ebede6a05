"""The BMC's own erase of drives by Redfish: started, followed, read back, and the lies that can be seen."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bcmetal_drivers.capabilities import DriveErase, need
from bcmetal_drivers.emulated.rack import Rule
from bcmetal_drivers.errors import (
    MaybeSent,
    Refused,
    Unsupported,
)
from bcmetal_drivers.resources import JobState
from driver_bench import Seat

SYSTEM = "/redfish/v1/Systems/1$"
INSERT = r"VirtualMedia\.InsertMedia$"
EJECT = r"VirtualMedia\.EjectMedia$"
ERASE = r"Drive\.SecureErase$"


def erase(redfish: Seat) -> tuple[DriveErase, str]:
    serial = next(iter(redfish.bmc.machine.drives))
    redfish.bmc.machine.plant(serial)
    return need(redfish.open(), DriveErase), serial


def has_data(bmc: DriveErase, serial: str) -> bool | None:
    return {drive.serial: drive.has_data for drive in bmc.drives()}[serial]


def test_an_erase_is_started_followed_by_its_reference_and_seen_on_the_drive(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(erase_s=0.5)
    assert has_data(bmc, serial) is True
    job = bmc.erase(serial)
    assert job.state is JobState.RUNNING
    later = need(redfish.open(), DriveErase)
    deadline = time.monotonic() + 5
    while later.erase_job(job.ref).state is JobState.RUNNING and time.monotonic() < deadline:
        time.sleep(0.05)
    assert later.erase_job(job.ref).state is JobState.DONE
    assert has_data(later, serial) is False
    assert not redfish.bmc.machine.drives[serial].holds_data


def test_an_erase_that_runs_already_is_found_and_not_started_again(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(erase_s=30.0)
    redfish.rack.rule(Rule(action="drop_after", method="POST", path=ERASE, times=1))
    with pytest.raises(MaybeSent):
        bmc.erase(serial)
    assert bmc.erase(serial).state is JobState.RUNNING
    assert len(redfish.effects()) == 1


def test_an_erase_that_lies_in_the_open_shows_data_afterwards(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(erase_lie="visible")
    job = bmc.erase(serial)
    assert bmc.erase_job(job.ref).state is JobState.DONE
    assert has_data(bmc, serial) is True


def test_an_erase_that_lies_in_secret_is_known_to_the_oracle_alone(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(erase_lie="hidden")
    bmc.erase(serial)
    assert has_data(bmc, serial) is False
    assert redfish.bmc.machine.drives[serial].holds_data


def test_a_purged_erase_task_is_unknown(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.rack.rule(Rule(action="task", method="POST", path=ERASE, seconds=0.3, ends="purged"))
    job = bmc.erase(serial)
    deadline = time.monotonic() + 5
    while bmc.erase_job(job.ref).state is JobState.RUNNING and time.monotonic() < deadline:
        time.sleep(0.05)
    assert bmc.erase_job(job.ref).state is JobState.UNKNOWN


def test_a_failed_erase_task_is_failed(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.rack.rule(Rule(action="task", method="POST", path=ERASE, seconds=0.0, ends="exception"))
    job = bmc.erase(serial)
    assert bmc.erase_job(job.ref).state is JobState.FAILED
    assert redfish.bmc.machine.drives[serial].holds_data


def test_a_drive_without_an_erase_says_so(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(erase=False)
    assert not any(drive.erasable for drive in bmc.drives())
    with pytest.raises(Unsupported):
        bmc.erase(serial)
    with pytest.raises(Refused):
        bmc.erase("no such drive")


def test_a_bmc_that_does_not_tell_what_is_on_a_drive_is_not_taken_to_say_that_nothing_is(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(volumes_shown=False)
    assert has_data(bmc, serial) is None


@pytest.mark.parametrize("quirks", [{"erase_oem": True}, {"erase_kinds": ("CryptographicErase", "Overwrite")}], ids=str)
def test_an_erase_that_the_maker_calls_otherwise_or_that_must_be_told_how_is_done(
    redfish: Seat, quirks: dict[str, Any]
) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(**quirks)
    assert all(drive.erasable for drive in bmc.drives())
    job = bmc.erase(serial)
    assert bmc.erase_job(job.ref).state is JobState.DONE
    assert not redfish.bmc.machine.drives[serial].holds_data
    assert len(redfish.effects()) == 1
