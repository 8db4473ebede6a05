"""Two network namespaces with a wire between them, and a machine's firmware on one end that asks where to boot: packets, no machine."""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")
SERVER, SERVER6 = "10.30.0.5", "fd00:30::5"
CLIENT, CLIENT6 = "10.30.0.9", "fe80::9"
MAC: Final = bytes.fromhex("3cecef010203")
BIOS, EFI = 0, 7
_CLONE_NEWNET: Final = 0x40000000
_MAGIC: Final = bytes.fromhex("63825363")


@dataclass(frozen=True, slots=True)
class Offer:
    """`file`: from the header's field, or option 67."""

    address: str
    next_server: str
    file: str
    options: Mapping[int, bytes]


class Wire:
    """`server` is the namespace's name; sockets of the machine's end are made by `socket_at`."""

    def __init__(self, server: str, client: str) -> None:
        self.server = server
        self.client = client

    def popen(self, *command: str) -> subprocess.Popen[str]:
        """A process at the server's end."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.server, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def at_machine(self, fn: Callable[[], T]) -> T:
        """`fn` in the machine's namespace."""
        return within(self.client, fn)

    def at_server(self, fn: Callable[[], T]) -> T:
        return within(self.server, fn)

    def ask(self, arch: int, *, ipxe: bool = False, deadline_s: float = 10.0) -> Offer:
        """DHCPDISCOVER, as PXE firmware or iPXE sends it, again and again until somebody offers."""
        with self.at_machine(lambda: _broadcasting(68)) as line:
            return _exchange(line, ("255.255.255.255", 67), _request(1, arch, ipxe), deadline_s)

    def ask_proxy(self, arch: int, offer: Offer, deadline_s: float = 10.0) -> Offer:
        """What firmware asks a proxy after its offer, at port 4011: the first item of the menu in it; UEFI is shown none."""
        menu = _tagged(offer.options.get(43, b"")).get(8)
        with self.at_machine(lambda: _broadcasting(4011)) as line:
            item = {} if menu is None else {43: b"\x47\x04" + menu[:2] + b"\0\0\xff"}
            return _exchange(line, (SERVER, 4011), _request(3, arch, False, item), deadline_s)

    def ask_six(self, arch: int, *, ipxe: bool = False, deadline_s: float = 10.0) -> Mapping[int, bytes]:
        """The options that a DHCPv6 server advertises (RFC 8415)."""
        solicit = _options6(
            {
                1: b"\x00\x03\x00\x01" + MAC,
                3: bytes(12),
                6: struct.pack(">HH", 59, 60),
                8: b"\0\0",
                61: struct.pack(">H", arch),
            }
            | ({15: struct.pack(">H", 4) + b"iPXE"} if ipxe else {})
        )
        index = self.at_machine(lambda: socket.if_nametoindex("wire"))
        with self.at_machine(lambda: _six(546)) as line:
            number = secrets.token_bytes(3)
            end = time.monotonic() + deadline_s
            while time.monotonic() < end:
                line.sendto(b"\x01" + number + solicit, ("ff02::1:2", 547, 0, index))
                try:
                    told = line.recv(2048)
                    while told[:1] != b"\x02" or told[1:4] != number:
                        told = line.recv(2048)
                    return _read6(told[4:])
                except TimeoutError:
                    continue
        raise TimeoutError("no DHCPv6 server advertised itself")


def within(namespace: str, fn: Callable[[], T]) -> T:
    """`fn` by a thread in that namespace; a socket stays in the namespace that it was made in."""
    found: list[T] = []

    def there() -> None:
        with open(f"/run/netns/{namespace}", "rb") as space:
            if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        found.append(fn())

    thread = threading.Thread(target=there)
    thread.start()
    thread.join()
    return found[0]


@contextmanager
def a_wire() -> Iterator[Wire]:
    """As root; both namespaces go with it."""
    mark = secrets.token_hex(3)
    wire = Wire(f"bcs{mark}", f"bcc{mark}")

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, timeout=20, capture_output=True)

    try:
        for space in (wire.server, wire.client):
            ip("netns", "add", space)
        ip("-n", wire.server, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", wire.client)
        for space, four, six in ((wire.server, SERVER, SERVER6), (wire.client, CLIENT, CLIENT6)):
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "set", "wire", "up")
            ip("-n", space, "addr", "add", f"{four}/20", "brd", "+", "dev", "wire")
            ip("-n", space, "addr", "add", f"{six}/64", "dev", "wire", "nodad")
        yield wire
    finally:
        for space in (wire.server, wire.client):
            subprocess.run(["ip", "netns", "del", space], timeout=20, capture_output=True, check=False)


def may_make_namespaces() -> bool:
    return os.geteuid() == 0 and os.path.isdir("/sys/class/net")


def _broadcasting(port: int) -> socket.socket:
    line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"wire")
    line.bind(("", port))
    line.settimeout(1.0)
    return line


def _six(port: int) -> socket.socket:
    line = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    line.bind(("::", port))
    line.settimeout(1.0)
    return line


def _request(kind: int, arch: int, ipxe: bool, more: Mapping[int, bytes] | None = None) -> bytes:
    """Without its transaction number, which `_exchange` puts in."""
    options = {
        53: bytes([kind]),
        55: bytes([1, 3, 6, 43, 60, 66, 67, 175]),
        60: f"PXEClient:Arch:{arch:05}:UNDI:003001".encode(),
        93: struct.pack(">H", arch),
        94: b"\x01\x03\x00",
        97: b"\x00" + bytes(16),
        **({77: b"iPXE"} if ipxe else {}),
        **(more or {}),
    }
    packed = b"".join(bytes([n, len(value)]) + value for n, value in options.items())
    ours = socket.inet_aton(CLIENT) if kind == 3 else bytes(4)
    return (
        b"\x01\x01\x06\x00"
        + bytes(4)
        + b"\x00\x00\x80\x00"
        + ours
        + bytes(12)
        + MAC.ljust(16, b"\0")
        + bytes(192)
        + _MAGIC
        + packed
        + b"\xff"
    )


def _exchange(line: socket.socket, to: tuple[str, int], message: bytes, deadline_s: float) -> Offer:
    number = secrets.token_bytes(4)
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        line.sendto(message[:4] + number + message[8:], to)
        try:
            told = line.recv(2048)
            while told[0] != 2 or told[4:8] != number:
                told = line.recv(2048)
            return _offer(told)
        except TimeoutError:
            continue
        except ConnectionRefusedError:
            time.sleep(0.05)  # the server is not up yet
    raise TimeoutError(f"nobody answered at {to}")


def _offer(told: bytes) -> Offer:
    options = _tagged(told[240:])
    file = told[108:236].split(b"\0")[0] or options.get(67, b"").rstrip(b"\0")
    return Offer(socket.inet_ntoa(told[16:20]), socket.inet_ntoa(told[20:24]), file.decode(), options)


def _tagged(told: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while told and told[0] != 255:
        size = 1 if told[0] == 0 else 2 + told[1]
        if told[0]:
            found[told[0]] = told[2:size]
        told = told[size:]
    return found


def _options6(options: Mapping[int, bytes]) -> bytes:
    return b"".join(struct.pack(">HH", n, len(value)) + value for n, value in options.items())


def _read6(told: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while len(told) >= 4:
        number, size = struct.unpack(">HH", told[:4])
        found[number] = told[4 : 4 + size]
        told = told[4 + size :]
    return found
