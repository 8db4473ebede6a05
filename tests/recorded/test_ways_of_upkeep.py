"""Logs, BIOS settings, power and its measures in the ways that makers' trees differ."""

from __future__ import annotations

from typing import Any

import pytest

from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.resources import BootDevice, PowerAction, PowerState
from recorded import trees
from recorded.bench import bmc_of
from recorded.trees import CHASSIS, SYSTEM, Docs, collection, link

# ---------------------------------------------------------------- logs


def logs(**entries: int) -> Docs:
    """Logs of the system by their ids, each with so many entries."""
    docs = trees.bare()
    where = f"{SYSTEM}/LogServices"
    services = {name: {"Entries": link(f"{where}/{name}/Entries")} for name in entries}
    docs[SYSTEM]["LogServices"] = collection(docs, where, services, "LogService")
    for name, many in entries.items():
        members = [{"@odata.id": f"{where}/{name}/Entries/{n}", "Id": str(n), "Message": name} for n in range(many)]
        docs[f"{where}/{name}/Entries"] = {"Members": members, "Members@odata.count": many}
    return docs


@pytest.mark.parametrize(
    ("there", "read"),
    [
        ({"SEL": 2, "EventLog": 1}, {"SEL"}),
        ({"SEL": 0, "EventLog": 1}, {"EventLog"}),
        ({"SEL": 0, "Log1": 2, "SecurityLog": 3}, {"Log1"}),
        ({"SEL": 0, "AuditLog": 3, "Journal": 9}, set()),
        ({"SystemEventLog": 1, "InternalEventLog": 4}, {"SystemEventLog"}),
        ({"Journal": 2}, {"Journal"}),
    ],
)
def test_a_log_that_nothing_writes_to_is_passed_over_for_one_of_the_hardware(
    there: dict[str, int], read: set[str]
) -> None:
    with bmc_of(logs(**there)) as bmc:
        assert {entry.message for entry in bmc.event_log()} == read


def test_the_log_that_was_chosen_stays_the_one_when_it_is_cleared_elsewhere_and_is_forgotten_when_it_is_gone() -> None:
    docs = logs(SEL=2, EventLog=1)
    with bmc_of(docs) as bmc:
        bmc.event_log()
        known = bmc.learned()
    assert known["log"] == f"{SYSTEM}/LogServices/SEL"
    with bmc_of(logs(SEL=0, EventLog=1), learned=known) as bmc:
        assert bmc.event_log() == ()
    with bmc_of(logs(EventLog=1), learned=known) as bmc:
        assert [entry.message for entry in bmc.event_log()] == ["EventLog"]
    with bmc_of(logs(SEL=0)) as bmc:
        assert bmc.event_log() == ()
        assert "log" not in bmc.learned(), "nothing shows yet which one is in use"


# ---------------------------------------------------------------- BIOS


def with_bios(settings: Any, at: str | None) -> Docs:
    docs = trees.bare()
    own = f"{SYSTEM}/Bios"
    docs[SYSTEM]["Bios"] = link(own)
    now = {"@odata.type": "#Bios.v1_0_0.Attributes", "Vt": "Enabled"}
    docs[own] = {"@odata.id": own, "Id": "Bios", "Attributes": now}
    if settings is not None:
        docs[own]["@Redfish.Settings"] = {"SettingsObject": settings}
    if at is not None:
        docs[at] = {"@odata.id": at, "Id": "Settings", "Attributes": {}}
    return docs


@pytest.mark.parametrize(
    ("settings", "at"),
    [
        (link(f"{SYSTEM}/Bios/Settings"), f"{SYSTEM}/Bios/Settings"),
        (link(f"{SYSTEM}/Oem/Next"), f"{SYSTEM}/Oem/Next"),
        (f"{SYSTEM}/Bios/Future", f"{SYSTEM}/Bios/Future"),
        (None, f"{SYSTEM}/Bios/SD"),
        (None, f"{SYSTEM}/Bios/Pending"),
        ({}, f"{SYSTEM}/Bios/Settings"),
        (None, None),
    ],
)
def test_bios_settings_wait_where_the_resource_says_or_where_makers_keep_them(settings: Any, at: str | None) -> None:
    docs = with_bios(settings, at)
    with bmc_of(docs) as bmc:
        assert bmc.bios().attributes == {"Vt": "Enabled"}
        bmc.set_bios({"Vt": "Disabled"})
        assert bmc.bios().pending == ({"Vt": "Disabled"} if at else {})
        if settings is None and at is not None:
            assert bmc.learned()["settings"] == {f"{SYSTEM}/Bios": at}


