"""Network cards: by sysfs, and where the machine is live by the ethtool ioctls (linux/ethtool.h)."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Final

from bcmetal_agent import identifiers
from bcmetal_agent.tasks.look_files import Machine, link_name, names, number, pci_of, printable, raw, text
from bcmetal_agent.wire_inventory import Nic

NET: Final = "sys/class/net"
LINK_WAIT_S: Final = 8.0  # autonegotiation of 10GBASE-T takes up to 5 s, more with some optics
_SIOCETHTOOL, _GDRVINFO = 0x8946, 0x00000003
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCGIFADDR = 0x8913, 0x8914, 0x8915
_IFF_UP: Final = 0x1
SPEED_UNKNOWN: Final = 0xFFFFFFFF


def cards(machine: Machine) -> tuple[str, ...]:
    """Names of network cards; no bridges, bonds and virtual functions."""
    net = machine.path(NET)
    return tuple(name for name in names(net) if identifiers.is_card(net / name))


def nics(machine: Machine) -> tuple[Nic, ...]:
    ipv6 = _ipv6(machine)
    return tuple(_nic(machine, name, ipv6.get(name, ())) for name in cards(machine))


def _nic(machine: Machine, name: str, ipv6: tuple[str, ...]) -> Nic:
    card = machine.path(NET) / name
    speed = number(card / "speed")
    mac = (text(card / "address", 17) or "").lower() or None
    return Nic(
        name=name,
        mac=mac,
        permanent_mac=identifiers.permanent_mac(card, ask_kernel=machine.live),
        driver=link_name(card / "device/driver"),
        firmware=_firmware(name) if machine.live else None,
        pci=pci_of(card / "device"),
        speed_mbps=None if speed in (0, SPEED_UNKNOWN) else speed,
        carrier=carrier(machine, name),
        addresses=(*(_ipv4(name) if machine.live else ()), *ipv6),
    )


def carrier(machine: Machine, name: str) -> bool | None:
    """None: the interface is down, so that nobody can know (the kernel answers EINVAL)."""
    found = number(machine.path(NET) / name / "carrier")
    return None if found is None else found == 1


def raise_links(machine: Machine, check: Callable[[], None], wait_s: float = LINK_WAIT_S) -> None:
    """Bring up the cards that are down, and wait for their carriers: a card that is down tells neither link nor speed.

    It stays so: the machine restarts after the agent. What the machine does not allow is passed over.
    """
    if not machine.live:
        return
    raised = [name for name in cards(machine) if _raise(name)]
    until = time.monotonic() + wait_s
    while any(not carrier(machine, name) for name in raised) and time.monotonic() < until:
        check()
        time.sleep(0.2)


def _raise(name: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH22x", _name(name), 0)
        (flags,) = struct.unpack_from("16xH", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))
        if not flags & _IFF_UP:
            fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH22x", _name(name), flags | _IFF_UP))
            return True
    return False


def _name(name: str) -> bytes:
    return name.encode()[:15]


def _firmware(name: str) -> str | None:
    answer = bytearray(struct.pack("I192x", _GDRVINFO))
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, identifiers.ifreq(name, answer))
        found = printable(bytes(answer[68:100]).split(b"\0")[0])
        return None if found.upper() in ("", "N/A") else found
    return None


def _ipv4(name: str) -> tuple[str, ...]:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("16s24x", _name(name)))
        return (socket.inet_ntoa(answer[20:24]),)
    return ()


def _ipv6(machine: Machine) -> dict[str, tuple[str, ...]]:
    """/proc/net/if_inet6: address, index, prefix, scope, flags, name. Link-local ones are everybody's and left out."""
    found: dict[str, tuple[str, ...]] = {}
    for line in (raw(machine.path("proc/net/if_inet6"), 256 * 1024) or b"").decode("ascii", "replace").splitlines():
        fields = line.split()
        if len(fields) == 6:
            with contextlib.suppress(ValueError):
                address = ipaddress.IPv6Address(bytes.fromhex(fields[0]))
                if not address.is_link_local:
                    found[fields[5]] = (*found.get(fields[5], ()), str(address))
    return found


def counters(machine: Machine, name: str, wanted: Iterable[str]) -> dict[str, int]:
    """Of /sys/class/net/NAME/statistics; absent ones are left out."""
    folder = machine.path(NET) / name / "statistics"
    return {one: value for one in wanted if (value := number(folder / one)) is not None}
