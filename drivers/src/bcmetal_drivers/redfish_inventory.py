"""The inventory by Redfish, section by section: what one section lacks never costs the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bcmetal_drivers.redfish_boot import mode_of, secure_boot_of
from bcmetal_drivers.redfish_chassis import Look, around, fans, pcie_devices, pcie_part, power_supplies, tpm_of
from bcmetal_drivers.redfish_document import Doc, link
from bcmetal_drivers.redfish_drives import drives_seen, in_order
from bcmetal_drivers.redfish_firmware_list import versions
from bcmetal_drivers.redfish_identity import bmc_info, identity_of
from bcmetal_drivers.redfish_memory import dimms, memory_bytes
from bcmetal_drivers.redfish_nics import Nics
from bcmetal_drivers.redfish_offered import capabilities
from bcmetal_drivers.redfish_parts import Part, order, said
from bcmetal_drivers.redfish_power import power_of
from bcmetal_drivers.redfish_processors import cpus, from_summary, gpus, of_model
from bcmetal_drivers.redfish_reading import Reading
from bcmetal_drivers.redfish_sections import Sections
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.redfish_volumes import volumes_seen
from bcmetal_drivers.resources import BmcInfo, Identity, Inventory

WHOLE: Final = ("ok", "absent")
UNKNOWN: Final = "unknown: the BMC tells of none; it may while the machine is on"


def inventory(tree: Tree) -> Inventory:
    """Raises only what makes every section vain; a slow BMC's inventory ends with the sections that came in time.

    What tells the machine, and what is needed to start and to erase it, is read first.
    """
    with tree.reading() as reading:
        system = tree.system()
        sections = Sections(tree)
        bare = Look(tree, reading, system)
        look = sections.read("chassis", lambda: around(bare)) or bare
        nics = _nics(sections, look)
        found_drives = in_order(sections.collect("drives", drives_seen(look)))
        bmc = sections.read("bmc", lambda: bmc_info(tree)) or BmcInfo(certificate_fp=tree.door.certificate_fp)
        secure = sections.read("secureBoot", lambda: secure_boot_of(tree.find(link(system, "SecureBoot"))))
        processors = _sorted(sections.collect("cpus", cpus(look)))
        modules = _sorted(sections.collect("memory", dimms(look)))
        memory = memory_bytes(system, modules, sections.status["memory"] in WHOLE)
        processors = _summed(sections, system, processors)
        if memory is None:
            _unknown(sections, "memory")
        elif not modules and sections.status["memory"] == "absent":
            sections.status["memory"], sections.source["memory"] = "ok", f"{tree.system_path()} (MemorySummary)"
        tpm = sections.read("tpm", lambda: tpm_of(look))
        devices = sections.collect("pcie", pcie_devices(look))
        pcie = _sorted(pcie_part(path, doc) for path, doc in devices)
        others: list[Part] = [*nics.adapters, *({"serial": one.serial} for one in found_drives if one.serial)]
        found_gpus = _sorted(sections.collect("gpus", gpus(look, devices, others)))
        return Inventory(
            identity=sections.read("identity", lambda: identity_of(look, nics.nics))
            or Identity(system_path=tree.system_path()),
            bmc=bmc,
            cpus=processors,
            memory_bytes=memory,
            dimms=modules,
            nics=nics.nics,
            adapters=nics.adapters,
            drives=found_drives,
            gpus=found_gpus,
            tpm=tpm,
            pcie=pcie,
            psus=_sorted(sections.collect("psus", power_supplies(look))),
            fans=_sorted(sections.collect("fans", fans(look))),
            volumes=tuple(sorted(sections.collect("volumes", volumes_seen(look)), key=lambda one: order(one.ref))),
            firmware=sections.read("firmware", lambda: _firmware(tree, reading)) or {},
            bios_version=said(system, "BiosVersion"),
            power=power_of(system),
            boot_mode=mode_of(system),
            secure_boot=secure,
            capabilities=sections.read(
                "capabilities", lambda: capabilities(look, any(drive.erasable for drive in found_drives))
            )
            or (),
            sections=sections.status,
            sources=sections.source,
            read_at=sections.read_at,
        )


def _nics(sections: Sections, look: Look) -> Nics:
    """What came before an error stays."""
    nics = Nics()

    def read() -> tuple[Part, ...]:
        nics.read(look)
        return nics.nics

    if sections.read("nics", read) is None and nics.nics:
        sections.status["nics"] = f"partial: {sections.status['nics']}"
    return nics


def _summed(sections: Sections, system: Doc, found: tuple[Part, ...]) -> tuple[Part, ...]:
    """Where no processor is told of, what the system's summary says; a machine without CPUs there is none."""
    if found or sections.status["cpus"] not in WHOLE:
        return tuple(of_model(system, one) for one in found)
    summed = tuple(from_summary(system))
    if summed:
        sections.status["cpus"] = "ok"
        sections.source["cpus"] = f"{sections.tree.system_path()} (ProcessorSummary)"
    else:
        _unknown(sections, "cpus")
    return summed


def _unknown(sections: Sections, name: str) -> None:
    if sections.status[name] in WHOLE:
        sections.status[name] = UNKNOWN


def _firmware(tree: Tree, reading: Reading) -> dict[str, str]:
    service = reading.lenient(link(tree.root(), "UpdateService"))
    return dict(versions(reading.documents(link(service, "FirmwareInventory"))))


def _sorted(found: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(sorted(found, key=lambda one: order(str(one.get("path") or ""))))
