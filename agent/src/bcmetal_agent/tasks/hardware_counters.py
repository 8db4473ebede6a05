"""What the hardware counted of its own errors: machine checks, EDAC, PCIe AER, heat. Read before and after a test."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Final

from bcmetal_agent.tasks import look_kernel
from bcmetal_agent.tasks.look_files import Machine, names, number, raw, text

_EDAC: Final = "sys/devices/system/edac/mc"
_CPUS: Final = "sys/devices/system/cpu"
_SENSORS: Final = frozenset({"coretemp", "k10temp", "zenpower", "cpu_thermal"})


@dataclass(frozen=True, slots=True)
class Counters:
    """`corrected`, `uncorrected`: EDAC's and PCIe's. `machine_checks`: exceptions. `reported`: lines of the kernel's that begin with
    [Hardware Error], which is where a machine check ends up when no driver takes it. `throttled`: times that a core was slowed by heat."""

    corrected: int = 0
    uncorrected: int = 0
    machine_checks: int = 0
    reported: int = 0
    throttled: int = 0

    def since(self, before: Counters) -> Counters:
        """Never below 0: a counter may have been reset."""
        return Counters(*(max(getattr(self, one.name) - getattr(before, one.name), 0) for one in fields(self)))


def read(machine: Machine) -> Counters:
    corrected, uncorrected = _edac(machine)
    bus_corrected, bus_uncorrected = _pcie(machine)
    return Counters(
        corrected + bus_corrected,
        uncorrected + bus_uncorrected,
        _machine_checks(machine),
        look_kernel.hardware_errors(machine),
        _throttled(machine),
    )


def watched(machine: Machine) -> bool:
    """Whether the kernel has a driver that counts the memory controllers' errors."""
    return any(re.fullmatch(r"mc\d+", name) for name in names(machine.path(_EDAC)))


def _edac(machine: Machine) -> tuple[int, int]:
    folder = machine.path(_EDAC)
    controllers = [folder / name for name in names(folder) if re.fullmatch(r"mc\d+", name)]
    return (
        sum(number(one / "ce_count") or 0 for one in controllers),
        sum(number(one / "ue_count") or 0 for one in controllers),
    )


def _pcie(machine: Machine) -> tuple[int, int]:
    """The totals stand in the last line, as in `TOTAL_ERR_COR 0` (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats)."""
    folder = machine.path("sys/bus/pci/devices")
    corrected = uncorrected = 0
    for name in names(folder):
        corrected += _total(raw(folder / name / "aer_dev_correctable"))
        uncorrected += _total(raw(folder / name / "aer_dev_fatal")) + _total(raw(folder / name / "aer_dev_nonfatal"))
    return corrected, uncorrected


def _total(found: bytes | None) -> int:
    match = re.search(rb"TOTAL_ERR_\w+ (\d{1,15})", found or b"")
    return int(match[1]) if match else 0


def _machine_checks(machine: Machine) -> int:
    match = re.search(rb"^ *MCE:((?: +\d{1,15})+)", raw(machine.path("proc/interrupts"), 4 * 2**20) or b"", re.M)
    return sum(map(int, match[1].split())) if match else 0


def _throttled(machine: Machine) -> int:
    folder = machine.path(_CPUS)
    cpus = [folder / name / "thermal_throttle" for name in names(folder) if re.fullmatch(r"cpu\d+", name)]
    return sum(number(one / "core_throttle_count") or 0 for one in cpus)


def celsius(machine: Machine) -> int | None:
    """The hottest of the CPUs' sensors; None where none is told."""
    folder = machine.path("sys/class/hwmon")
    found = [
        value // 1000
        for name in names(folder)
        if text(folder / name / "name", 64) in _SENSORS
        for file in names(folder / name)
        if re.fullmatch(r"temp\d+_input", file) and (value := number(folder / name / file)) is not None
    ]
    return max(found, default=None)
