"""What the machine can say of itself: SMBIOS, the network cards' burnt-in addresses, the GPUs' ids.

All of it is self-reported: whoever is root can say otherwise, and the daemon treats it so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Final

from bcmetal_agent.wire import Identifiers

MACS_LIMIT: Final = 64
GPUS_LIMIT: Final = 32
GPU_TIMEOUT_S: Final = 20.0  # nvidia-smi without its persistence daemon takes seconds for each GPU
GPU_OUTPUT_LIMIT: Final = 16 * 1024

_ETHERNET = "1"  # ARPHRD_ETHER
_RANDOM, _STOLEN, _SET = "1", "2", "3"  # /sys/class/net/X/addr_assign_type
_SIOCETHTOOL, _ETHTOOL_GPERMADDR = 0x8946, 0x20  # linux/sockios.h, linux/ethtool.h
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_GPU = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def read(root: Path = Path("/"), *, gpu_tool: str = "nvidia-smi", gpu_timeout_s: float = GPU_TIMEOUT_S) -> Identifiers:
    """`root`: where the machine's /sys is, in a container for example /host. What cannot be read is absent."""
    dmi = root / "sys/class/dmi/id"
    return Identifiers(
        product_uuid=_text(dmi / "product_uuid", 64),
        serial=_text(dmi / "product_serial", 128),
        macs=_macs(root),
        gpu_uuids=_gpus(gpu_tool, gpu_timeout_s),
    )


def _text(path: Path, limit: int) -> str | None:
    try:
        with path.open("rb") as file:
            raw = file.read(4096)
    except OSError:
        return None
    text = "".join(char for char in raw.decode("utf-8", "replace") if char.isprintable()).strip()
    return text[:limit] or None


def _macs(root: Path) -> tuple[str, ...]:
    net = root / "sys/class/net"
    found = set()
    with contextlib.suppress(OSError):
        for card in sorted(net.iterdir()):
            if not is_card(card):
                continue
            mac = permanent_mac(card, ask_kernel=root == Path("/"))
            if mac is not None:
                found.add(mac)
    return tuple(sorted(found)[:MACS_LIMIT])


def is_card(card: Path) -> bool:
    """Of a folder in /sys/class/net: it has a device behind it, is Ethernet, and is no virtual function of another card."""
    device = card / "device"
    return device.exists() and not (device / "physfn").exists() and _text(card / "type", 8) in (None, _ETHERNET)


def permanent_mac(card: Path, *, ask_kernel: bool) -> str | None:
    """A bond gives its members one address, so `address` comes last, and only where nobody has set it."""
    candidates = [
        _burnt_in(card.name) if ask_kernel else None,
        _text(card / "bonding_slave/perm_hwaddr", 17),
        _text(card / "address", 17) if _text(card / "addr_assign_type", 8) not in (_RANDOM, _STOLEN, _SET) else None,
    ]
    for mac in candidates:
        if mac is not None and _MAC.fullmatch(mac.lower()) and mac != "00:00:00:00:00:00":
            return mac.lower()
    return None


def _burnt_in(name: str) -> str | None:
    """ETHTOOL_GPERMADDR, which needs no privilege; in another network namespace the card is not there."""
    answer = bytearray(struct.pack("II32x", _ETHTOOL_GPERMADDR, 32))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, _SIOCETHTOOL, ifreq(name, answer))
    except OSError:
        return None
    _, size = struct.unpack_from("II", answer)
    return answer[8:14].hex(":") if size == 6 else None


def ifreq(name: str, data: bytearray) -> bytes:
    """A `struct ifreq` that points at `data`, which has to outlive the ioctl."""
    import ctypes

    where = ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))
    return struct.pack("16sP16x", os.fsencode(name)[:15], where)


def _gpus(tool: str, timeout_s: float) -> tuple[str, ...]:
    path = shutil.which(tool)
    if path is None:
        return ()
    said = _bounded([path, "--query-gpu=uuid", "--format=csv,noheader"], timeout_s)
    lines = (line.strip() for line in said.decode("ascii", "replace").splitlines())
    return tuple(sorted({line for line in lines if _GPU.fullmatch(line)})[:GPUS_LIMIT])


def _bounded(command: list[str], timeout_s: float) -> bytes:
    """The output of a command as far as it came in time and within the limit; a hung driver must not hold up the join."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        child = subprocess.Popen(  # noqa: S603 - a fixed command found on PATH, no shell
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
        )
    except OSError:
        return b""
    assert child.stdout is not None
    end, said = time.monotonic() + timeout_s, b""
    with child.stdout as pipe:
        while len(said) < GPU_OUTPUT_LIMIT and (left := end - time.monotonic()) > 0:
            if not select.select([pipe], [], [], left)[0]:
                break
            chunk = os.read(pipe.fileno(), GPU_OUTPUT_LIMIT - len(said))
            if not chunk:
                break
            said += chunk
    child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=1)  # a process in uninterruptible sleep stays; nobody waits for it
    return said
