"""What a BMC's IPMI offers to whoever has no credential: Get Channel Authentication Capabilities and Get Channel Cipher Suites (IPMI 2.0,
sections 22.13 and 22.15). Both are answered outside of any session; no name and no password is sent."""

from __future__ import annotations

import secrets
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from bcmetal_drivers.errors import DriverError, NotThisService, TimedOut, Unreachable

APP: Final = 0x06
CAPABILITIES, CIPHER_SUITES = 0x38, 0x54
TELLS_NOTHING_OF_2_0: Final = 0xCC
THIS_CHANNEL, ADMINISTRATOR = 0x0E, 0x04
PARTS: Final = 64  # of the list of suites, 16 bytes each
WAITS_S: Final = (0.6, 0.9, 1.5)
TOTAL_S: Final = 8.0  # for all questions together
KINDS: Final = ((0x01, "none"), (0x02, "md2"), (0x04, "md5"), (0x10, "password"), (0x20, "oem"))
RECORD, OEM_RECORD = 0xC0, 0xC1


@dataclass(frozen=True, slots=True)
class IpmiSeen:
    """`suites` None: the BMC does not tell them. `two_keys`: a K_g was set beside the passwords."""

    trouble: DriverError | None = None
    v1_5: bool = False
    v2_0: bool = False
    authentication: tuple[str, ...] = ()  # of IPMI 1.5
    anonymous: bool = False  # logins with neither name nor password
    null_names: bool = False  # users without a name, with a password
    two_keys: bool = False
    suites: tuple[int, ...] | None = None

    @property
    def there(self) -> bool:
        return self.trouble is None


def ipmi_seen(where: str, port: int, total_s: float = TOTAL_S) -> IpmiSeen:
    """`where` is a literal address. What was told before `total_s` is over stays."""
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((where, port))
            return _asked(_Outside(sock, f"ipmi at {where}:{port}", total_s))
        except DriverError as error:
            return IpmiSeen(trouble=error)
        except OSError as error:
            what = (error.strerror or type(error).__name__).lower()
            return IpmiSeen(trouble=Unreachable(f"ipmi at {where}:{port}: {what}"))


def _asked(outside: _Outside) -> IpmiSeen:
    code, data = outside.ask(CAPABILITIES, bytes((0x80 | THIS_CHANNEL, ADMINISTRATOR)), v2=False)
    if code == TELLS_NOTHING_OF_2_0:
        code, data = outside.ask(CAPABILITIES, bytes((THIS_CHANNEL, ADMINISTRATOR)), v2=False)
    if code != 0 or len(data) < 4:
        raise NotThisService(f"{outside.where}: the question for its capabilities was answered with code 0x{code:02x}")
    tells_more = bool(data[1] & 0x80)
    v2_0 = tells_more and bool(data[3] & 0x02)
    suites: tuple[int, ...] | None = None
    if v2_0:
        with suppress(DriverError, OSError):
            suites = _suites(outside)
    return IpmiSeen(
        v1_5=not tells_more or bool(data[3] & 0x01),
        v2_0=v2_0,
        authentication=tuple(name for bit, name in KINDS if data[1] & bit),
        anonymous=bool(data[2] & 0x01),
        null_names=bool(data[2] & 0x02),
        two_keys=bool(data[2] & 0x20),
        suites=suites,
    )


def _suites(outside: _Outside) -> tuple[int, ...] | None:
    told = bytearray()
    for part in range(PARTS):
        code, data = outside.ask(CIPHER_SUITES, bytes((THIS_CHANNEL, 0x00, 0x80 | part)), v2=True)
        if code != 0:
            return None
        told += data[1:17]
        if len(data) < 17:
            break
    found = []
    at = 0
    while at + 1 < len(told):
        if told[at] in (RECORD, OEM_RECORD):
            if told[at] == RECORD:
                found.append(told[at + 1])
            at += 2 if told[at] == RECORD else 5
        else:
            at += 1  # an algorithm of the suite
    return tuple(sorted(set(found)))


class _Outside:
    """Questions outside of any session, one after another."""

    def __init__(self, sock: socket.socket, where: str, total_s: float) -> None:
        self.where = where
        self._over_at_s = time.monotonic() + total_s
        self._sock = sock
        self._sequence = secrets.randbelow(0x40)

    def ask(self, command: int, data: bytes, *, v2: bool) -> tuple[int, bytes]:
        """Completion code and data. `v2`: framed as IPMI 2.0 has it. Raises TimedOut."""
        self._sequence = (self._sequence + 1) % 0x40
        head, body = bytes((0x20, APP << 2)), bytes((0x81, self._sequence << 2, command)) + data
        message = head + _checksum(head) + body + _checksum(body)
        if v2:
            packet = b"\x06\x00\xff\x07\x06\x00" + bytes(8) + len(message).to_bytes(2, "little") + message
        else:
            packet = b"\x06\x00\xff\x07\x00" + bytes(8) + bytes((len(message),)) + message
        begun_s = time.monotonic()
        for wait_s in WAITS_S:
            if time.monotonic() >= self._over_at_s:
                break
            self._sock.send(packet)
            until = min(time.monotonic() + wait_s, self._over_at_s)
            while (left := until - time.monotonic()) > 0:
                self._sock.settimeout(left)
                try:
                    answer = self._read(self._sock.recv(1024), command)
                except TimeoutError:
                    break
                if answer is not None:
                    return answer
        raise TimedOut(f"{self.where}: no answer within {time.monotonic() - begun_s:.1f} s")

    def _read(self, packet: bytes, command: int) -> tuple[int, bytes] | None:
        """None for what is no answer to this question."""
        if packet[:1] != b"\x06" or packet[3:4] != b"\x07" or len(packet) < 5:
            return None
        start = 16 if packet[4] == 0x06 else 14
        message = packet[start:]
        if len(message) < 8 or message[1] >> 2 != APP | 1 or message[5] != command:
            return None
        if message[4] >> 2 != self._sequence:
            return None
        return message[6], message[7:-1]


def _checksum(data: bytes) -> bytes:
    return bytes((-sum(data) & 0xFF,))
