"""Routes to what is in a system: processors, memory, chassis, and storage with erasable drives.

How a client sees whether a drive holds data: `Links.Volumes` lists a volume for a written drive and nothing for an erased one; the
member is absent where the BMC does not tell. While an erase runs, `Operations` names it, its progress and its Task.
"""

from __future__ import annotations

from typing import Any, Final

from bcmetal_drivers.capabilities import PowerState
from bcmetal_drivers.emulated import sensor_routes
from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, accepted, collection, link, resource
from bcmetal_drivers.emulated.machine import EmulatedDrive, Machine
from bcmetal_drivers.emulated.messages import Answer, Refusal, not_found

CONTROLLER: Final = "Storage.1"
HEALTHY: Final = {"State": "Enabled", "Health": "OK"}
SYSTEM: Final = r"/Systems/([^/]+)"
STORAGE: Final = rf"{SYSTEM}/Storage/{CONTROLLER}"


# ---------------------------------------------------------------- processors, memory, chassis


def list_processors(inside: Interior, call: Call, system: str) -> Answer:
    machine, path = inside.machine(system), f"{ROOT}/Systems/{system}/Processors"
    count = 0 if _shows_nothing(inside, machine) else machine.hardware.cpus
    return collection(path, "Processor", [f"{path}/CPU.{n + 1}" for n in range(count)])


def show_processor(inside: Interior, call: Call, system: str, number: str) -> Answer:
    machine, path = inside.machine(system), f"{ROOT}/Systems/{system}/Processors/CPU.{number}"
    if not 1 <= int(number) <= machine.hardware.cpus:
        raise not_found(path)
    hardware = machine.hardware
    return resource(
        path, "Processor.v1_18_0", f"CPU {number}",
        ProcessorType="CPU", ProcessorArchitecture="x86", InstructionSet="x86-64", Socket=f"CPU.{number}",
        Manufacturer=hardware.cpu_maker, Model=hardware.cpu_model, TotalCores=hardware.cores,
        TotalThreads=hardware.threads_per_core * hardware.cores, MaxSpeedMHz=3500, Status=HEALTHY,
    )  # fmt: skip


def list_memory(inside: Interior, call: Call, system: str) -> Answer:
    machine, path = inside.machine(system), f"{ROOT}/Systems/{system}/Memory"
    count = 0 if _shows_nothing(inside, machine) else _dimms(machine)
    return collection(path, "Memory", [f"{path}/DIMM.{n + 1}" for n in range(count)])


def show_memory(inside: Interior, call: Call, system: str, number: str) -> Answer:
    machine, path = inside.machine(system), f"{ROOT}/Systems/{system}/Memory/DIMM.{number}"
    if not 1 <= int(number) <= _dimms(machine):
        raise not_found(path)
    return resource(
        path, "Memory.v1_17_0", f"DIMM {number}",
        CapacityMiB=machine.hardware.dimm_mib, MemoryDeviceType="DDR4", OperatingSpeedMhz=3200, Manufacturer="Samsung",
        PartNumber="M393A4K40EB3-CWE", SerialNumber=f"{machine.serial}{number}", Status=HEALTHY,
    )  # fmt: skip


def _shows_nothing(inside: Interior, machine: Machine) -> bool:
    return inside.quirks.empty_when_off and machine.power is PowerState.OFF


def _dimms(machine: Machine) -> int:
    return machine.hardware.memory_gib * 1024 // machine.hardware.dimm_mib


def list_chassis(inside: Interior, call: Call) -> Answer:
    return collection(f"{ROOT}/Chassis", "Chassis", [f"{ROOT}/Chassis/1"])


def show_chassis(inside: Interior, call: Call) -> Answer:
    hardware = next(iter(inside.machines.values())).hardware
    systems = [link(f"{ROOT}/Systems/{system}") for system in inside.machines]
    return resource(
        f"{ROOT}/Chassis/1", "Chassis.v1_23_0", "Chassis",
        ChassisType="RackMount", Manufacturer=hardware.manufacturer, Model=hardware.model, SerialNumber=hardware.serial,
        SKU=hardware.sku, PartNumber=hardware.part_number, PowerState="On", Status=HEALTHY,
        Links={"ComputerSystems": systems, "ManagedBy": [link(f"{ROOT}/Managers/bmc")]},
        **sensor_routes.links(inside),
    )  # fmt: skip


# ---------------------------------------------------------------- storage


def list_storage(inside: Interior, call: Call, system: str) -> Answer:
    inside.machine(system)
    path = f"{ROOT}/Systems/{system}/Storage"
    return collection(path, "Storage", [f"{path}/{CONTROLLER}"])


def show_storage(inside: Interior, call: Call, system: str) -> Answer:
    machine, path = inside.machine(system), f"{ROOT}/Systems/{system}/Storage/{CONTROLLER}"
    serials = list(machine.drives)[: -1 if inside.quirks.misses_a_drive else None]
    drives = [link(f"{path}/Drives/{serial}") for serial in serials]
    return resource(
        path, "Storage.v1_15_0", "Storage controller",
        **{"Drives": drives, "Drives@odata.count": len(drives), "Volumes": link(f"{path}/Volumes"), "Status": HEALTHY},
    )  # fmt: skip