# ---------------------------------------------------------------- power


@pytest.mark.parametrize("as_a_reference", [True, False])
def test_the_resets_of_an_action_info_are_known_by_either_way_of_naming_it(as_a_reference: bool) -> None:
    docs = trees.bare()
    where = f"{SYSTEM}/ResetActionInfo"
    reset = docs[SYSTEM]["Actions"]["#ComputerSystem.Reset"]
    del reset["ResetType@Redfish.AllowableValues"]
    reset["@Redfish.ActionInfo"] = link(where) if as_a_reference else where
    docs[where] = {"Parameters": [{"Name": "ResetType", "AllowableValues": ["On", "Off", "ForceOff"]}]}
    with bmc_of(docs) as bmc:
        with pytest.raises(Unsupported, match="offers no cycle"):
            bmc.set_power(PowerAction.CYCLE)
        bmc.set_power(PowerAction.SOFT_OFF)
        assert bmc.power_state() is PowerState.OFF


def test_what_the_supplies_of_a_power_subsystem_take_is_the_machines_draw() -> None:
    docs = trees.by_the_chassis()
    supplies = f"{CHASSIS}/PowerSubsystem/PowerSupplies"
    for n, watts in ((1, 210), (2, "190.5")):
        docs[f"{supplies}/PSU{n}"]["Metrics"] = link(f"{supplies}/PSU{n}/Metrics")
        docs[f"{supplies}/PSU{n}/Metrics"] = {"Id": "Metrics", "InputPowerWatts": {"Reading": watts}}
    with bmc_of(docs) as bmc:
        assert bmc.power_draw_w() == 400.5


def test_a_power_supply_that_tells_its_capacity_alone_is_there() -> None:
    docs = trees.everything()
    docs[f"{CHASSIS}/Power"]["PowerSupplies"] = [
        {"Name": "PSU0", "Model": "Not Available", "PowerCapacityWatts": 800, "Status": {"State": "Enabled"}},
        {"Name": "PSU1", "PowerCapacityWatts": 0, "Status": None},
    ]
    with bmc_of(docs) as bmc:
        assert [psu["name"] for psu in bmc.inventory().psus] == ["PSU0"]


# ---------------------------------------------------------------- boot


def with_options(*offered: str) -> Docs:
    docs = trees.bare()
    options = {
        "Boot0001": {"BootOptionReference": "Boot0001", "UefiDevicePath": "MAC(001B21000001,0x1)/IPv4(0.0.0.0)"},
        "Boot0002": {"BootOptionReference": "Boot0002", "DisplayName": "UEFI: Virtual CDROM0 1.00"},
    }
    docs[SYSTEM]["Boot"] |= {
        "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", *offered],
        "BootOptions": collection(docs, f"{SYSTEM}/BootOptions", options, "BootOption"),
    }
    return docs


def test_where_only_an_option_can_be_named_for_the_next_boot_the_first_that_starts_the_device_is() -> None:
    with bmc_of(with_options("UefiBootNext", "Pxe")) as bmc:
        bmc.boot_once(BootDevice.CD)
        assert (bmc.boot_override().device, bmc.boot_override().once) == (BootDevice.CD, True)
        bmc.boot_once(BootDevice.PXE)
        assert bmc.boot_override().device is BootDevice.PXE
        with pytest.raises(Unsupported, match="cannot boot once from disk"):
            bmc.boot_once(BootDevice.DISK)
        bmc.boot_once(BootDevice.CD)
        bmc.clear_boot_override()
        assert bmc.boot_override().device is BootDevice.NONE
    with bmc_of(with_options("UefiTarget")) as bmc, pytest.raises(Unsupported, match="cannot boot once from cd"):
        bmc.boot_once(BootDevice.CD)
