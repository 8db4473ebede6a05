"""Whether a machine is what its bill of materials says: every mismatch in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from bcmetal.comparing.bom import Bom, DiskGroup, GpuGroup, NicGroup
from bcmetal.comparing.spelling import folded, same_maker, same_model
from bcmetal_agent.wire_inventory import Disk, Gpu, Inventory, Nic

GIB: Final = 2**30
T = TypeVar("T")
G = TypeVar("G", DiskGroup, NicGroup, GpuGroup)


def judge(bom: Bom, inventory: Inventory) -> tuple[str, ...]:
    """Empty: it is as it should be. What could not be read is a mismatch where the bill names it."""
    return (
        *_board(bom, inventory),
        *_cpus(bom, inventory),
        *_memory(bom, inventory),
        *_parts(bom, inventory),
        *_tpm(bom, inventory),
    )


def _differs(what: str, found: object, wanted: object) -> str:
    return f"{what}: found {'nothing' if found in (None, '') else found}, the bill says {wanted}"


def _board(bom: Bom, inventory: Inventory) -> Iterator[str]:
    board, firmware = inventory.board, inventory.firmware
    if bom.board.maker is not None and not same_maker(bom.board.maker, board.maker):
        yield _differs("maker", board.maker, bom.board.maker)
    if bom.board.product is not None and folded(bom.board.product) != folded(board.product):
        yield _differs("product", board.product, bom.board.product)
    if bom.firmware.boot_mode not in (None, firmware.boot_mode):
        yield _differs("boot mode", firmware.boot_mode, bom.firmware.boot_mode)
    if bom.firmware.secure_boot not in (None, firmware.secure_boot):
        yield _differs("secure boot", _on(firmware.secure_boot), _on(bom.firmware.secure_boot))
    versions = bom.firmware.versions
    if versions is not None and folded(firmware.version) not in {folded(one) for one in versions}:
        yield _differs("BIOS version", firmware.version, " or ".join(versions))


def _on(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _cpus(bom: Bom, inventory: Inventory) -> Iterator[str]:
    wanted, found = bom.cpus, inventory.cpus
    if wanted.count not in (None, len(found)):
        yield _differs("CPUs", str(len(found)), wanted.count)
    for cpu in found:
        label = f"CPU {cpu.socket}"
        if wanted.model is not None and not same_model(wanted.model, cpu.model):
            yield _differs(f"{label} model", cpu.model, wanted.model)
        if wanted.cores not in (None, cpu.cores):
            yield _differs(f"{label} cores", cpu.cores, wanted.cores)
        if wanted.threads not in (None, cpu.threads):
            yield _differs(f"{label} threads", cpu.threads, wanted.threads)


def _memory(bom: Bom, inventory: Inventory) -> Iterator[str]:
    wanted, dimms = bom.memory, inventory.dimms
    if wanted.min_gib is not None and (inventory.memory_bytes or 0) < wanted.min_gib * GIB:
        found = None if inventory.memory_bytes is None else f"{inventory.memory_bytes / GIB:.1f} GiB"
        yield _differs("memory", found, f"{wanted.min_gib:g} GiB or more")
    if wanted.modules not in (None, len(dimms)):
        yield _differs("memory modules", str(len(dimms)), wanted.modules)
    for dimm in dimms:
        label = f"memory module {dimm.slot}"
        if wanted.module_gib is not None and abs((dimm.size_bytes or 0) - wanted.module_gib * GIB) > GIB / 64:
            found = None if dimm.size_bytes is None else f"{dimm.size_bytes / GIB:g} GiB"
            yield _differs(label, found, f"{wanted.module_gib:g} GiB")
        if wanted.type is not None and folded(wanted.type) != folded(dimm.type):
            yield _differs(label, dimm.type, wanted.type)
        if wanted.min_mts is not None and (dimm.speed_mts or 0) < wanted.min_mts:
            yield _differs(label, dimm.speed_mts and f"{dimm.speed_mts} MT/s", f"{wanted.min_mts} MT/s or more")


def own_disks(inventory: Inventory) -> list[Disk]:
    """Those that are a part of the machine: no BMC's media, no stick, nothing shared."""
    return [one for one in inventory.disks if not (one.virtual_medium or one.removable or one.shared)]


def own_nics(inventory: Inventory) -> list[Nic]:
    """Not the USB card between the host and its BMC."""
    return [one for one in inventory.nics if not (one.driver or "").startswith(("cdc_", "rndis"))]


def _parts(bom: Bom, inventory: Inventory) -> Iterator[str]:
    if bom.disks is not None:
        yield from _groups("disk", bom.disks, own_disks(inventory), _is_disk, _disk_words, bom.more)
    if bom.gpus is not None:
        yield from _groups("GPU", bom.gpus, list(inventory.gpus), _is_gpu, _gpu_words, bom.more)
    if bom.nics is not None:
        nics = own_nics(inventory)
        yield from _groups("network card", bom.nics, nics, _is_nic, _nic_words, bom.more)
        yield from _links(bom.nics, nics)


