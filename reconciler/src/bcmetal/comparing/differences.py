"""Where a machine's BMC and the agent inside it see different things.

A BMC may be silent: about add-in cards, about disks behind a controller or straight at the CPU, about GPUs. So what only the agent sees is
told of only where the BMC knows its neighbours (another port of that card, other disks of that kind). What the BMC tells and the
agent does not find is always told of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bcmetal.comparing.spelling import folded, mac, same_model, same_serial, same_wwn
from bcmetal.placeholders import normal_serial, normal_uuid, usable_serial, usable_uuid
from bcmetal_agent.wire_inventory import Disk, Nic
from bcmetal_agent.wire_inventory import Inventory as AgentInventory
from bcmetal_drivers.resources import Drive
from bcmetal_drivers.resources import Inventory as BmcInventory

GIB: Final = 2**30
# Of memory, the kernel does not get: firmware's tables, the CPU's own graphics, a share for a crash kernel.
_KERNEL_LACKS: Final = 0.08
_KERNEL_LACKS_BYTES: Final = GIB
_ROUNDED: Final = 0.03  # BMCs tell disks in GB or GiB, rounded, before or after the controller took its part
_VIRTUAL_DRIVERS: Final = ("cdc_", "rndis", "usb", "veth", "tun", "bridge")


@dataclass(frozen=True, slots=True)
class Difference:
    """`component` such as `memory` or `disk S4EVNX0`; `bmc` and `agent`: what each says of it."""

    component: str
    bmc: str
    agent: str

    def __str__(self) -> str:
        return f"{self.component}: the BMC says {self.bmc}, the agent sees {self.agent}"


def differences(agent: AgentInventory, bmc: BmcInventory) -> tuple[Difference, ...]:
    """In the order of a machine's parts. Sections that either could not read are passed over."""
    return (
        *_identity(agent, bmc),
        *_firmware(agent, bmc),
        *_cpus(agent, bmc),
        *_memory(agent, bmc),
        *_disks(agent, bmc),
        *_nics(agent, bmc),
        *_gpus(agent, bmc),
        *_tpm(agent, bmc),
    )


def _identity(agent: AgentInventory, bmc: BmcInventory) -> Iterator[Difference]:
    told, board = bmc.identity, agent.board
    theirs, ours = normal_uuid(told.product_uuid or ""), normal_uuid(agent.identifiers.product_uuid or "")
    if theirs and ours and theirs != ours and usable_uuid(theirs) and usable_uuid(ours):
        yield Difference("product UUID", str(told.product_uuid), str(agent.identifiers.product_uuid))
    serials = [agent.identifiers.serial, board.serial, board.chassis_serial, board.board_serial]
    known = [one for one in serials if one and usable_serial(normal_serial(one))]
    # makers differ in whether a blade's BMC tells the system's, the chassis' or the board's
    if known and _usable(told.serial) and not any(same_serial(told.serial, one) for one in known):
        yield Difference("serial number", str(told.serial), known[0])


def _firmware(agent: AgentInventory, bmc: BmcInventory) -> Iterator[Difference]:
    seen = agent.firmware
    if bmc.boot_mode is not None and seen.boot_mode is not None and bmc.boot_mode.value != seen.boot_mode:
        yield Difference("boot mode", bmc.boot_mode.value, seen.boot_mode)
    if bmc.secure_boot is not None and seen.secure_boot is not None and bmc.secure_boot != seen.secure_boot:
        yield Difference("secure boot", _on(bmc.secure_boot), _on(seen.secure_boot))
    told = {
        name: version
        for name, version in bmc.firmware.items()
        if "bios" in name.lower() or "system rom" in name.lower() or "uefi" in name.lower()
    }
    if told and seen.version and not any(_holds(version, seen.version) for version in told.values()):
        yield Difference("BIOS version", ", ".join(sorted(set(told.values()))), seen.version)


def _holds(one: str, other: str) -> bool:
    """`BIOS Date: 03/12/2021 Ver 1.4a` and `1.4a`, `U32 v2.78 (03/16/2023)` and `U32`."""
    short, long = sorted((folded(one), folded(other)), key=len)
    return short != "" and short in long


