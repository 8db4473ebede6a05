"""Service trees of our own making: the ways in which makers' trees differ, each in the smallest tree that shows it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from bcmetal_drivers.emulated.recorded import RecordedTree

ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/Self"
CHASSIS = f"{ROOT}/Chassis/Main"
MANAGER = f"{ROOT}/Managers/BMC"
OK = {"State": "Enabled", "Health": "OK"}
ABSENT = {"State": "Absent", "Health": None}
EXPAND = {"ExpandQuery": {"NoLinks": True, "ExpandAll": True, "Levels": True, "MaxLevels": 1}}
GIB = 1024**3
Docs = dict[str, Any]


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def collection(docs: Docs, path: str, members: dict[str, Any], kind: str = "Thing") -> dict[str, str]:
    """Write a collection and its members by their ids; returns the link to it."""
    docs[path] = {
        "@odata.id": path,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Members": [link(f"{path}/{name}") for name in members],
        "Members@odata.count": len(members),
    }
    for name, doc in members.items():
        full = {"@odata.id": f"{path}/{name}", "@odata.type": f"#{kind}.v1_0_0.{kind}", "Id": name, "Name": name}
        docs[f"{path}/{name}"] = full | doc
    return link(path)


def bare(vendor: str | None = "Contoso", expands: bool = False) -> Docs:
    """A service with one system, one chassis, one manager, and nothing in them."""
    docs: Docs = {
        ROOT: {
            "@odata.id": ROOT,
            "@odata.type": "#ServiceRoot.v1_11_0.ServiceRoot",
            "RedfishVersion": "1.11.0",
            "Vendor": vendor,
            "SessionService": link(f"{ROOT}/SessionService"),
            "Links": {"Sessions": link(f"{ROOT}/SessionService/Sessions")},
            "UpdateService": link(f"{ROOT}/UpdateService"),
            "AccountService": link(f"{ROOT}/AccountService"),
            "ProtocolFeaturesSupported": EXPAND if expands else {},
        },
        f"{ROOT}/UpdateService": {"FirmwareInventory": link(f"{ROOT}/UpdateService/FirmwareInventory")},
        f"{ROOT}/AccountService": {"Accounts": link(f"{ROOT}/AccountService/Accounts")},
    }
    collection(docs, f"{ROOT}/AccountService/Accounts", {"1": {"UserName": "admin", "RoleId": "Administrator"}})
    firmware = {"BIOS": {"Name": "BIOS", "Version": "2.1"}, "BMC": {"Name": "BMC", "Version": "9.8.7"}}
    collection(docs, f"{ROOT}/UpdateService/FirmwareInventory", firmware, "SoftwareInventory")
    docs[ROOT]["Systems"] = collection(docs, f"{ROOT}/Systems", {"Self": a_system()}, "ComputerSystem")
    docs[ROOT]["Chassis"] = collection(docs, f"{ROOT}/Chassis", {"Main": a_chassis()}, "Chassis")
    manager = {
        "ManagerType": "BMC",
        "Model": "Model B",
        "FirmwareVersion": "9.8.7",
        "DateTime": "2026-01-02T03:04:05Z",
        "NetworkProtocol": link(f"{MANAGER}/NetworkProtocol"),
        "VirtualMedia": link(f"{MANAGER}/VirtualMedia"),
    }
    docs[ROOT]["Managers"] = collection(docs, f"{ROOT}/Managers", {"BMC": manager}, "Manager")
    docs[f"{MANAGER}/NetworkProtocol"] = {"HTTPS": {"ProtocolEnabled": True, "Port": 443}}
    slot = {"MediaTypes": ["CD", "DVD"], "Inserted": False, "Image": None, "Actions": _media_actions()}
    collection(docs, f"{MANAGER}/VirtualMedia", {"CD1": slot}, "VirtualMedia")
    return docs


def _media_actions() -> dict[str, Any]:
    where = f"{MANAGER}/VirtualMedia/CD1/Actions/VirtualMedia"
    return {
        "#VirtualMedia.InsertMedia": {"target": f"{where}.InsertMedia"},
        "#VirtualMedia.EjectMedia": {"target": f"{where}.EjectMedia"},
    }


def a_system(name: str = "Self", **more: Any) -> dict[str, Any]:
    path = f"{ROOT}/Systems/{name}"
    return {
        "SystemType": "Physical",
        "Manufacturer": "Fabrikam",
        "Model": "F-100",
        "SerialNumber": f"SER-{name}",
        "SKU": "F100-SKU",
        "UUID": "6f0e2b8e-63a5-4a3c-9a52-0f3f7d1c2b00",
        "BiosVersion": "2.1",
        "PowerState": "On",
        "Boot": {
            "BootSourceOverrideEnabled": "Disabled",
            "BootSourceOverrideTarget": "None",
            "BootSourceOverrideMode": "UEFI",
            "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd", "Cd", "BiosSetup"],
        },
        "Actions": {
            "#ComputerSystem.Reset": {
                "target": f"{path}/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown", "ForceRestart", "Nmi"],
            }
        },
        "SecureBoot": link(f"{path}/SecureBoot"),
        "Status": OK,
        "Links": {"ManagedBy": [link(MANAGER)], "Chassis": [link(CHASSIS)]},
        **more,
    }


def a_chassis(*systems: str, **more: Any) -> dict[str, Any]:
    named = [link(f"{ROOT}/Systems/{name}") for name in systems or ("Self",)]
    return {"ChassisType": "RackMount", "SerialNumber": "CH-1", "Links": {"ComputerSystems": named}, **more}


def a_cpu(**more: Any) -> dict[str, Any]:
    return {
        "ProcessorType": "CPU",
        "Model": "Contoso 9000",
        "TotalCores": 16,
        "TotalThreads": 32,
        "Status": OK,
        **more,
    }


def a_gpu(serial: str, **more: Any) -> dict[str, Any]:
    return {"ProcessorType": "GPU", "Model": "G-80", "SerialNumber": serial, "Status": OK, **more}


def a_dimm(serial: str, **more: Any) -> dict[str, Any]:
    return {
        "CapacityMiB": 32768,
        "MemoryDeviceType": "DDR5",
        "OperatingSpeedMhz": 4800,
        "SerialNumber": serial,
        "PartNumber": "M321",
        "Status": OK,
        **more,
    }


def a_drive(serial: str | None, **more: Any) -> dict[str, Any]:
    return {
        "SerialNumber": serial,
        "Model": "D-960",
        "CapacityBytes": 960_197_124_096,
        "MediaType": "SSD",
        "Protocol": "SATA",
        "Status": OK,
        **more,
    }


def set_parts(docs: Docs, system: str, **parts: dict[str, Any]) -> None:
    """Collections of a system (or of any other resource) by their names."""
    for name, members in parts.items():
        docs[system][name] = collection(docs, f"{system}/{name}", members, name.rstrip("s"))


# ---------------------------------------------------------------- the trees


def everything(expands: bool = False) -> Docs:
    """A plain machine that tells all that the standard has a place for."""
    docs = bare(expands=expands)
    set_parts(
        docs,
        SYSTEM,
        Processors={"CPU1": a_cpu(), "CPU2": a_cpu()},
        Memory={f"DIMM{n}": a_dimm(f"M{n}") for n in range(4)} | {"DIMM4": {"Status": ABSENT, "CapacityMiB": 0}},
        EthernetInterfaces={
            "1": {"MACAddress": "00:1B:21:00:00:01", "LinkStatus": "LinkUp", "SpeedMbps": 25000},
            "2": {"MACAddress": "00-1b-21-00-00-02", "LinkStatus": "LinkDown"},
        },
        Storage={"RAID": {}},
        PCIeDevices={"GPU9": {"SerialNumber": "P9", "Model": "G-80"}},
    )
    docs[f"{SYSTEM}/SecureBoot"] = {"SecureBootEnable": True}
    docs[SYSTEM]["TrustedModules"] = [{"InterfaceType": "TPM2_0", "FirmwareVersion": "7.2", "Status": OK}]
    docs[SYSTEM]["Links"]["Chassis"] = [link(CHASSIS)]
    storage = f"{SYSTEM}/Storage/RAID"
    drives = {f"D{n}": a_drive(f"DRIVE-{n}", PredictedMediaLifeLeftPercent=90 + n) for n in range(3)}
    collection(docs, f"{storage}/Drives", drives, "Drive")
    docs[storage] |= {"Drives": [link(f"{storage}/Drives/D{n}") for n in range(3)]}
    volume = {
        "RAIDType": "RAID1",
        "CapacityBytes": 960_000_000_000,
        "Links": {"Drives": [link(f"{storage}/Drives/D0"), link(f"{storage}/Drives/D1")]},
    }
    docs[storage]["Volumes"] = collection(docs, f"{storage}/Volumes", {"1": volume}, "Volume")
    power = [
        {"MemberId": "0", "Name": "PSU 0", "Model": "PS-800", "SerialNumber": "PSU-0", "PowerCapacityWatts": 800},
        {"MemberId": "1", "Name": "PSU 1", "Status": ABSENT},
    ]
    docs[f"{CHASSIS}/Power"] = {"Id": "Power", "Name": "Power", "PowerSupplies": power}
    docs[f"{CHASSIS}/Thermal"] = {"Id": "Thermal", "Name": "Thermal", "Fans": [{"FanName": "Fan 1", "Status": OK}]}
    docs[CHASSIS] |= {"Power": link(f"{CHASSIS}/Power"), "Thermal": link(f"{CHASSIS}/Thermal")}
    adapter = {
        "Model": "N-25",
        "SerialNumber": "CARD-1",
        "Controllers": [{"FirmwarePackageVersion": "14.2"}],
        "NetworkDeviceFunctions": link(f"{CHASSIS}/NetworkAdapters/Slot1/NetworkDeviceFunctions"),
        "Ports": link(f"{CHASSIS}/NetworkAdapters/Slot1/Ports"),
    }
    set_parts(docs, CHASSIS, NetworkAdapters={"Slot1": adapter})
    card = f"{CHASSIS}/NetworkAdapters/Slot1"
    functions = {
        str(n): {
            "NetDevFuncType": "Ethernet",
            "Ethernet": {"PermanentMACAddress": f"00:1b:21:00:00:0{n}"},
            "Links": {"PhysicalPortAssignment": link(f"{card}/Ports/{n}")},
        }
        for n in (1, 2, 3)
    }
    collection(docs, f"{card}/NetworkDeviceFunctions", functions, "NetworkDeviceFunction")
    ports = {str(n): {"LinkStatus": "LinkUp", "CurrentSpeedGbps": 25} for n in (1, 2, 3)}
    collection(docs, f"{card}/Ports", ports, "Port")
    return docs


def odd_values() -> Docs:
    """Numbers as strings, lists for scalars, null capacity, words for nothing, and addresses that are no NIC's."""
    docs = bare(vendor=None)
    docs[ROOT]["Oem"] = {"Northwind": {}}
    set_parts(
        docs,
        SYSTEM,
        Processors={
            "1": a_cpu(TotalCores="16", TotalThreads="32", InstructionSet=["x86-64"]),
            "2": {"Status": {"State": None}, "ProcessorType": "CPU", "Model": "N/A"},
            "FPGA": a_cpu(ProcessorType="FPGA"),
        },
        Memory={
            "A": a_dimm("M1", CapacityMiB="32768"),
            "B": a_dimm("M2", CapacityMiB=None),
            "C": a_dimm("N/A", PartNumber="NO DIMM", CapacityMiB=0),
        },
        EthernetInterfaces={
            "good": {"MACAddress": "001B21000001", "PermanentMACAddress": None},
            "dotted": {"MACAddress": "001b.2100.0002"},
            "again": {"MACAddress": "00:1b:21:00:00:01"},
            "zero": {"MACAddress": "00:00:00:00:00:00"},
            "wwn": {"MACAddress": "20:00:00:1b:21:00:00:01"},
            "guid": {"MACAddress": "001b:2100:0000:0001"},
            "group": {"MACAddress": "01:1b:21:00:00:01"},
            "local": {"MACAddress": "02:1b:21:00:00:01"},
            "listed": {"MACAddress": ["00:1b:21:00:00:03"]},
            "ToManager": {"MACAddress": "00:1b:21:00:00:99"},
            "usb0": {"MACAddress": "00:1b:21:00:00:98", "Description": "Host USB LAN"},
            "hif": {"MACAddress": "00:1b:21:00:00:97", "Links": {"HostInterface": link(f"{MANAGER}/HostInterfaces/1")}},
            "null": {"MACAddress": None, "Status": None},
        },
        Storage={"1": {}, "2": {"Drives": "none"}},
    )
    drives = {
        "0": a_drive(" D-0 ", CapacityBytes="960197124096"),
        "1": a_drive("D-1", CapacityBytes=None, Identifiers={"DurableNameFormat": "NAA", "DurableName": "5000c500a1"}),
        "2": a_drive(None, Model="D-960"),
        "3": a_drive(None, Model=None, Status=ABSENT),
        "4": a_drive("D-4", MediaType=None, Protocol=None, Name="NVMe SSD (0,1)"),
    }
    docs[f"{SYSTEM}/Storage/1"]["Drives"] = collection(docs, f"{SYSTEM}/Storage/1/Drives", drives, "Drive")
    docs[SYSTEM]["MemorySummary"] = {"TotalSystemMemoryGiB": "64"}
    docs[SYSTEM]["TrustedModules"] = {"InterfaceType": "TPM2_0"}
    return docs


