"""CPUs, NUMA nodes and memory, as the kernel runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from bcmetal_agent.tasks.look_files import Machine, names, number, printable, raw, text, whole
from bcmetal_agent.tasks.look_smbios import Processor
from bcmetal_agent.wire_inventory import Cpu, NumaNode

CPUINFO_LIMIT: Final = 16 * 2**20  # 1.5 KiB for each of up to thousands of threads
_MAKERS: Final = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD", "HygonGenuine": "Hygon", "CentaurHauls": "Zhaoxin"}
_KB: Final = re.compile(r"MemTotal:\s+(\d{1,15}) kB")


def cpus(machine: Machine, told: tuple[Processor, ...], notes: dict[str, str]) -> tuple[Cpu, ...]:
    """One entry for each package that the kernel runs. A socket that the firmware calls filled and the kernel does not run is noted."""
    sockets: dict[int, list[dict[str, str]]] = {}
    for thread in _threads(machine):
        sockets.setdefault(whole(thread.get("physical id")) or 0, []).append(thread)
    filled = sum(1 for one in told if one.populated)
    if sockets and filled > len(sockets):
        notes["cpus"] = f"the firmware tells of {filled} CPUs, the kernel runs {len(sockets)}"
    max_mhz = max((one.max_mhz or 0 for one in told if one.populated), default=0) or None
    return tuple(_package(machine, socket, sockets[socket], max_mhz) for socket in sorted(sockets))


def _threads(machine: Machine) -> Iterator[dict[str, str]]:
    found = raw(machine.path("proc/cpuinfo"), CPUINFO_LIMIT) or b""
    for block in found.split(b"\n\n"):
        pairs = (line.partition(b":") for line in block.splitlines())
        thread = {printable(name): printable(value) for name, _, value in pairs}
        if "processor" in thread:
            yield thread


def _package(machine: Machine, socket: int, threads: list[dict[str, str]], told_mhz: int | None) -> Cpu:
    first = threads[0]
    maker = first.get("vendor_id")
    cores = {one["core id"] for one in threads if "core id" in one}
    khz = number(machine.path(f"sys/devices/system/cpu/cpu{whole(first['processor']) or 0}/cpufreq/cpuinfo_max_freq"))
    return Cpu(
        socket=socket,
        model=first.get("model name") or None,
        maker=_MAKERS.get(maker, maker) if maker else None,
        cores=len(cores) or whole(first.get("cpu cores")) or len(threads),
        threads=len(threads),
        max_mhz=khz // 1000 if khz else told_mhz,
        microcode=first.get("microcode"),
        flags=tuple((first.get("flags") or first.get("Features") or "").split()),
    )


def virtual(machine: Machine) -> bool:
    """Whether the kernel runs on a hypervisor: by the CPU's own flag."""
    return any("hypervisor" in thread.get("flags", "").split() for thread in _threads(machine))


def numa(machine: Machine) -> tuple[NumaNode, ...]:
    nodes = machine.path("sys/devices/system/node")
    found = []
    for name in names(nodes):
        if re.fullmatch(r"node\d{1,6}", name):
            match = _KB.search((raw(nodes / name / "meminfo") or b"").decode("ascii", "replace"))
            memory = int(match[1]) * 1024 if match else None
            found.append(NumaNode(int(name[4:]), text(nodes / name / "cpulist", 128) or "", memory))
    return tuple(found)


def memory(machine: Machine, installed: int, notes: dict[str, str]) -> int | None:
    """What the kernel has, by its memory blocks where it tells them: MemTotal leaves out what the kernel keeps for itself.

    Notably less than the modules hold means that the firmware took some out of use, which is what a failing module looks like.
    """
    match = _KB.search((raw(machine.path("proc/meminfo")) or b"").decode("ascii", "replace"))
    total, found = int(match[1]) * 1024 if match else None, _online_blocks(machine)
    if total is not None and (found is None or total < found * 0.9):  # a hypervisor lends blocks and takes pages back
        found = total
    if found is not None and installed and found < installed * 0.9:
        notes["memory"] = f"the modules hold {installed // 2**20} MiB, and the kernel has {found // 2**20} MiB of it"
    return found


def _online_blocks(machine: Machine) -> int | None:
    folder = machine.path("sys/devices/system/memory")
    size = text(folder / "block_size_bytes", 32)
    try:
        each = int(size or "", 16)
    except ValueError:
        return None
    blocks = [name for name in names(folder, limit=1_000_000) if re.fullmatch(r"memory\d{1,9}", name)]
    online = sum(1 for name in blocks if text(folder / name / "state", 16) == "online")
    return each * online or None