def _on(value: bool) -> str:
    return "on" if value else "off"


def _cpus(agent: AgentInventory, bmc: BmcInventory) -> Iterator[Difference]:
    if not bmc.cpus or not agent.cpus:
        return
    if len(bmc.cpus) != len(agent.cpus):
        yield Difference("CPUs", str(len(bmc.cpus)), str(len(agent.cpus)))
    models = [str(one["model"]) for one in bmc.cpus if one.get("model")]
    seen = agent.cpus[0].model
    if models and seen and not any(same_model(one, seen) for one in models):
        yield Difference("CPU model", models[0], seen)
    # a hypervisor, or the firmware's setup, may leave cores out: that is what this is for
    for what in ("cores", "threads"):
        theirs, ours = [one.get(what) for one in bmc.cpus], [getattr(one, what) for one in agent.cpus]
        if len(theirs) == len(ours) and all(theirs) and all(ours):
            there, here = sum(int(str(one)) for one in theirs), sum(ours)
            if there != here:
                yield Difference(f"CPU {what}", str(there), str(here))


def _memory(agent: AgentInventory, bmc: BmcInventory) -> Iterator[Difference]:
    installed = sum(one.size_bytes or 0 for one in agent.dimms)
    told = bmc.memory_bytes
    if told and installed and abs(told - installed) > max(0.01 * installed, GIB / 2):
        yield Difference("memory in its slots", _gib(told), _gib(installed))
    if told and agent.memory_bytes:
        lacks = max(_KERNEL_LACKS * told, _KERNEL_LACKS_BYTES)
        if agent.memory_bytes < told - lacks or (not installed and agent.memory_bytes > told + lacks):
            yield Difference("memory that the kernel has", _gib(told), _gib(agent.memory_bytes))
    yield from _dimms(agent, bmc)


def _dimms(agent: AgentInventory, bmc: BmcInventory) -> Iterator[Difference]:
    if not bmc.dimms or not agent.dimms:
        return
    theirs = {str(one["serial"]): one for one in bmc.dimms if _usable(one.get("serial"))}
    ours = {str(one.serial): one for one in agent.dimms if _usable(one.serial)}
    if len(theirs) == len(bmc.dimms) and len(ours) == len(agent.dimms):
        for serial, told in theirs.items():
            if not any(_same_module(serial, other) for other in ours):
                yield Difference(f"memory module {serial}", f"it is in {told.get('id') or 'a slot'}", "no such module")
        for serial, seen in ours.items():
            if not any(_same_module(serial, other) for other in theirs):
                yield Difference(f"memory module {serial}", "no such module", f"it in {seen.slot}")
    elif len(bmc.dimms) != len(agent.dimms):
        yield Difference("memory modules", str(len(bmc.dimms)), str(len(agent.dimms)))


def _same_module(one: str, other: str) -> bool:
    """Some write 32 bits of hexadecimal digits with 0x before or zeros in front, and others do not."""
    return folded(one).removeprefix("0x").lstrip("0") == folded(other).removeprefix("0x").lstrip("0")


def _usable(serial: object) -> bool:
    return bool(serial) and usable_serial(normal_serial(str(serial)))