def off() -> Docs:
    """A machine that is off, and so tells of no CPU and no memory."""
    docs = bare()
    set_parts(docs, SYSTEM, Processors={}, Memory={"A": {"CapacityMiB": 0, "Status": ABSENT}})
    docs[SYSTEM] |= {
        "PowerState": "Off",
        "ProcessorSummary": {"Count": 0, "Model": ""},
        "MemorySummary": {"TotalSystemMemoryGiB": 0},
    }
    return docs


def off_with_summary() -> Docs:
    """As `off`, but the BMC remembers what there was at the last start."""
    docs = off()
    docs[SYSTEM] |= {
        "ProcessorSummary": {"Count": 2, "Model": "Contoso 9000", "CoreCount": 32, "LogicalProcessorCount": 64},
        "MemorySummary": {"TotalSystemMemoryGiB": 256},
    }
    return docs


def by_the_chassis() -> Docs:
    """What newer services tell in the chassis only: drives, PowerSubsystem, ThermalSubsystem, TrustedComponents, PCIe links."""
    docs = bare(expands=True)
    set_parts(
        docs,
        CHASSIS,
        Drives={"Bay0": a_drive("BAY-0", Protocol="NVMe"), "Bay1": a_drive("BAY-1", Protocol="NVMe")},
        TrustedComponents={"TPM": {"Name": "TPM 2.0", "FirmwareVersion": "1.3"}},
    )
    for name, parts, kind in (("PowerSubsystem", "PowerSupplies", "PSU"), ("ThermalSubsystem", "Fans", "FAN")):
        where = f"{CHASSIS}/{name}"
        members = {f"{kind}{n}": {"Model": kind, "SerialNumber": f"{kind}-{n}", "Status": OK} for n in (1, 2)}
        docs[where] = {"Id": name, "Name": name, parts: collection(docs, f"{where}/{parts}", members, parts)}
        docs[CHASSIS][name] = link(where)
    devices = {
        "Slot1": {"Model": "Accelerator", "SerialNumber": "ACC-1", "Manufacturer": "NVIDIA"},
        "Vga": {"Name": "Onboard VGA"},
        "Slot2": {"Model": "HBA", "SerialNumber": "HBA-2"},
    }
    classes = {"Slot1": "ProcessingAccelerators", "Vga": "DisplayController", "Slot2": "MassStorageController"}
    collection(docs, f"{SYSTEM}/PCIeDevices", devices, "PCIeDevice")
    docs[SYSTEM]["PCIeDevices"] = [link(f"{SYSTEM}/PCIeDevices/{name}") for name in devices]
    for name, kind in classes.items():
        where = f"{SYSTEM}/PCIeDevices/{name}"
        functions = collection(docs, f"{where}/PCIeFunctions", {"0": {"DeviceClass": kind, "VendorId": "0x10de"}})
        docs[where]["PCIeFunctions"] = functions
    return docs


