"""Drives: an erase that is true, and the two ways in which a BMC lies about one. Tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bcmetal_drivers.emulated.rack import EmulatedBmc, EmulatedDrive, Rack, Rule
from rack_client import RESET, SYSTEM, Client, FakeClock

DRIVES = f"{SYSTEM}/Storage/Storage.1/Drives"


@pytest.fixture
def rack(clock: FakeClock) -> Iterator[Rack]:
    rack = Rack(clock=clock)
    bmc = rack.add_redfish("one")
    for serial in bmc.machine.drives:
        bmc.machine.plant(serial)
    with rack:
        yield rack


@pytest.fixture
def drive(bmc: EmulatedBmc) -> EmulatedDrive:
    return next(iter(bmc.machine.drives.values()))


def erase(client: Client, drive: EmulatedDrive) -> str:
    """Where its Task is."""
    target = client.get(f"{DRIVES}/{drive.serial}").doc["Actions"]["#Drive.SecureErase"]["target"]
    reply = client.post(target)
    assert reply.status == 202
    return reply.headers["Location"]


def shows_data(client: Client, drive: EmulatedDrive) -> bool:
    return bool(client.get(f"{DRIVES}/{drive.serial}").doc["Links"]["Volumes"])


def test_an_erase_runs_as_a_task_and_is_true_at_its_end(
    bmc: EmulatedBmc, clock: FakeClock, drive: EmulatedDrive, client: Client
) -> None:
    bmc.set(erase_s=100.0)
    task = erase(client, drive)
    clock.now += 40
    shown = client.get(task).doc
    assert (shown["TaskState"], shown["PercentComplete"]) == ("Running", 40)
    operation = client.get(f"{DRIVES}/{drive.serial}").doc["Operations"][0]
    assert (operation["OperationName"], operation["AssociatedTask"]["@odata.id"]) == ("Sanitize", task)
    assert client.get(shown["TaskMonitor"]).status == 202
    assert drive.holds_data
    assert shows_data(client, drive)
    assert client.post(f"{DRIVES}/{drive.serial}/Actions/Drive.SecureErase").status == 409
    clock.now += 60
    shown = client.get(task).doc
    assert (shown["TaskState"], shown["TaskStatus"], shown["PercentComplete"]) == ("Completed", "OK", 100)
    assert client.get(shown["TaskMonitor"]).status == 200
    assert not drive.holds_data
    assert not shows_data(client, drive)
    assert "Operations" not in client.get(f"{DRIVES}/{drive.serial}").doc


def test_an_erase_leaves_the_other_drive_alone(bmc: EmulatedBmc, drive: EmulatedDrive, client: Client) -> None:
    erase(client, drive)
    _, other = bmc.machine.drives.values()
    assert (drive.holds_data, other.holds_data) == (False, True)


def test_the_oracle_sees_an_erase_come_due_without_being_polled(
    bmc: EmulatedBmc, clock: FakeClock, drive: EmulatedDrive, client: Client
) -> None:
    bmc.set(erase_s=100.0)
    erase(client, drive)
    clock.now += 100
    assert not bmc.machine.drives[drive.serial].holds_data


def test_a_visible_lie_completes_and_still_shows_data(bmc: EmulatedBmc, drive: EmulatedDrive, client: Client) -> None:
    bmc.set(erase_lie="visible")
    assert client.get(erase(client, drive)).doc["TaskState"] == "Completed"
    assert shows_data(client, drive)
    assert drive.holds_data


def test_a_hidden_lie_is_known_to_the_oracle_only(bmc: EmulatedBmc, drive: EmulatedDrive, client: Client) -> None:
    bmc.set(erase_lie="hidden")
    assert client.get(erase(client, drive)).doc["TaskState"] == "Completed"
    assert not shows_data(client, drive)
    assert (drive.says_erased, drive.holds_data) == (True, True)


def test_a_rule_lies_as_often_as_it_may(rack: Rack, drive: EmulatedDrive, client: Client) -> None:
    rule = rack.rule(Rule(action="says_erased", path="SecureErase", lie="visible", times=1))
    erase(client, drive)
    assert (drive.holds_data, rack.fired(rule)) == (True, 1)
    erase(client, drive)
    assert (drive.holds_data, rack.fired(rule)) == (False, 1)


def test_a_bmc_without_erase_offers_none(bmc: EmulatedBmc, drive: EmulatedDrive, client: Client) -> None:
    bmc.set(erase=False)
    assert "Actions" not in client.get(f"{DRIVES}/{drive.serial}").doc
    assert client.post(f"{DRIVES}/{drive.serial}/Actions/Drive.SecureErase").status == 400
    assert drive.holds_data


def test_a_bmc_may_not_tell_whether_there_is_data(bmc: EmulatedBmc, drive: EmulatedDrive, client: Client) -> None:
    bmc.set(volumes_shown=False)
    assert "Links" not in client.get(f"{DRIVES}/{drive.serial}").doc


def test_an_erase_that_fails_erases_nothing(rack: Rack, drive: EmulatedDrive, client: Client) -> None:
    rule = rack.rule(Rule(action="task", path="SecureErase", ends="exception"))
    shown = client.get(erase(client, drive)).doc
    assert (shown["TaskState"], shown["TaskStatus"]) == ("Exception", "Critical")
    assert (drive.holds_data, rack.fired(rule)) == (True, 1)


def test_a_purged_task_is_gone_and_its_effect_is_not(rack: Rack, drive: EmulatedDrive, client: Client) -> None:
    rack.rule(Rule(action="task", path="SecureErase", ends="purged"))
    assert client.get(erase(client, drive)).status == 404
    assert not drive.holds_data


def test_a_deferred_reset_boots_when_its_task_ends(
    rack: Rack, bmc: EmulatedBmc, clock: FakeClock, client: Client
) -> None:
    rack.rule(Rule(action="task", path="Reset", seconds=10.0))
    reply = client.post(RESET, {"ResetType": "On"})
    assert reply.status == 202
    assert reply.doc["TaskState"] == "Running"
    assert bmc.machine.boots == []
    clock.now += 10
    assert len(bmc.machine.boots) == 1
    assert client.get(reply.headers["Location"]).doc["TaskState"] == "Completed"
    assert client.ask("DELETE", reply.headers["Location"]).status == 204
    assert client.get(reply.headers["Location"]).status == 404


def test_a_deferred_write_that_cannot_be_done_ends_in_an_exception(rack: Rack, client: Client) -> None:
    rack.rule(Rule(action="task", path="Reset"))
    reply = client.post(RESET, {"ResetType": "ForceRestart"})  # of a machine that is off
    assert reply.doc["TaskState"] == "Exception"
