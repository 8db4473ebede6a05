"""Ways of makers that public service trees show, beside the four that were recorded: each in the smallest tree that shows it."""

from __future__ import annotations

from typing import Any

import pytest

from bcmetal_drivers.errors import AmbiguousSystem, ServerFault, Unsupported
from bcmetal_drivers.resources import BootDevice, KeyReset
from recorded import trees
from recorded.bench import bmc_of
from recorded.trees import CHASSIS, GIB, MANAGER, ROOT, SYSTEM, Docs, a_cpu, a_gpu, collection, link

BOARD = f"{ROOT}/Systems/Baseboard"
ERROR = {"error": {"code": "Base.1.4.GeneralError", "message": "A general error has occurred.", "@Message.ExtendedInfo": [
    {"MessageId": "Base.1.4.ResourceMissingAtURI", "Message": "The resource at the URI was not found.", "Severity": "Critical"},
]}}  # fmt: skip


def beside_a_board_that_boots(**board: Any) -> Docs:
    docs = trees.beside_a_baseboard()
    docs[SYSTEM]["Bios"] = link(f"{SYSTEM}/Bios")
    docs[BOARD] |= {"VirtualMedia": link(f"{BOARD}/VirtualMedia"), "Storage": link(f"{BOARD}/Storage"), **board}
    return docs


def test_a_baseboard_of_gpus_that_can_be_reset_and_has_boot_settings_is_no_machine() -> None:
    with bmc_of(beside_a_board_that_boots()) as bmc:
        found = bmc.inventory()
    assert found.identity.system_path == SYSTEM
    assert len(found.gpus) == 8


@pytest.mark.parametrize("board", [{"BiosVersion": "1.0"}, {"Bios": link(f"{BOARD}/Bios")}])
def test_a_node_of_which_only_gpus_are_told_is_a_machine_where_it_has_a_bios(board: dict[str, Any]) -> None:
    with bmc_of(beside_a_board_that_boots(**board)) as bmc, pytest.raises(AmbiguousSystem, match="Baseboard"):
        bmc.identity()


def test_a_node_with_cpus_and_a_uuid_is_a_machine_though_it_tells_of_no_bios() -> None:
    docs = beside_a_board_that_boots()
    trees.set_parts(docs, BOARD, Processors={"CPU0": a_cpu(), "GPU0": a_gpu("GPU-0")})
    with bmc_of(docs) as bmc, pytest.raises(AmbiguousSystem):
        bmc.identity()
    docs[BOARD]["UUID"] = None
    with bmc_of(docs) as bmc:
        assert bmc.identity().system_path == SYSTEM


def test_a_serial_of_the_bmcs_board_is_not_the_machines() -> None:
    docs = trees.everything()
    docs[SYSTEM]["SerialNumber"] = None
    docs[CHASSIS] |= {"ChassisType": "Component", "SerialNumber": "BOARD"}
    with bmc_of(docs) as bmc:
        assert bmc.identity().serial is None
    shelf = trees.a_chassis(ChassisType="Shelf", SerialNumber="SHELF", Id="Shelf")
    docs[f"{ROOT}/Chassis/Shelf"] = shelf
    docs[f"{ROOT}/Chassis"]["Members"].append(link(f"{ROOT}/Chassis/Shelf"))
    with bmc_of(docs) as bmc:
        assert bmc.identity().serial == "SHELF"


def test_a_virtual_machine_has_the_addresses_that_it_says_are_permanent() -> None:
    docs = trees.bare()
    libvirt, manager = "52:54:00:12:34:56", "52:54:00:00:00:01"
    interfaces = {
        "1": {"MACAddress": libvirt, "PermanentMACAddress": libvirt},
        "ToManager": {"PermanentMACAddress": manager},
        "bond0": {"MACAddress": "02:00:00:00:00:01"},
    }
    trees.set_parts(docs, SYSTEM, EthernetInterfaces=interfaces)
    with bmc_of(docs) as bmc:
        assert bmc.identity().macs == (libvirt,)
    docs[f"{SYSTEM}/EthernetInterfaces/bond0"]["MACAddress"] = "00:1b:21:00:00:01"
    with bmc_of(docs) as bmc:
        assert bmc.identity().macs == ("00:1b:21:00:00:01",)