def _groups(
    what: str,
    groups: Sequence[G],
    found: Sequence[T],
    belongs: Callable[[G, T], bool],
    words: Callable[[G | T], str],
    more: bool,
) -> Iterator[str]:
    """Groups may overlap: the parts are given to them so that as few as can be stay without."""
    slots = [n for n, group in enumerate(groups) for _ in range(group.count)]
    taken: dict[int, int] = {}  # slot → part
    fits = [[s for s, n in enumerate(slots) if belongs(groups[n], part)] for part in found]

    def give(part: int, tried: set[int]) -> bool:
        for slot in fits[part]:
            if slot not in tried:
                tried.add(slot)
                if slot not in taken or give(taken[slot], tried):
                    taken[slot] = part
                    return True
        return False

    left = [part for part in range(len(found)) if not give(part, set())]
    for n, group in enumerate(groups):
        there = sum(1 for slot in taken if slots[slot] == n)
        if there < group.count:
            yield f"{what}s of {words(group)}: found {there}, the bill says {group.count}"
    for part in () if more else left:
        yield f"{what} that the bill does not name: {words(found[part])}"


def _is_disk(group: DiskGroup, disk: Disk) -> bool:
    return (
        (group.model is None or same_model(group.model, disk.model))
        and (group.transport is None or folded(group.transport) == folded(disk.transport))
        and (group.rotational is None or group.rotational is disk.rotational)
        and (group.min_gb is None or disk.size_bytes >= group.min_gb * 1e9)
        and (group.max_gb is None or disk.size_bytes <= group.max_gb * 1e9)
        and (group.firmware is None or folded(disk.firmware) in {folded(one) for one in group.firmware})
    )


def _disk_words(one: DiskGroup | Disk) -> str:
    if isinstance(one, Disk):
        size = f"{one.size_bytes / 1e9:.0f} GB"
        return _joined(one.transport, one.model, size, one.firmware, f"serial {one.serial}" if one.serial else None)
    turning = {True: "rotating", False: "solid", None: None}[one.rotational]
    return _joined(one.transport, turning, one.model, _between(one.min_gb, one.max_gb), *(one.firmware or ()))


def _between(least: float | None, most: float | None) -> str | None:
    if least is not None and most is not None:
        return f"{least:g} to {most:g} GB"
    return None if least is most is None else f"{least:g} GB or more" if most is None else f"at most {most:g} GB"


def _is_gpu(group: GpuGroup, gpu: Gpu) -> bool:
    return (group.model is None or same_model(group.model, gpu.model)) and (
        group.min_memory_gib is None or (gpu.memory_bytes or 0) >= group.min_memory_gib * GIB
    )


def _gpu_words(one: GpuGroup | Gpu) -> str:
    if isinstance(one, Gpu):
        return _joined(one.model, one.pci, f"{one.memory_bytes / GIB:.0f} GiB" if one.memory_bytes else None)
    return _joined(one.model, None if one.min_memory_gib is None else f"{one.min_memory_gib:g} GiB or more")


def _is_nic(group: NicGroup, nic: Nic) -> bool:
    return (group.model is None or same_model(group.model, nic.model)) and (
        group.driver is None or folded(group.driver) == folded(nic.driver)
    )


def _nic_words(one: NicGroup | Nic) -> str:
    if isinstance(one, Nic):
        return _joined(one.name, one.model or one.driver, one.permanent_mac or one.mac)
    return _joined(one.model, one.driver)


def _links(groups: Sequence[NicGroup], nics: Sequence[Nic]) -> Iterator[str]:
    for group in groups:
        up = [one for one in nics if _is_nic(group, one) and one.carrier]
        # a card whose driver tells no speed (virtio) is not held to one
        fast = [
            one for one in up if group.min_mbps is None or one.speed_mbps is None or one.speed_mbps >= group.min_mbps
        ]
        if len(fast) < group.links:
            speed = f" at {group.min_mbps} Mbit/s or more" if group.min_mbps is not None else ""
            yield f"links of {_nic_words(group)}{speed}: found {len(fast)}, the bill says {group.links}"


def _joined(*words: str | None) -> str:
    return " ".join(word for word in words if word) or "any kind"


def _tpm(bom: Bom, inventory: Inventory) -> Iterator[str]:
    if bom.tpm is None:
        return
    if inventory.tpm is None:
        yield _differs("TPM", None, f"one{f' of version {bom.tpm.version}' if bom.tpm.version else ''}")
        return
    if bom.tpm.version not in (None, inventory.tpm.version):
        yield _differs("TPM version", inventory.tpm.version, bom.tpm.version)
    if bom.tpm.maker is not None and folded(bom.tpm.maker) != folded(inventory.tpm.maker):
        yield _differs("TPM maker", inventory.tpm.maker, bom.tpm.maker)
