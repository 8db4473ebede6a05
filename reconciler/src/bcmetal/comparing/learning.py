"""Writes a bill of materials from a machine that is as it should be, with tolerances that its sisters keep too."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Final

from bcmetal.comparing.judging import own_disks, own_nics
from bcmetal_agent.wire_inventory import Disk, Inventory

GIB: Final = 2**30
_SIZE: Final = 0.02  # makers' disks of one label differ by less
_KERNEL: Final = 0.93  # of the memory: what the kernel has differs with firmware and kernel versions


def learn(inventory: Inventory, *, name: str) -> str:
    """TOML that `bom.parse` takes and that `judge` finds nothing against in this inventory. `name`: whose it is, for the first line."""
    lines = [f"# A bill of materials, learned from {_comment(name)}. What is not named here is not judged."]
    lines += ["more = false  # true: disks, network cards and GPUs beyond these are no mismatch"]
    for table in (_board, _firmware, _cpus, _memory, _disks, _nics, _gpus, _tpm):
        lines += table(inventory)
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _value(value: object) -> str:
    """TOML's basic strings are JSON's, but for DEL, which has to be escaped."""
    if isinstance(value, float):
        return f"{value:g}" if not value.is_integer() else f"{value:.0f}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _table(header: str, **fields: object) -> Iterator[str]:
    plain = {name: value.strip() if isinstance(value, str) else value for name, value in fields.items()}
    told = [f"{name} = {_value(value)}" for name, value in plain.items() if value not in (None, "")]
    if told:
        yield from ("", header, *told)


def _board(inventory: Inventory) -> Iterator[str]:
    yield from _table("[board]", maker=inventory.board.maker, product=inventory.board.product)


def _firmware(inventory: Inventory) -> Iterator[str]:
    firmware = inventory.firmware
    mode = firmware.boot_mode if firmware.boot_mode in ("uefi", "legacy") else None
    found = list(_table("[firmware]", boot_mode=mode, secure_boot=firmware.secure_boot))
    if found and firmware.version:
        found.append(
            f"# versions = [{_value(firmware.version)}]  # as it was found; newer ones are welcome unless you say so"
        )
    yield from found


def _cpus(inventory: Inventory) -> Iterator[str]:
    cpus = inventory.cpus
    if cpus:
        cores, threads = {one.cores for one in cpus}, {one.threads for one in cpus}
        yield from _table(
            "[cpus]",
            count=len(cpus),
            model=cpus[0].model if len({one.model for one in cpus}) == 1 else None,
            cores=cores.pop() if len(cores) == 1 else None,
            threads=threads.pop() if len(threads) == 1 else None,
        )


def _memory(inventory: Inventory) -> Iterator[str]:
    dimms = inventory.dimms
    sizes, types = {one.size_bytes for one in dimms}, {one.type for one in dimms}
    speeds = [one.speed_mts for one in dimms]
    size = sizes.pop() if len(sizes) == 1 else None
    yield from _table(
        "[memory]",
        min_gib=_floor(inventory.memory_bytes * _KERNEL / GIB) if inventory.memory_bytes else None,
        modules=len(dimms) or None,
        module_gib=size / GIB if size and size % (GIB // 64) == 0 else None,
        type=types.pop() if len(types) == 1 else None,
        min_mts=min((one for one in speeds if one), default=None) if all(speeds) else None,
    )


def _floor(gib: float) -> float:
    return math.floor(gib) if gib >= 16 else math.floor(gib * 100) / 100


def _disks(inventory: Inventory) -> Iterator[str]:
    """Disks of one kind, and as large as each other within the tolerance."""
    groups: dict[tuple[str, str, str, int], list[Disk]] = {}
    for one in sorted(own_disks(inventory), key=lambda disk: disk.size_bytes):
        kind = (one.transport or "", one.model or "", str(one.rotational))
        near = (
            key for key, disks in groups.items() if key[:3] == kind and one.size_bytes <= disks[0].size_bytes * 1.01
        )
        groups.setdefault(next(near, (*kind, one.size_bytes)), []).append(one)
    for (transport, model, _, _), disks in sorted(groups.items()):
        yield from _table(
            "[[disks]]",
            count=len(disks),
            transport=transport,
            model=model,
            rotational=disks[0].rotational,
            min_gb=_floor(disks[0].size_bytes / 1e9 * (1 - _SIZE)),
            max_gb=math.ceil(disks[-1].size_bytes / 1e9 * (1 + _SIZE)),
        )


def _nics(inventory: Inventory) -> Iterator[str]:
    found = own_nics(inventory)
    for model, driver in sorted({(one.model or "", one.driver or "") for one in found}):
        ports = [one for one in found if (one.model or "", one.driver or "") == (model, driver)]
        up = [one for one in ports if one.carrier]
        speeds = [one.speed_mbps for one in up if one.speed_mbps]
        yield from _table(
            "[[nics]]",
            count=len(ports),
            model=model,
            driver=driver,
            links=len(up) or None,
            min_mbps=min(speeds, default=None),
        )


def _gpus(inventory: Inventory) -> Iterator[str]:
    for model in sorted({one.model or "" for one in inventory.gpus}):
        these = [one for one in inventory.gpus if (one.model or "") == model]
        memory = [one.memory_bytes for one in these if one.memory_bytes]
        least = math.floor(min(memory) / GIB) if len(memory) == len(these) else None
        yield from _table("[[gpus]]", count=len(these), model=model, min_memory_gib=least or None)


def _tpm(inventory: Inventory) -> Iterator[str]:
    if inventory.tpm is not None:
        version = inventory.tpm.version if inventory.tpm.version in ("1.2", "2.0") else None
        yield from ("", "[tpm]", *([f'version = "{version}"'] if version else []))