@pytest.mark.parametrize(
    ("told", "gib"),
    [(15625, 16), (7812, 8), (32768, 32), (129408, 126.375), (491520, 480)],  # Gigabyte, Accton, plain, Optane, GH200
)
def test_megabytes_that_were_taken_for_millions_of_bytes_are_mended(told: int, gib: float) -> None:
    docs = trees.bare()
    trees.set_parts(docs, SYSTEM, Memory={"1": trees.a_dimm("M1", CapacityMiB=told)})
    with bmc_of(docs) as bmc:
        assert [dimm["capacityBytes"] for dimm in bmc.inventory().dimms] == [gib * GIB]


def test_what_is_no_part_of_the_machine_is_not_told() -> None:
    docs = trees.simple_storage()
    devices = docs[f"{SYSTEM}/SimpleStorage/1"]["Devices"]
    devices += [
        {"Model": "Virtual Cdrom Device", "CapacityBytes": 2048},
        {"Model": "Virtual HDisk Device", "CapacityBytes": GIB},
    ]
    docs[MANAGER]["Oem"] = {"@odata.id": f"{MANAGER}#/Oem", "OpenBmc": {}}
    docs[ROOT]["Vendor"] = None
    docs[SYSTEM]["ProcessorSummary"] = {"Count": 1, "Model": "ARMv9"}
    gpus = {f"GPU{n}": a_gpu("0" * 14) for n in range(2)}
    trees.set_parts(docs, SYSTEM, Processors={"CPU0": a_cpu(Model=None), **gpus}, NetworkInterfaces={"1": {}})
    with bmc_of(docs) as bmc:
        found = bmc.inventory()
    assert [drive.model for drive in found.drives] == ["D-960"]
    assert found.bmc.maker == "OpenBmc"
    assert [cpu["model"] for cpu in found.cpus] == ["ARMv9"]
    assert ["serial" in gpu for gpu in found.gpus] == [False, False]
    assert found.adapters == ()


@pytest.mark.parametrize(
    ("name", "function", "is_gpu"),
    [
        ("NVIDIA T4 PCIe 16GB", {"VendorId": "0x10de"}, True),
        ("Accelerator", {"ClassCode": "0x120000", "VendorId": "0x1002"}, True),
        ("Video", {"ClassCode": "0x030000", "VendorId": "0x1a03"}, False),
        ("VIC 1477 MLOM", {"VendorId": "0x1137"}, False),
        ("NVIDIA NVLink Switch", {"VendorId": "0x10de"}, False),
        ("Root port", {"ClassCode": "0x060400", "VendorId": "0x10de"}, False),
    ],
)
def test_a_gpu_is_told_by_its_pci_class_else_by_its_vendor(name: str, function: dict[str, Any], is_gpu: bool) -> None:
    docs = trees.bare()
    trees.set_parts(docs, CHASSIS, PCIeDevices={"3": {"Name": name}})
    device = f"{CHASSIS}/PCIeDevices/3"
    docs[device]["PCIeFunctions"] = collection(docs, f"{device}/PCIeFunctions", {"0": function}, "PCIeFunction")
    with bmc_of(docs) as bmc:
        assert len(bmc.inventory().gpus) == is_gpu


def test_a_capacity_of_a_few_mib_was_counted_in_mib() -> None:
    docs = trees.everything()
    docs[f"{SYSTEM}/Storage/RAID/Drives/D0"]["CapacityBytes"] = 3815447
    with bmc_of(docs) as bmc:
        assert bmc.drives()[0].capacity_bytes == 3815447 * 1024**2


def test_a_member_that_is_listed_twice_and_counted_twice_is_not_missing() -> None:
    docs = trees.everything()
    memory = docs[f"{SYSTEM}/Memory"]
    memory["Members"].append(memory["Members"][0])
    memory["Members@odata.count"] += 1
    with bmc_of(docs) as bmc:
        assert bmc.inventory().sections["memory"] == "ok"


def test_a_success_that_says_that_there_is_no_such_resource_is_none() -> None:
    docs = trees.everything()
    docs[f"{CHASSIS}/Power"] = docs[f"{CHASSIS}/NetworkAdapters"] = docs[f"{SYSTEM}/Memory/DIMM1"] = ERROR
    docs[CHASSIS]["Sensors"] = collection(docs, f"{CHASSIS}/Sensors", {})
    with bmc_of(docs) as bmc:
        found = bmc.inventory()
        assert len(bmc.sensors()) == 1
        assert bmc.power_draw_w() is None
    assert [found.sections[name] for name in ("memory", "nics", "psus")] == ["ok", "ok", "absent"]


