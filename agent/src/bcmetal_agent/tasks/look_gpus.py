"""GPUs and accelerators: by PCI, and what their makers' tools add where the ramdisk has these."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.look_files import printable, whole
from bcmetal_agent.tasks.tools import ToolMissing, run
from bcmetal_agent.wire_inventory import Gpu, PciDevice

NVIDIA, AMD, INTEL = "10de", "1002", "8086"
TOOL_S: Final = 120.0  # nvidia-smi without its persistence daemon takes seconds for each GPU
_ONBOARD_VGA: Final = frozenset({"515e", "5969", "4752"})  # ATI's in older servers: for the console alone
_NVIDIA_QUERY: Final = "--query-gpu=pci.bus_id,name,uuid,memory.total,serial"


def is_gpu(one: PciDevice) -> bool:
    """Display and 3D controllers of makers of GPUs, and accelerators; no console VGA, and no graphics inside a CPU."""
    if one.class_id.startswith("1200"):
        return one.vendor_id in (NVIDIA, AMD, INTEL)
    if one.class_id.startswith("0300"):
        return one.vendor_id == NVIDIA or (one.vendor_id == AMD and one.device_id not in _ONBOARD_VGA)
    return one.class_id.startswith(("0302", "0380")) and one.vendor_id in (NVIDIA, AMD, INTEL)


def gpus(
    pci: Sequence[PciDevice],
    known: Mapping[tuple[str, str], tuple[str, str | None]],
    doing: Doing | None,
    notes: dict[str, str],
) -> tuple[Gpu, ...]:
    """`known`: names by pci.ids. `doing` None: the machine is not live, its tools are not asked."""
    found: dict[str, Gpu] = {}
    for one in filter(is_gpu, pci):
        maker, model = known.get((one.vendor_id, one.device_id), (None, None))
        found[one.address] = Gpu(pci=one.address, maker=maker, model=model)
    if doing is not None:
        makers = {one.vendor_id for one in pci if one.address in found}
        for maker, tool, ask in ((NVIDIA, "nvidia-smi", _nvidia), (AMD, "rocm-smi", _amd)):
            if maker in makers:
                _merge(found, tool, ask, doing, notes)
    return tuple(found.values())


def _merge(
    found: dict[str, Gpu], tool: str, ask: Callable[[Doing], list[Gpu]], doing: Doing, notes: dict[str, str]
) -> None:
    try:
        told = ask(doing)
    except ToolMissing:
        notes["gpus"] = f"the ramdisk has no {tool}: names and addresses only"
        return
    except TaskFailed as error:
        notes["gpus"] = str(error)
        return
    for one in told:
        known = found.get(one.pci)
        if known is not None:
            found[one.pci] = replace(
                known,
                model=one.model or known.model,
                uuid=one.uuid,
                memory_bytes=one.memory_bytes,
                serial=one.serial,
            )
    silent = sorted(set(found) - {one.pci for one in told})
    if silent and told:
        notes["gpus"] = f"on the bus, and not told of by {tool}: {', '.join(silent[:8])}"


def pci_address(text: str) -> str:
    """nvidia-smi writes the domain with eight digits: 00000000:3B:00.0."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}"


def _value(text: object) -> str | None:
    found = printable(text) if isinstance(text, str) else ""
    return None if found.strip("[]").lower() in ("", "n/a", "not supported", "unknown error", "0") else found


def _nvidia(doing: Doing) -> list[Gpu]:
    said = run(["nvidia-smi", _NVIDIA_QUERY, "--format=csv,noheader,nounits"], deadline_s=TOOL_S, doing=doing)
    return parse_nvidia(said.text)


def parse_nvidia(said: str) -> list[Gpu]:
    found = []
    for row in csv.reader(said.splitlines()[:256]):
        if len(row) == 5:
            address, model, uuid, mib, serial = (one.strip() for one in row)
            memory = whole(mib)
            found.append(
                Gpu(
                    pci=pci_address(address),
                    model=_value(model),
                    uuid=_value(uuid),
                    memory_bytes=None if memory is None else memory * 2**20,
                    serial=_value(serial),
                )
            )
    return found


def _amd(doing: Doing) -> list[Gpu]:
    argv = ["rocm-smi", "--showbus", "--showproductname", "--showuniqueid", "--showserial", "--showmeminfo", "vram"]
    return parse_amd(run([*argv, "--json"], deadline_s=TOOL_S, doing=doing).text)


def parse_amd(said: str) -> list[Gpu]:
    """Keys differ in their capitals between versions."""
    try:
        doc: Any = json.loads(said)
    except (ValueError, RecursionError):
        return []
    found = []
    for card in doc.values() if isinstance(doc, dict) else ():
        if not isinstance(card, dict):
            continue
        told = {str(name).lower(): value for name, value in card.items()}
        bus = told.get("pci bus")
        if isinstance(bus, str):
            found.append(
                Gpu(
                    pci=pci_address(bus),
                    model=_value(told.get("card series")) or _value(told.get("card model")),
                    uuid=_value(told.get("unique id")),
                    memory_bytes=whole(told.get("vram total memory (b)")),
                    serial=_value(told.get("serial number")),
                )
            )
    return found