def simple_storage() -> Docs:
    docs = bare()
    devices = [
        {"Name": "SATA 0", "Model": "D-960", "CapacityBytes": 960_000_000_000},
        {"Name": "SATA 1", "Status": ABSENT},
    ]
    set_parts(docs, SYSTEM, SimpleStorage={"1": {"Devices": devices}})
    return docs


def beside_a_baseboard() -> Docs:
    """A host whose GPUs are on a baseboard that shows itself as a system, with a manager of its own, each listed first."""
    docs = bare()
    board = f"{ROOT}/Systems/Baseboard"
    docs[board] = {
        "Id": "Baseboard",
        "SystemType": "Physical",
        "UUID": "6f0e2b8e-63a5-4a3c-9a52-0f3f7d1c2bff",
        "Actions": {"#ComputerSystem.Reset": {"target": f"{board}/Actions/ComputerSystem.Reset"}},
        "Boot": {"BootSourceOverrideEnabled": "Disabled"},
    }
    docs[f"{ROOT}/Systems"]["Members"].insert(0, link(board))
    docs[f"{ROOT}/Systems"]["Members@odata.count"] = 2
    set_parts(
        docs, board, Processors={f"GPU{n}": a_gpu(f"GPU-{n}") for n in range(8)} | {"FPGA": a_cpu(ProcessorType="FPGA")}
    )
    set_parts(docs, SYSTEM, Processors={"CPU0": a_cpu()}, EthernetInterfaces={"1": {"MACAddress": "00:1b:21:00:00:01"}})
    docs[f"{ROOT}/Managers/Board"] = {"Id": "Board", "ManagerType": "BMC", "Model": "Board", "FirmwareVersion": "0.1"}
    docs[f"{ROOT}/Managers"]["Members"].insert(0, link(f"{ROOT}/Managers/Board"))
    docs[SYSTEM]["Links"]["ManagedBy"] = [link(f"{ROOT}/Managers/Board"), link(MANAGER)]
    docs[f"{ROOT}/Chassis/Board"] = a_chassis("Baseboard", Id="Board")
    docs[f"{ROOT}/Chassis"]["Members"].append(link(f"{ROOT}/Chassis/Board"))
    set_parts(docs, f"{ROOT}/Chassis/Board", PCIeDevices={"GPU0": {"SerialNumber": "GPU-0", "Model": "G-80"}})
    return docs