def test_collections_that_lead_nowhere_hold_nothing() -> None:
    docs = trees.bare()
    docs[SYSTEM]["Storage"] = link(f"{SYSTEM}/Storage")
    docs[MANAGER]["HostInterfaces"] = link(f"{MANAGER}/HostInterfaces")
    with bmc_of(docs) as bmc:
        assert (bmc.drives(), bmc.volumes(), bmc.host_ways()) == ((), (), ())


# ---------------------------------------------------------------- sensors


def a_sensor(name: str, value: float) -> dict[str, Any]:
    return {"Name": name, "ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": value}


def on_a_card() -> Docs:
    """A system that names the board of its BMC only, which is in a card that holds the sensors (BlueField 3, GB200)."""
    docs = trees.bare()
    card, gpu = f"{ROOT}/Chassis/Card", f"{ROOT}/Chassis/GPU"
    docs[CHASSIS] |= {"ChassisType": "Component", "Sensors": collection(docs, f"{CHASSIS}/Sensors", {})}
    docs[CHASSIS]["Links"]["ContainedBy"] = link(card)
    for path, kind, watts in ((gpu, "Module", 700), (card, "Card", 75)):
        name = path.rpartition("/")[2]
        docs[path] = {"Id": name, "ChassisType": kind, "Links": {"ComputerSystems": [link(SYSTEM)]}}
        docs[f"{ROOT}/Chassis"]["Members"].append(link(path))
        members = {f"T{n}": a_sensor(f"{name} T{n}", 40 + n) for n in range(2)}
        docs[path]["Sensors"] = collection(docs, f"{path}/Sensors", members, "Sensor")
        docs[path]["EnvironmentMetrics"] = link(f"{path}/EnvironmentMetrics")
        docs[f"{path}/EnvironmentMetrics"] = {"PowerWatts": {"Reading": watts}}
    docs[f"{ROOT}/Chassis/Other"] = {"Id": "Other", "Links": {"ComputerSystems": [link(f"{ROOT}/Systems/Other")]}}
    docs[f"{ROOT}/Chassis/Other"]["Sensors"] = collection(
        docs, f"{ROOT}/Chassis/Other/Sensors", {"T": a_sensor("O", 1)}
    )
    docs[f"{ROOT}/Chassis"]["Members"].append(link(f"{ROOT}/Chassis/Other"))
    return docs


def test_where_the_named_chassis_tell_of_little_the_machines_others_are_asked() -> None:
    with bmc_of(on_a_card()) as bmc:
        assert [one.name for one in bmc.sensors()] == ["GPU T0", "GPU T1", "Card T0", "Card T1"]
        assert bmc.power_draw_w() == 75, "the card's, and not that of a part of it"


def test_a_place_that_cannot_be_read_costs_its_own_sensors_only() -> None:
    docs = trees.everything()
    docs[f"{CHASSIS}/Power"]["PowerControl"] = [{"PowerConsumedWatts": 120}]
    docs[f"{CHASSIS}/Power"]["Voltages"] = [{"Name": f"V{n}", "ReadingVolts": n} for n in range(4)]
    with bmc_of(docs, (f"{CHASSIS}/Thermal",)) as bmc:
        assert [one.name for one in bmc.sensors()][:2] == ["Power", "V0"]
    with bmc_of(docs, (f"{CHASSIS}/Thermal", f"{CHASSIS}/Power")) as bmc:
        with pytest.raises(ServerFault):
            bmc.sensors()
        with pytest.raises(ServerFault):
            bmc.power_draw_w()


def test_an_alarm_is_no_measure_and_a_unit_is_what_the_kind_says_where_none_is_told() -> None:
    docs = trees.bare()
    told = {
        "1": {"Name": "PSU1 Failure", "ReadingType": "Power", "ReadingUnits": "", "Reading": 0},
        "2": {"Name": "Sys Power", "ReadingType": "Current", "ReadingUnits": "Watts", "Reading": 700},
        "3": {"Name": "Inlet", "ReadingType": "Temperature", "Reading": 20},
    }
    docs[CHASSIS]["Sensors"] = collection(docs, f"{CHASSIS}/Sensors", told, "Sensor")
    with bmc_of(docs) as bmc:
        assert [(one.kind.value, one.unit, one.value) for one in bmc.sensors()] == [
            ("other", None, 0), ("power", "W", 700), ("temperature", "Cel", 20),
        ]  # fmt: skip