def show_drive(inside: Interior, call: Call, system: str, serial: str) -> Answer:
    machine = inside.machine(system)
    drive, path = _drive(machine, system, serial), _path(system, serial)
    more: dict[str, Any] = {}
    if inside.quirks.volumes_shown:
        volumes = [] if drive.says_erased else [link(f"{ROOT}/Systems/{system}/Storage/{CONTROLLER}/Volumes/{serial}")]
        more["Links"] = {"Volumes": volumes, "Volumes@odata.count": len(volumes)}
    if inside.quirks.erase:
        target = f"{path}/Actions/Drive.SecureErase"
        more["Actions"] = {"#Drive.SecureErase": {"target": target}}
    task = inside.tasks.running_on(path)
    if task is not None:
        percent = inside.tasks.percent(task)
        operation = {"OperationName": "Sanitize", "PercentageComplete": percent, "AssociatedTask": link(task.path)}
        more["Operations"] = [operation]
    if drive.wwn:
        more["Identifiers"] = [{"DurableNameFormat": "NAA", "DurableName": drive.wwn}]
    return resource(
        path, "Drive.v1_18_0", f"Drive {serial}",
        SerialNumber=drive.serial, Model=drive.model, Manufacturer=drive.manufacturer, MediaType=drive.media,
        Protocol=drive.protocol, CapacityBytes=drive.capacity_bytes, Status=HEALTHY, **more,
    )  # fmt: skip


def list_volumes(inside: Interior, call: Call, system: str) -> Answer:
    machine, path = inside.machine(system), f"{ROOT}/Systems/{system}/Storage/{CONTROLLER}/Volumes"
    shown = inside.quirks.volumes_shown
    written = [f"{path}/{d.serial}" for d in machine.drives.values() if shown and not d.says_erased]
    return collection(path, "Volume", written)


def show_volume(inside: Interior, call: Call, system: str, serial: str) -> Answer:
    path = f"{ROOT}/Systems/{system}/Storage/{CONTROLLER}/Volumes/{serial}"
    drive = inside.machine(system).drives.get(serial)
    if drive is None or drive.says_erased:
        raise not_found(path)
    return resource(
        path, "Volume.v1_9_0", f"Volume on {serial}",
        RAIDType="RAID0", VolumeType="RawDevice", CapacityBytes=drive.capacity_bytes,
        Links={"Drives": [link(_path(system, serial))]}, Status=HEALTHY,
    )  # fmt: skip


def erase_drive(inside: Interior, call: Call, system: str, serial: str) -> Answer:
    """A Task at whose end the data is gone, or is said to be."""
    machine = inside.machine(system)
    _drive(machine, system, serial)
    path = _path(system, serial)
    if not inside.quirks.erase:
        raise Refusal(400, "ActionNotSupported", "The action Drive.SecureErase is not supported by the resource.")
    if inside.tasks.running_on(path) is not None:
        raise Refusal(409, "ResourceInUse", "The drive is being erased already.")
    lie = inside.quirks.erase_lie
    rule = call.rule("says_erased")
    if rule is not None and rule.fire():
        lie = rule.rule.lie

    def effect() -> bool:
        machine.erase(serial, really=lie is None, visibly=lie != "visible")
        return True

    deferred = call.rule("task")
    if deferred is not None and deferred.fire():
        seconds, ends = deferred.rule.seconds, deferred.rule.ends
    else:
        seconds, ends = inside.quirks.erase_s, "completed"
    return accepted(inside.tasks, inside.tasks.start(f"Erase of {serial}", seconds, effect, ends, path))


def _drive(machine: Machine, system: str, serial: str) -> EmulatedDrive:
    try:
        return machine.drives[serial]
    except KeyError:
        raise not_found(_path(system, serial)) from None


def _path(system: str, serial: str) -> str:
    return f"{ROOT}/Systems/{system}/Storage/{CONTROLLER}/Drives/{serial}"


ERASE: Final = rf"{STORAGE}/Drives/([^/]+)/Actions/Drive\.SecureErase"
ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", rf"{SYSTEM}/Processors", list_processors),
    ("GET", rf"{SYSTEM}/Processors/CPU\.(\d{{1,3}})", show_processor),
    ("GET", rf"{SYSTEM}/Memory", list_memory),
    ("GET", rf"{SYSTEM}/Memory/DIMM\.(\d{{1,3}})", show_memory),
    ("GET", r"/Chassis", list_chassis),
    ("GET", r"/Chassis/1", show_chassis),
    ("GET", rf"{SYSTEM}/Storage", list_storage),
    ("GET", STORAGE, show_storage),
    ("GET", rf"{STORAGE}/Drives/([^/]+)", show_drive),
    ("GET", rf"{STORAGE}/Volumes", list_volumes),
    ("GET", rf"{STORAGE}/Volumes/([^/]+)", show_volume),
    ("POST", ERASE, erase_drive),
)