def _disks(agent: AgentInventory, bmc: BmcInventory) -> Iterator[Difference]:
    told = [one for one in bmc.drives if _usable(one.serial)]
    if not told or "disks" in agent.notes:
        return
    own = [one for one in agent.disks if not (one.virtual_medium or one.shared or one.transport in ("usb", "mmc"))]
    pairs = [(drive, next((disk for disk in own if _same_disk(drive, disk)), None)) for drive in told]
    matched = [disk.name for _, disk in pairs if disk is not None]
    strangers = [disk for disk in own if disk.name not in matched]
    # a RAID controller shows its volumes to the system, and to the BMC the drives behind
    volumes = any(one.transport == "scsi" for one in strangers)
    for drive, disk in pairs:
        label = f"disk {drive.serial}"
        if disk is None:
            if not volumes:
                yield Difference(
                    label, f"it is there ({_words(drive.model, _gb(drive.capacity_bytes))})", "no such disk"
                )
            continue
        if drive.capacity_bytes and abs(drive.capacity_bytes - disk.size_bytes) > _ROUNDED * disk.size_bytes:
            yield Difference(f"{label} size", _gb(drive.capacity_bytes), _gb(disk.size_bytes))
        if drive.model and disk.model and not same_model(drive.model, disk.model):
            yield Difference(f"{label} model", drive.model, disk.model)
        failing = (drive.health or "").lower() in ("critical", "warning")
        if disk.health in ("ok", "failing") and drive.health and failing != (disk.health == "failing"):
            yield Difference(f"{label} health", drive.health.lower(), disk.health)
    kinds = {_kind_of_drive(drive) for drive in told}
    for disk in strangers:
        if _kind(disk) in kinds and disk.transport != "scsi" and _usable(disk.serial):
            yield Difference(
                f"disk {disk.serial}", "no such disk", f"it as {disk.name} ({_words(disk.model, _gb(disk.size_bytes))})"
            )


def _same_disk(drive: Drive, disk: Disk) -> bool:
    return same_serial(drive.serial, disk.serial) or same_wwn(drive.wwn, disk.wwn)


def _kind_of_drive(drive: Drive) -> str:
    return "nvme" if drive.media == "nvme" or "nvme" in (drive.model or "").lower() else "other"


def _kind(disk: Disk) -> str:
    return "nvme" if disk.transport == "nvme" else "other"


def _nics(agent: AgentInventory, bmc: BmcInventory) -> Iterator[Difference]:
    if not bmc.nics or "nics" in agent.notes:
        return
    theirs = {found: one for one in bmc.nics if (found := mac(one.get("mac"))) is not None}
    ours: dict[str, Nic] = {}
    for nic in agent.nics:
        if not (nic.driver or "").startswith(_VIRTUAL_DRIVERS):
            for spelt in (nic.permanent_mac, nic.mac):
                found = mac(spelt)
                if found is not None:
                    ours.setdefault(found, nic)
    for address, told in theirs.items():
        if address not in ours:
            yield Difference(f"network card {address}", f"it is there ({_nic_words(told)})", "no such card")
    known_cards = {_card(nic) for address, nic in ours.items() if address in theirs and nic.pci}
    for nic in {nic.name: nic for nic in ours.values()}.values():
        addresses = {found for found in (mac(nic.permanent_mac), mac(nic.mac)) if found}
        if nic.pci and _card(nic) in known_cards and not addresses & set(theirs):
            yield Difference(f"network card {min(addresses)}", "no such card", f"it as {nic.name}")


def _card(nic: Nic) -> str:
    """The PCI device without its function: the ports of one card."""
    return (nic.pci or "").rpartition(".")[0]


def _nic_words(told: Mapping[str, Any]) -> str:
    return str(told.get("name") or told.get("id") or "without a name")


def _gpus(agent: AgentInventory, bmc: BmcInventory) -> Iterator[Difference]:
    if bmc.gpus and "pci" not in agent.notes and len(bmc.gpus) != len(agent.gpus):
        yield Difference("GPUs", str(len(bmc.gpus)), str(len(agent.gpus)))


def _tpm(agent: AgentInventory, bmc: BmcInventory) -> Iterator[Difference]:
    if bmc.tpm is None or (agent.tpm is None and "tpm" in agent.notes):
        return
    kind, state = str(bmc.tpm.get("type") or ""), str(bmc.tpm.get("state") or "Enabled")
    if state.lower() in ("absent", "disabled"):
        return
    if agent.tpm is None:
        yield Difference("TPM", kind or "there is one", "none")
        return
    version = "2.0" if "2_0" in kind or "2.0" in kind else "1.2" if "1_2" in kind or "1.2" in kind else None
    if version and agent.tpm.version and version != agent.tpm.version:
        yield Difference("TPM version", version, agent.tpm.version)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def _gb(size: int | None) -> str:
    return "of unknown size" if size is None else f"{size / 1e9:.0f} GB"


def _words(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)