# ---------------------------------------------------------------- the event log


def test_pages_that_repeat_since_the_query_is_not_heeded_are_read_once() -> None:
    docs = trees.bare()
    where = f"{MANAGER}/LogServices"
    docs[MANAGER]["LogServices"] = collection(docs, where, {"SEL": {"Entries": link(f"{where}/SEL/Entries")}})
    entries = [
        {"@odata.id": f"{where}/SEL/Entries/{n}", "Id": str(n), "Created": f"2026-01-0{n}T00:00:00Z", "Message": "M"}
        for n in (1, 2)
    ]
    page = {"Members": entries, "Members@odata.count": 5}
    for n in range(0, 90, 2):
        docs[f"{where}/SEL/Entries" + (f"?$skip={n}" if n else "")] = page | {
            "Members@odata.nextLink": f"{where}/SEL/Entries?$skip={n + 2}"
        }
    with bmc_of(docs) as bmc:
        assert [entry.ref for entry in bmc.event_log()] == ["1", "2"]


def test_of_several_logs_called_a_sel_the_one_that_is_one_by_name_is_taken() -> None:
    docs = trees.bare()
    for holder, name, told in (
        (SYSTEM, "BIOS", "System BIOS Log"),
        (MANAGER, "SEL", "IPMI SEL"),
        (CHASSIS, "Logs", "Logs"),
    ):
        where = f"{holder}/LogServices"
        entry = {"@odata.id": f"{where}/{name}/Entries/1", "Id": "1", "Message": name}
        service = {"Name": told, "LogEntryType": "SEL", "Entries": link(f"{where}/{name}/Entries")}
        docs[f"{where}/{name}/Entries"] = {"Members": [entry]}
        docs[holder]["LogServices"] = collection(docs, where, {name: service})
    for known in ("SEL", "Logs"):
        with bmc_of(docs) as bmc:
            assert [entry.message for entry in bmc.event_log()] == [known]
        docs[MANAGER].pop("LogServices", None)


# ---------------------------------------------------------------- boot, keys


def test_an_override_that_waits_in_the_settings_is_the_one_and_both_are_cleared() -> None:
    docs = trees.bare()
    docs[SYSTEM]["@Redfish.Settings"] = {"SettingsObject": link(f"{SYSTEM}/Settings")}
    lasting = {"BootSourceOverrideEnabled": "Continuous", "BootSourceOverrideTarget": "Hdd"}
    docs[SYSTEM]["Boot"] |= lasting
    docs[f"{SYSTEM}/Settings"] = {"Boot": lasting}
    with bmc_of(docs) as bmc:
        bmc.boot_once(BootDevice.CD)
        assert (bmc.boot_override().device, bmc.boot_override().once) == (BootDevice.CD, True)
        bmc.clear_boot_override()
        assert bmc.boot_override().device is BootDevice.NONE


def test_an_override_to_what_has_no_name_here_is_shown_and_can_be_cleared() -> None:
    docs = trees.bare()
    docs[SYSTEM]["Boot"] |= {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "UefiHttp"}
    with bmc_of(docs) as bmc:
        assert bmc.boot_override().device is BootDevice.OTHER
        with pytest.raises(Unsupported):
            bmc.boot_once(BootDevice.OTHER)
        bmc.clear_boot_override()
        assert bmc.boot_override().device is BootDevice.NONE


def test_keys_are_not_reset_where_the_platform_key_has_none_to_go_back_to() -> None:
    docs = trees.bare()
    where = f"{SYSTEM}/SecureBoot/SecureBootDatabases"

    def database(name: str, *kinds: str) -> dict[str, Any]:
        target = f"{where}/{name}/Actions/SecureBootDatabase.ResetKeys"
        offered = {"target": target, "ResetKeysType@Redfish.AllowableValues": list(kinds)}
        return {"DatabaseId": name, "Actions": {"#SecureBootDatabase.ResetKeys": offered}}

    kinds = {"dbt": ("DeleteAllKeys",), "db": ("ResetAllKeysToDefault",), "PK": ("DeleteAllKeys",)}
    docs[f"{SYSTEM}/SecureBoot"] = {
        "SecureBootDatabases": collection(docs, where, {name: database(name, *words) for name, words in kinds.items()})
    }
    with bmc_of(docs) as bmc, pytest.raises(Unsupported, match="does not offer"):
        bmc.reset_secure_boot_keys(KeyReset.FACTORY)
