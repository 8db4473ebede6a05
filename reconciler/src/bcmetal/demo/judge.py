"""The verdict, by the rack's oracle: not what the daemon says that it did, but what each machine would have booted and what it holds."""

from __future__ import annotations

from collections.abc import Sequence

from bcmetal.demo.faults import FORGETFUL, PlantedFault
from bcmetal.demo.images import Image
from bcmetal.demo.journey import Journey
from bcmetal.demo.site import Site
from bcmetal.states import State
from bcmetal_drivers.emulated.rack import EmulatedBmc, Machine, Rack
from bcmetal_drivers.resources import BootDevice, PowerState


def complaints(site: Site, journeys: Sequence[Journey], faults: Sequence[PlantedFault]) -> list[str]:
    """Everything that is not as it must be; empty when all is well. Asked after the daemon has ended."""
    found = [f"{j.name}: {j.fault}" for j in journeys if j.fault]
    found += [
        f"{j.name}: is {j.view.get('state')}, not retired" for j in journeys if j.view.get("state") != State.RETIRED
    ]
    for bmc in site.redfish:
        found += _of_machine(bmc.machine, site.images) + _of_bmc(bmc, site.rack)
    for bmc in site.ipmi:
        found += _is_off(bmc.machine) + _of_bmc(bmc, site.rack)
    found += [
        f"{j.name}: lost answers and sessions, and its timeline shows no recovery"
        for j in journeys
        if j.name == FORGETFUL and not j.recoveries
    ]
    found += [f"{f.bmc}: the fault {f.what!r} never came to bear" for f in faults if not site.rack.fired(f.rule_id)]
    return found


def _of_machine(machine: Machine, images: dict[str, Image]) -> list[str]:
    found = _is_off(machine)
    if machine.media is not None:
        found.append(f"{machine.name}: a medium is left inserted")
    booted = [(boot.device, boot.medium_sha256) for boot in machine.boots]
    deployed = _position(booted, BootDevice.CD, images["demo"].sha256, 0)
    if deployed is None:
        found.append(f"{machine.name}: never booted the image that it was deployed from")
        return found
    rescued = _position(booted, BootDevice.CD, images["rescue"].sha256, deployed + 1)
    if rescued is None:
        found.append(f"{machine.name}: never booted the rescue image after it was deployed")
        return found
    if _position(booted, BootDevice.DISK, None, rescued + 1) is None:
        found.append(f"{machine.name}: never booted from its disk after the rescue")
    holding = sorted(serial for serial, drive in machine.drives.items() if drive.holds_data)
    if holding:
        found.append(f"{machine.name}: drives still hold data: {', '.join(holding)}")
    return found


def _position(
    booted: Sequence[tuple[str, str | None]], device: BootDevice, sha256: str | None, first: int
) -> int | None:
    return next((n for n in range(first, len(booted)) if booted[n] == (device, sha256)), None)


def _is_off(machine: Machine) -> list[str]:
    return [] if machine.power is PowerState.OFF else [f"{machine.name}: power is {machine.power}"]


def _of_bmc(bmc: EmulatedBmc, rack: Rack) -> list[str]:
    left = rack.sessions(bmc)
    return [f"{bmc.name}: {left} sessions are left open"] if left else []
