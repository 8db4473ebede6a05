"""Who the machine is and what is in it, as BMCs say it."""

from __future__ import annotations

from typing import Any, Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.replies import NULL, Reply

SYSTEM: Final = r"/redfish/v1/Systems/[^/]+"
HERE: Final = "/redfish/v1/Systems/<system>"
NICS: Final = f"{HERE}/EthernetInterfaces"
ADAPTER: Final = "/redfish/v1/Chassis/1/NetworkAdapters/1"


def _members(*paths: str) -> dict[str, Any]:
    return {"Members": [{"@odata.id": path} for path in paths], "Members@odata.count": len(paths)}


def _made(path: str, kind: str, **more: Any) -> dict[str, Any]:
    """A document that is there by the overlay alone."""
    name = path.rpartition("/")[2]
    return {"@odata.id": path, "@odata.type": f"#{kind}.v1_0_0.{kind}", "Id": name, "Name": name, **more}


def _nic(name: str, **more: Any) -> dict[str, Any]:
    return _made(f"{NICS}/{name}", "EthernetInterface", **more)


def _listed(path: str, kind: str, *members: str) -> dict[str, Any]:
    return {**_made(path, f"{kind}Collection"), **_members(*members)}


BEHAVIOURS: Final = (
    Behaviour(
        name="serial-is-the-boards",
        about="SerialNumber is the board's; the number on the label is the SKU (Dell).",
        setup={"maker": "dell"},
        overlay={SYSTEM: {"SerialNumber": "<board-serial>"}},
    ),
    Behaviour(
        name="serial-shared-by-blades",
        about="Both blades of a pair give the chassis' serial number.",
        setup={"systems": 2},
        overlay={SYSTEM: {"SerialNumber": "CHASSIS0001"}},
    ),
    Behaviour(
        name="uuid-byte-order",
        about="The UUID is in the other byte order than SMBIOS has it.",
        overlay={SYSTEM: {"UUID": "<uuid-swapped>"}},
    ),
    Behaviour(
        name="uuid-from-the-nic",
        about="The UUID is made of the active NIC's MAC, and changes with the NIC.",
        overlay={SYSTEM: {"UUID": "00000000-0000-0000-0000-<mac-1-bare>"}},
    ),
    Behaviour(
        name="nics-none-listed",
        about="No NIC is listed anywhere, and no boot option names one.",
        overlay={f"{SYSTEM}/EthernetInterfaces": _members(), f"{SYSTEM}/BootOptions": _members()},
    ),
    Behaviour(
        name="nics-under-adapters-only",
        about="The NICs are under the chassis' NetworkAdapters only (HPE, Cray, BlueField).",
        overlay={
            f"{SYSTEM}/EthernetInterfaces": _members(),
            SYSTEM: {"NetworkInterfaces": {"@odata.id": f"{HERE}/NetworkInterfaces"}},
            f"{SYSTEM}/NetworkInterfaces": _listed(f"{HERE}/NetworkInterfaces", "NetworkInterface", f"{HERE}/NetworkInterfaces/1"),
            f"{SYSTEM}/NetworkInterfaces/1": _made(
                f"{HERE}/NetworkInterfaces/1", "NetworkInterface", Links={"NetworkAdapter": {"@odata.id": ADAPTER}}
            ),
            ADAPTER: _made(ADAPTER, "NetworkAdapter", NetworkDeviceFunctions={"@odata.id": f"{ADAPTER}/NetworkDeviceFunctions"}),
            f"{ADAPTER}/NetworkDeviceFunctions": _listed(
                f"{ADAPTER}/NetworkDeviceFunctions", "NetworkDeviceFunction",
                *(f"{ADAPTER}/NetworkDeviceFunctions/{n}" for n in (1, 2)),
            ),
            **{
                f"{ADAPTER}/NetworkDeviceFunctions/{n}": _made(
                    f"{ADAPTER}/NetworkDeviceFunctions/{n}", "NetworkDeviceFunction", Ethernet={"MACAddress": f"<mac-{n}>"}
                )
                for n in (1, 2)
            },
        },
    ),
    Behaviour(
        name="nics-that-are-none",
        about="Among the NICs: one twice, one of zeros, a WWN, the host's USB NIC to the BMC, a local address, one with health null.",
        overlay={
            f"{SYSTEM}/EthernetInterfaces": _members(
                *(f"{NICS}/{name}" for name in ("NIC.1", "twin", "zero", "wwn", "ToManager", "local", "no-health"))
            ),
            f"{SYSTEM}/EthernetInterfaces/NIC\\.1": {
                **_nic("NIC.1", MACAddress="<mac-1>"), "PermanentMACAddress": "<mac-1>"
            },
            f"{SYSTEM}/EthernetInterfaces/twin": _nic("twin", MACAddress="<MAC-1>"),
            f"{SYSTEM}/EthernetInterfaces/zero": _nic("zero", MACAddress="00:00:00:00:00:00"),
            f"{SYSTEM}/EthernetInterfaces/wwn": _nic("wwn", MACAddress="50:06:0b:00:00:c2:62:00"),
            f"{SYSTEM}/EthernetInterfaces/ToManager": _nic("ToManager", MACAddress="0a:bc:de:f0:12:34", InterfaceEnabled=True),
            f"{SYSTEM}/EthernetInterfaces/local": _nic("local", MACAddress="02:00:00:00:00:01"),
            f"{SYSTEM}/EthernetInterfaces/no-health": _nic(
                "no-health", MACAddress="<mac-2>", Status={"Health": NULL, "State": NULL}, SpeedMbps=NULL
            ),
        },
    ),
    Behaviour(
        name="one-bad-nic",
        about="One of the NICs answers 500; the other is good.",
        rules=(
            Rule(
                method="GET", path=r"EthernetInterfaces/NIC\.2$",
                answer=Reply(status=500, code="InternalError", message="An internal error occurred."),
            ),
        ),
    ),
    Behaviour(
        name="numbers-as-strings",
        about="Numbers are strings.",
        overlay={
            SYSTEM: {"MemorySummary": {"TotalSystemMemoryGiB": "64"}},
            f"{SYSTEM}/Processors/[^/]+": {"TotalCores": "16", "TotalThreads": "32"},
            f"{SYSTEM}/Memory/[^/]+": {"CapacityMiB": "32768", "OperatingSpeedMhz": "3200"},
            f"{SYSTEM}/Storage/[^/]+/Drives/[^/]+": {"CapacityBytes": "960197124096"},
        },
    ),
    Behaviour(
        name="arrays-for-scalars",
        about="Lists stand where single values belong.",
        overlay={
            SYSTEM: {"AssetTag": ["x"], "HostName": [], "SKU": ["a", "b"], "IndicatorLED": ["Off"]},
            f"{SYSTEM}/Processors/[^/]+": {"Model": ["Xeon"], "TotalCores": [16]},
        },
    ),
    Behaviour(
        name="capacity-null",
        about="Drives and DIMMs do not tell their size.",
        overlay={
            f"{SYSTEM}/Storage/[^/]+/Drives/[^/]+": {"CapacityBytes": NULL},
            f"{SYSTEM}/Memory/[^/]+": {"CapacityMiB": NULL},
        },
    ),
    Behaviour(
        name="off-reports-no-cpus",
        about="A machine that is off reports no CPUs and no memory.",
        quirks={"empty_when_off": True},
    ),
    Behaviour(
        name="sections-404",
        about="Processors, memory and firmware are linked to and not there.",
        overlay={
            f"{SYSTEM}/Processors": None,
            f"{SYSTEM}/Memory": None,
            "/redfish/v1/UpdateService/FirmwareInventory": None,
        },
    ),
    Behaviour(
        name="sections-400",
        about="Processors and memory are answered 400.",
        rules=(
            Rule(
                method="GET", path="/(Processors|Memory)$",
                answer=Reply(status=400, code="ActionNotSupported", message="The resource is not supported."),
            ),
        ),
    ),
    Behaviour(
        name="sections-time-out",
        about="The list of processors is never answered.",
        rules=(Rule(action="delay", method="GET", path="/Processors$", seconds=60.0),),
    ),
    Behaviour(
        name="manufacturer-is-another",
        about="The machine's Manufacturer is a reseller; only the root and the manager name the BMC's maker.",
        setup={"maker": "supermicro"},
        overlay={SYSTEM: {"Manufacturer": "Nutanix", "Model": "NX-1065-G7"}},
    ),
    Behaviour(
        name="device-missing-until-the-bmc-is-reset",
        about="A drive that was plugged in is not shown before the BMC was reset.",
        quirks={"misses_a_drive": True},
    ),
)  # fmt: skip
