"""The task `inventory`: everything that can be seen from inside the machine, section by section.

A section that cannot be read is empty and says why in `notes`; none keeps another from being read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, TypeVar

from bcmetal_agent import identifiers, wire, wire_tasks
from bcmetal_agent.tasks import (
    look_disks,
    look_gpus,
    look_kernel,
    look_lldp,
    look_nics,
    look_pci,
    look_processors,
    look_smart,
    look_smbios,
    look_tpm,
)
from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.look_bounds import fitted
from bcmetal_agent.tasks.look_files import Machine, link_name, names, raw
from bcmetal_agent.wire_inventory import Board, Disk, Firmware, Inventory, Neighbour

T = TypeVar("T")
E = TypeVar("E")

# What reading a file that is not as it should be raises. Stopped passes.
STUMBLES: Final = (OSError, TaskFailed, ValueError, LookupError, TypeError, struct.error, RecursionError)
MESSAGE_LIMIT: Final = wire_tasks.REPORT_LIMIT - 64 * 1024
_EFI: Final = "sys/firmware/efi"
_SECURE_BOOT: Final = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
THE_MACHINE: Final = Machine()


def inventory(
    params: wire_tasks.InventoryParams,
    doing: Doing,
    machine: Machine = THE_MACHINE,
    *,
    listen_s: float | None = None,
) -> Inventory:
    """`listen_s`: how long the switches are listened to; by default as long as they may take to speak, on a virtual machine hardly."""
    looking = _Looking(machine, doing)
    return within_limit(fitted(looking.everything(listen_s)))


class _Looking:
    def __init__(self, machine: Machine, doing: Doing) -> None:
        self.machine = machine
        self.doing = doing
        self.notes: dict[str, str] = {}
        self.done = 0

    def section(self, name: str, read: Callable[[], T], otherwise: E) -> T | E:
        self.doing.check()
        self.doing.progress(min(self.done * 70, 990), name)
        self.done += 1
        try:
            return read()
        except STUMBLES as error:
            reason = str(error) or type(error).__name__
            self.notes[name] = (
                reason if isinstance(error, TaskFailed | OSError) else f"{type(error).__name__}: {reason}"
            )
            self.doing.log(f"{name}: {self.notes[name]}\n")
            return otherwise

    def everything(self, listen_s: float | None) -> Inventory:
        machine, notes, section = self.machine, self.notes, self.section
        section("links", lambda: look_nics.raise_links(machine, self.doing.check), None)
        with ThreadPoolExecutor(1, "lldp") as beside:  # the switches speak when they like: the rest is read meanwhile
            hearing = beside.submit(lambda: section("lldp", lambda: self._listen(listen_s), dict[str, Neighbour]()))
            tables = section("smbios", lambda: look_smbios.read(machine), ())
            if not tables:
                notes.setdefault("smbios", "no tables: the firmware has none, or they may not be read")
            dimms = section("dimms", lambda: look_smbios.dimms(tables), ())
            sockets = look_smbios.processors(tables)
            installed = sum(one.size_bytes or 0 for one in dimms)
            pci = section("pci", lambda: look_pci.devices(machine), ())
            known = section(
                "names", lambda: look_pci.known_names(machine, {(d.vendor_id, d.device_id) for d in pci}), {}
            )
            live = self.doing if machine.live else None
            found = Inventory(
                identifiers=section("identifiers", lambda: identifiers.read(machine.root), wire.Identifiers()),
                board=section("board", lambda: look_smbios.board(machine, tables), Board()),
                firmware=section("firmware", lambda: self._firmware(tables), Firmware()),
                cpus=section("cpus", lambda: look_processors.cpus(machine, sockets, notes), ()),
                memory_bytes=section("memory", lambda: look_processors.memory(machine, installed, notes), None),
                dimms=dimms,
                disks=section("disks", self._disks, ()),
                gpus=section("gpus", lambda: look_gpus.gpus(pci, known, live, notes), ()),
                numa=section("numa", lambda: look_processors.numa(machine), ()),
                pci=pci,
                tpm=section("tpm", lambda: look_tpm.read(machine, notes), None),
                kernel=section("kernel", lambda: look_kernel.version(machine), None),
                complaints=section("complaints", lambda: look_kernel.complaints(machine), ()),
            )
            neighbours = hearing.result()
        models = {d.address: known.get((d.vendor_id, d.device_id), (None, None))[1] for d in pci}
        nics = section("nics", lambda: look_nics.nics(machine), ())
        named = tuple(replace(one, model=models.get(one.pci or ""), neighbour=neighbours.get(one.name)) for one in nics)
        return replace(found, nics=named, notes=dict(notes))

    def _listen(self, listen_s: float | None) -> dict[str, Neighbour]:
        machine = self.machine
        if not machine.live:
            return {}
        if listen_s is None:
            listen_s = look_lldp.LISTEN_VIRTUAL_S if look_processors.virtual(machine) else look_lldp.LISTEN_S
        linked = [name for name in look_nics.cards(machine) if look_nics.carrier(machine, name)]
        heard = look_lldp.listen(linked, self.doing.check, listen_s)
        drivers = {name: link_name(machine.path(look_nics.NET) / name / "device/driver") for name in linked}
        silent = look_lldp.silence(drivers, heard)
        if silent is not None and listen_s >= look_lldp.LISTEN_S:
            self.notes["lldp"] = silent
        return heard

    def _disks(self) -> tuple[Disk, ...]:
        found = look_disks.disks(self.machine)
        real = [one.name for one in found if not one.virtual_medium]
        if not self.machine.live or not real:
            return found
        health = self.section("health", lambda: look_smart.ask_all(real, self.doing), {})
        return tuple(_with_health(one, health.get(one.name)) for one in found)

    def _firmware(self, tables: tuple[look_smbios.Structure, ...]) -> Firmware:
        maker, version, date = look_smbios.bios(self.machine, tables)
        efi = self.machine.path(_EFI)
        if not efi.exists():
            return Firmware(maker, version, date, "legacy")
        variables = efi / "efivars"
        secure = raw(variables / _SECURE_BOOT, 16)
        if not names(variables, limit=1):
            self.notes["firmware"] = "the EFI variables are not mounted: secure boot is not known"
        return Firmware(maker, version, date, "uefi", secure[4] == 1 if secure and len(secure) == 5 else None)


def _with_health(disk: Disk, health: look_smart.Health | None) -> Disk:
    if health is None:
        return replace(disk, health=look_smart.UNKNOWN)
    detail = {**health.figures, **({"why": health.why} if health.why else {})}
    return replace(disk, health=health.word, health_detail=detail)


def within_limit(found: Inventory) -> Inventory:
    """A report has its bound: what is longest and matters least goes first, and `notes` say so."""
    shorter: tuple[tuple[str, Callable[[Inventory], Inventory]], ...] = (
        ("pci", lambda one: replace(one, pci=())),
        ("complaints", lambda one: replace(one, complaints=())),
        ("cpus", lambda one: replace(one, cpus=tuple(replace(cpu, flags=()) for cpu in one.cpus))),
        ("health", lambda one: replace(one, disks=tuple(replace(disk, health_detail={}) for disk in one.disks))),
        ("disks", lambda one: replace(one, disks=tuple(replace(disk, by_id=()) for disk in one.disks))),
    )
    for section, shorten in shorter:
        if len(wire.encode(found)) <= MESSAGE_LIMIT:
            break
        found = replace(shorten(found), notes={**found.notes, section: "cut: the report would be too long"})
    return found