def all_on_the_baseboard() -> Docs:
    """As before, but the CPUs and their memory are on the baseboard too, and the host lists none."""
    docs = beside_a_baseboard()
    board = f"{ROOT}/Systems/Baseboard"
    set_parts(
        docs,
        board,
        Processors={f"CPU{n}": a_cpu(Model="Arm 72") for n in range(2)}
        | {f"GPU{n}": a_gpu(f"GPU-{n}") for n in range(4)},
        Memory={f"CPU{n}": a_dimm(f"LP-{n}", MemoryDeviceType="LPDDR5") for n in range(2)}
        | {f"GPU{n}": a_dimm(f"HBM-{n}", MemoryDeviceType="HBM3") for n in range(4)},
    )
    set_parts(docs, SYSTEM, Processors={}, Memory={})
    return docs


def blades() -> Docs:
    """Two machines behind one BMC, each in a chassis of its own, in an enclosure that is neither's."""
    docs = bare()
    docs[ROOT]["Systems"] = collection(docs, f"{ROOT}/Systems", {n: a_system(n) for n in ("Node1", "Node2")})
    chassis = {n.replace("Node", "Blade"): a_chassis(n, SerialNumber=f"CH-{n}") for n in ("Node1", "Node2")}
    docs[ROOT]["Chassis"] = collection(docs, f"{ROOT}/Chassis", {"Enclosure": {"ChassisType": "Enclosure"}, **chassis})
    for n in (1, 2):
        system, blade = f"{ROOT}/Systems/Node{n}", f"{ROOT}/Chassis/Blade{n}"
        docs[system]["UUID"] = f"6f0e2b8e-63a5-4a3c-9a52-0f3f7d1c2b0{n}"
        docs[system]["Links"]["Chassis"] = [link(blade)]
        set_parts(
            docs,
            system,
            Processors={"1": a_cpu()},
            EthernetInterfaces={"1": {"MACAddress": f"00:1b:21:00:01:0{n}"}},
        )
        set_parts(docs, blade, PCIeDevices={"1": {"Model": "HBA", "SerialNumber": f"HBA-{n}"}})
    return docs


def in_pages() -> Docs:
    """Collections in pages of two."""
    docs = everything()
    for path in (f"{SYSTEM}/Memory", f"{SYSTEM}/Processors", f"{ROOT}/UpdateService/FirmwareInventory"):
        members = docs[path]["Members"]
        for n in range(0, len(members), 2):
            where = path if n == 0 else f"{path}?$skip={n}"
            docs[where] = {"Members": members[n : n + 2], "Members@odata.count": len(members)}
            if n + 2 < len(members):
                docs[where]["Members@odata.nextLink"] = f"{path}?$skip={n + 2}"
    return docs


MAKERS: dict[str, Callable[[], Docs]] = {
    "everything": everything,
    "everything-expanded": lambda: everything(expands=True),
    "odd-values": odd_values,
    "off": off,
    "off-with-summary": off_with_summary,
    "by-the-chassis": by_the_chassis,
    "simple-storage": simple_storage,
    "beside-a-baseboard": beside_a_baseboard,
    "all-on-the-baseboard": all_on_the_baseboard,
    "blades": blades,
    "in-pages": in_pages,
}


def tree_of(docs: Docs) -> RecordedTree:
    return RecordedTree(deepcopy(docs))
