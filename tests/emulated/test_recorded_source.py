"""A recorded tree behind a BMC of the rack: what acts, and that nothing else is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack, Rule
from bcmetal_drivers.emulated.recorded import NoRecording, RecordedTree
from bcmetal_drivers.emulated.recorded_source import RecordedSource, machine_of
from bcmetal_drivers.emulated.replies import Reply
from bcmetal_drivers.resources import BootDevice, PowerState
from rack_client import Client, FakeClock, dialling
from recorded.trees import MANAGER, ROOT, SYSTEM, everything, link

BIOS = f"{SYSTEM}/Bios"
DRIVE = f"{SYSTEM}/Storage/RAID/Drives/D0"
CD = f"{MANAGER}/VirtualMedia/CD1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"


def documents() -> dict[str, Any]:
    docs = everything(expands=True)
    docs[SYSTEM]["Bios"] = link(BIOS)
    settings = {"SettingsObject": link(f"{BIOS}/Settings")}
    docs[BIOS] = {"@odata.id": BIOS, "Attributes": {"Boots": 3, "Tpm": "None"}, "@Redfish.Settings": settings}
    docs[f"{BIOS}/Settings"] = {"@odata.id": f"{BIOS}/Settings", "Attributes": {}}
    return docs


@pytest.fixture
def rack(clock: FakeClock) -> Iterator[Rack]:
    rack, tree = Rack(clock=clock), RecordedTree(documents())
    machine = machine_of(tree, clock)
    rack.add_redfish("one", machine=machine, source=RecordedSource(tree, machine))
    with rack:
        yield rack


def test_the_machine_is_the_recordings(bmc: EmulatedBmc) -> None:
    machine = bmc.machine
    assert (machine.serial, str(machine.uuid)) == ("SER-Self", "6f0e2b8e-63a5-4a3c-9a52-0f3f7d1c2b00")
    assert sorted(machine.drives) == ["DRIVE-0", "DRIVE-1", "DRIVE-2"]
    assert machine.power is PowerState.OFF
    with pytest.raises(NoRecording, match="no system"):
        machine_of(RecordedTree({ROOT: {}}), lambda: 0.0)


def test_power_acts_as_far_as_the_recording_offers_it(bmc: EmulatedBmc, client: Client) -> None:
    assert client.get(SYSTEM).doc["PowerState"] == "Off"
    assert client.post(RESET, {"ResetType": "On"}).status == 204
    assert client.get(SYSTEM).doc["PowerState"] == "On"
    assert client.post(RESET, {"ResetType": "PowerCycle"}).status == 400, "the recording does not list it"
    assert [boot.device for boot in bmc.machine.boots] == ["disk"]


def test_an_override_is_used_up_by_a_boot(bmc: EmulatedBmc, client: Client) -> None:
    once = {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}
    assert client.patch(SYSTEM, {"Boot": once}).status == 200
    assert client.get(SYSTEM).doc["Boot"]["BootSourceOverrideTarget"] == "Pxe"
    client.post(RESET, {"ResetType": "On"})
    assert bmc.machine.boots[-1].device == BootDevice.PXE.value
    assert client.get(SYSTEM).doc["Boot"]["BootSourceOverrideEnabled"] == "Disabled"


@pytest.mark.parametrize(
    "boot", [{"BootSourceOverrideTarget": "UsbCd"}, {"BootNext": "Boot0001"}, {"BootSourceOverrideEnabled": "Maybe"}, 1]
)
def test_a_boot_that_cannot_be_acted_out_is_refused(boot: object, bmc: EmulatedBmc, client: Client) -> None:
    assert client.patch(SYSTEM, {"Boot": boot}).status == 400
    assert bmc.machine.override.device is BootDevice.NONE


def test_bios_settings_wait_for_a_boot_and_a_tpm_is_cleared_once(client: Client) -> None:
    written = client.patch(f"{BIOS}/Settings", {"Attributes": {"Boots": 4, "Tpm": "Clear"}})
    assert written.status == 200
    assert client.get(f"{BIOS}/Settings").doc["Attributes"] == {"Boots": 4, "Tpm": "Clear"}
    assert client.get(BIOS).doc["Attributes"] == {"Boots": 3, "Tpm": "None"}
    client.post(RESET, {"ResetType": "On"})
    assert client.get(BIOS).doc["Attributes"] == {"Boots": 4, "Tpm": "None"}
    assert client.get(f"{BIOS}/Settings").doc["Attributes"] == {}
    assert client.patch(f"{BIOS}/Settings", {"Attributes": {"Nothing": 1}}).status == 400


def test_an_erase_takes_the_data_and_the_volumes_with_it(bmc: EmulatedBmc, clock: FakeClock, client: Client) -> None:
    bmc.machine.plant("DRIVE-0")
    accepted = client.post(f"{DRIVE}/Actions/Drive.SecureErase")
    assert accepted.status == 202
    assert bmc.machine.drives["DRIVE-0"].holds_data
    clock.now += 31
    assert client.get(accepted.headers["Location"]).doc["TaskState"] == "Completed"
    assert not bmc.machine.drives["DRIVE-0"].holds_data
    assert client.get(DRIVE).doc["Links"]["Volumes"] == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{SYSTEM}/Actions/Oem/Contoso.Explode", 501),
        (f"{SYSTEM}/Actions/Bios.ResetBios", 501),
        (f"{SYSTEM}/Storage", 405),
    ],
)
def test_what_is_not_acted_out_is_not_acknowledged(path: str, status: int, rack: Rack, client: Client) -> None:
    assert client.post(path, {}).status == status
    assert [write for write in rack.writes if write.kind == "effect"] == []


def test_only_a_slot_for_cds_takes_one_and_only_one(client: Client) -> None:
    insert = f"{CD}/Actions/VirtualMedia.InsertMedia"
    assert client.post(insert, {}).status == 400
    assert client.post(insert, {"Image": "http://192.0.2.1/a.iso"}).status == 400, "it would leave loopback"
    assert client.get(CD).doc["Inserted"] is False


def test_other_writes_stay_and_no_password_is_shown(bmc: EmulatedBmc, client: Client) -> None:
    account = f"{ROOT}/AccountService/Accounts/1"
    assert client.patch(SYSTEM, {"AssetTag": "r1u4"}).doc["AssetTag"] == "r1u4"
    assert client.patch(account, {"Password": "Another-1-Password"}).status == 200
    assert bmc.password.get_secret_value() == "Another-1-Password"
    assert "Another-1-Password" not in str(client.get(account).doc)


def test_the_racks_rules_hold_over_it(bmc: EmulatedBmc, client: Client) -> None:
    rule = Rule(method="POST", path="ComputerSystem.Reset$", answer=Reply(status=204), times=1)
    bmc.rule(rule)
    assert client.post(RESET, {"ResetType": "On"}).status == 204
    assert client.get(SYSTEM).doc["PowerState"] == "Off", "it was acknowledged, and not done"
    client.post(RESET, {"ResetType": "On"})
    assert client.get(SYSTEM).doc["PowerState"] == "On"


@pytest.mark.parametrize("query", ["$skip=2", "%24skip=2"])
def test_a_page_is_found_however_its_query_is_written(query: str, clock: FakeClock) -> None:
    docs = documents()
    second = f"{SYSTEM}/Memory?$skip=2"
    docs[second] = {"@odata.id": f"{SYSTEM}/Memory", "Members": [link(f"{SYSTEM}/Memory/DIMM2")]}
    rack, tree = Rack(clock=clock), RecordedTree(docs)
    machine = machine_of(tree, clock)
    bmc = rack.add_redfish("paged", machine=machine, source=RecordedSource(tree, machine))
    with rack, dialling(bmc) as client:
        assert client.get(f"{SYSTEM}/Memory?{query}").doc["Members"] == docs[second]["Members"]
