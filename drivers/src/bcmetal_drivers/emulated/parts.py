"""Routes to what is in a system: processors, memory, chassis."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated import sensor_routes
from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, collection, link, resource
from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Answer, not_found
from bcmetal_drivers.resources import PowerState

HEALTHY: Final = {"State": "Enabled", "Health": "OK"}
SYSTEM: Final = r"/Systems/([^/]+)"


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
        path,
        "Processor.v1_18_0",
        f"CPU {number}",
        ProcessorType="CPU",
        ProcessorArchitecture="x86",
        InstructionSet="x86-64",
        Socket=f"CPU.{number}",
        Manufacturer=hardware.cpu_maker,
        Model=hardware.cpu_model,
        TotalCores=hardware.cores,
        TotalThreads=hardware.threads_per_core * hardware.cores,
        MaxSpeedMHz=3500,
        Status=HEALTHY,
    )


def list_memory(inside: Interior, call: Call, system: str) -> Answer:
    machine, path = inside.machine(system), f"{ROOT}/Systems/{system}/Memory"
    count = 0 if _shows_nothing(inside, machine) else _dimms(machine)
    return collection(path, "Memory", [f"{path}/DIMM.{n + 1}" for n in range(count)])


def show_memory(inside: Interior, call: Call, system: str, number: str) -> Answer:
    machine, path = inside.machine(system), f"{ROOT}/Systems/{system}/Memory/DIMM.{number}"
    if not 1 <= int(number) <= _dimms(machine):
        raise not_found(path)
    return resource(
        path,
        "Memory.v1_17_0",
        f"DIMM {number}",
        CapacityMiB=machine.hardware.dimm_mib,
        MemoryDeviceType="DDR4",
        OperatingSpeedMhz=3200,
        Manufacturer="Samsung",
        PartNumber="M393A4K40EB3-CWE",
        SerialNumber=f"{machine.serial}{number}",
        Status=HEALTHY,
    )


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
        f"{ROOT}/Chassis/1",
        "Chassis.v1_23_0",
        "Chassis",
        ChassisType="RackMount",
        Manufacturer=hardware.manufacturer,
        Model=hardware.model,
        SerialNumber=hardware.serial,
        SKU=hardware.sku,
        PartNumber=hardware.part_number,
        PowerState="On",
        Status=HEALTHY,
        Links={"ComputerSystems": systems, "ManagedBy": [link(f"{ROOT}/Managers/bmc")]},
        **sensor_routes.links(inside),
    )


ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", rf"{SYSTEM}/Processors", list_processors),
    ("GET", rf"{SYSTEM}/Processors/CPU\.(\d{{1,3}})", show_processor),
    ("GET", rf"{SYSTEM}/Memory", list_memory),
    ("GET", rf"{SYSTEM}/Memory/DIMM\.(\d{{1,3}})", show_memory),
    ("GET", r"/Chassis", list_chassis),
    ("GET", r"/Chassis/1", show_chassis),
)
