"""What the switches say of themselves (IEEE 802.1AB), by our own ears.

Not by lldpd: a daemon would announce the ramdisk to the switches of tenants, keep a control socket, and parse with C what a stranger
on the wire sends. Listening needs one raw socket, and this.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from bcmetal_agent.tasks.look_files import printable
from bcmetal_agent.wire_inventory import Neighbour

ETHERTYPE: Final = 0x88CC
LISTEN_S: Final = 31.0  # switches speak every 30 s, by the standard's default
LISTEN_VIRTUAL_S: Final = 1.0  # bridges of hypervisors pass on nothing that is sent to the standard's group addresses
_GROUPS: Final = tuple(bytes.fromhex(f"0180c20000{last}") for last in ("0e", "03", "00"))
_SOL_PACKET, _ADD_MEMBERSHIP, _MR_MULTICAST = 263, 1, 0
_STEP_S: Final = 0.5
_SWALLOWING: Final = ("i40e", "ice")
_IEEE_802_1: Final = b"\x00\x80\xc2"


def listen(cards: Sequence[str], check: Callable[[], None], wait_s: float = LISTEN_S) -> dict[str, Neighbour]:
    """Card → its neighbour, until each card has heard one or the time is up. Raises OSError where raw sockets are not to be had."""
    heard: dict[str, Neighbour] = {}
    with ExitStack() as stack:
        sockets = {stack.enter_context(_socket(card)): card for card in cards}
        until = time.monotonic() + wait_s
        while len(heard) < len(sockets) and (left := until - time.monotonic()) > 0:
            check()
            waiting = [one for one, card in sockets.items() if card not in heard]
            for ready in select.select(waiting, [], [], min(left, _STEP_S))[0]:
                try:
                    frame, whence = ready.recvfrom(9216)
                except OSError:  # ENETDOWN, once: a card that went down may come up again, and the others still hear
                    continue
                if whence[2] == socket.PACKET_OUTGOING:
                    continue
                neighbour = parse(frame[14:])
                if neighbour is not None:
                    heard[sockets[ready]] = neighbour
    return heard


def silence(drivers: Mapping[str, str | None], heard: Collection[str]) -> str | None:
    """Which of the cards heard nobody, in words. `drivers`: of each card that has a link."""
    silent = sorted(set(drivers) - set(heard))
    if not silent:
        return None
    told = f"no switch spoke to {', '.join(silent[:16])}"
    if any(drivers[name] in _SWALLOWING for name in silent):
        told += " (the firmware of Intel's 700 and 800 series may keep LLDP to itself: its agent can be turned off)"
    return told


def _socket(card: str) -> socket.socket:
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    try:
        found.bind((card, ETHERTYPE))
        index = socket.if_nametoindex(card)
        for group in _GROUPS:
            request = struct.pack("iHH8s", index, _MR_MULTICAST, len(group), group)
            found.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, request)
    except OSError:
        found.close()
        raise
    return found


@dataclass(frozen=True, slots=True)
class _Tlv:
    kind: int
    value: bytes


def _tlvs(data: bytes) -> Iterator[_Tlv]:
    at = 0
    while at + 2 <= len(data):
        (header,) = struct.unpack_from("!H", data, at)
        kind, length = header >> 9, header & 0x1FF
        if kind == 0 or at + 2 + length > len(data):
            return
        yield _Tlv(kind, data[at + 2 : at + 2 + length])
        at += 2 + length


def parse(data: bytes) -> Neighbour | None:
    """What follows the Ethernet header. None where it is not the start of an LLDPDU: chassis, port, time to live."""
    tlvs = list(_tlvs(data))
    if [one.kind for one in tlvs[:3]] != [1, 2, 3] or tlvs[2].value[:2] in (b"", b"\0\0"):  # 0: "I am going"
        return None
    first: dict[int, str] = {}
    vlans: set[int] = set()
    for one in tlvs[3:]:
        if one.kind in (4, 5):
            first.setdefault(one.kind, printable(one.value)[:256])
        elif one.kind == 127 and one.value[:4] in (_IEEE_802_1 + b"\x01", _IEEE_802_1 + b"\x03"):
            vlan = int.from_bytes(one.value[4:6], "big") & 0xFFF
            if vlan and len(vlans) < 64:
                vlans.add(vlan)
    return Neighbour(
        chassis=_id(tlvs[0].value, mac_subtype=4, address_subtype=5),
        port=_id(tlvs[1].value, mac_subtype=3, address_subtype=4),
        system=first.get(5) or None,
        port_description=first.get(4) or None,
        vlans=tuple(sorted(vlans)),
    )


def _id(value: bytes, mac_subtype: int, address_subtype: int) -> str | None:
    subtype, content = value[:1], value[1:]
    if subtype == bytes([mac_subtype]) and len(content) == 6:
        return content.hex(":")
    if subtype == bytes([address_subtype]) and content[:1] == b"\x01" and len(content) == 5:
        return socket.inet_ntop(socket.AF_INET, content[1:])
    if subtype == bytes([address_subtype]) and content[:1] == b"\x02" and len(content) == 17:
        return socket.inet_ntop(socket.AF_INET6, content[1:])
    return printable(content)[:256] or None
