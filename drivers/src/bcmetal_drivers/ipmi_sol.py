"""The serial console over IPMI (serial over LAN, IPMI 2.0, chapters 15, 24 and 26): a stream of bytes both ways, in a session of its own.

Packets are numbered from 1 to 15 and acknowledged one by one, each way; 0 is an acknowledgement alone. A console that somebody left
behind is taken over: it is deactivated first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from bcmetal_drivers.connection import Limits
from bcmetal_drivers.errors import Busy, DriverError, Malformed, Refused, TimedOut, Unreachable, Unsupported
from bcmetal_drivers.ipmi_door import UNSUPPORTED, Command, IpmiDoor
from bcmetal_drivers.ipmi_session import IpmiSession
from bcmetal_drivers.ipmi_values import Answer, Deadline
from bcmetal_drivers.resources import ConsoleAccess

ACTIVATE: Final = (0x06, 0x48)
DEACTIVATE: Final = (0x06, 0x49)
GET_DEVICE_ID: Final = (0x06, 0x01)
GET_SOL_PARAMETER: Final = Command("Get SOL Configuration Parameters", 0x0C, 0x22)

SOL_PAYLOAD: Final = bytes((1, 1))  # payload type, instance
ENCRYPTED_SIGNED: Final = bytes((0xC0, 0, 0, 0))
SOL_ENABLE: Final = 1
ALREADY_ACTIVE: Final = 0x80
REASONS: Final[Mapping[int, type[DriverError]]] = {  # completion codes of Activate Payload
    0x81: Unsupported,
    0x82: Busy,
    0x83: Refused,
    0x84: Refused,
    **dict.fromkeys(UNSUPPORTED, Unsupported),
}
WORDS: Final[Mapping[int, str]] = {
    0x81: "the serial console is switched off",
    0x82: "as many serial consoles are open as it has",
    0x83: "it gives no console with encryption",
    0x84: "it gives no console without encryption",
}
NACK, CLOSED, BREAK = 0x40, 0x10, 0x04
SEND_BREAK: Final = 0x10
HEADER: Final = 4
SMALLEST, LARGEST = 1, 255
ACK_WAITS_S: Final = (0.5, 1.0, 2.0, 3.0)
COMMAND_WAITS_S: Final = (1.0, 2.0)
ALIVE_EVERY_S: Final = 20.0
BUFFER_LIMIT: Final = 1 << 20


def ways(door: IpmiDoor) -> tuple[ConsoleAccess, ...]:
    """The console over LAN where it is switched on."""
    answer = door.read(GET_SOL_PARAMETER, bytes((0x0E, SOL_ENABLE, 0, 0)))
    if answer.code != 0 or len(answer.data) < 2 or not answer.data[1] & 0x01:
        return ()
    where, user = door.address, door.credential.username
    how = f"ipmitool -I lanplus -H {where.host} -p {where.port} -U {user} -E sol activate"
    return (ConsoleAccess("ipmi-sol", where.host, where.port, how),)


class SolConsole:
    """For one thread. Every method raises a DriverError when the console was taken away or the BMC is gone."""

    def __init__(self, session: IpmiSession, limits: Limits) -> None:
        """`session` is open, and this console's alone from now on."""
        self._session = session
        self._total_s = limits.total_s
        self._waits_s = tuple(min(wait_s, limits.read_s) for wait_s in ACK_WAITS_S)
        self._heard = bytearray()
        self._sent = 0  # number of the last packet sent
        self._acknowledged: tuple[int, int, int] | None = None  # number, accepted count, status
        self._received = 0  # number of the last packet received
        self._received_size = 0
        self._over: DriverError | None = None
        self._size = self._activate()
        self._alive_at = time.monotonic()
        session.sol_handler = self._take
        self._begin()

    # ------------------------------------------------------------ for the caller

    def read(self, timeout_s: float) -> bytes:
        """What the machine wrote; empty when it wrote nothing for so long."""
        until = time.monotonic() + timeout_s
        while not self._heard:
            self._check()
            self._keep_alive()
            left = until - time.monotonic()
            if left <= 0 or self._session.listen(self._something, min(left, ALIVE_EVERY_S)):
                break
        data = bytes(self._heard)
        self._heard.clear()
        if not data:
            self._check()
        return data

    def write(self, data: bytes) -> None:
        """Type this. Returns when the BMC has all of it."""
        left, deadline = bytes(data), Deadline.after(self._total_s)
        while left:
            if deadline.left_s() <= 0:
                raise TimedOut(f"{self._session.address}: the serial console takes no more of what is typed")
            left = left[self._send(left[: self._size], 0) :]

    def send_break(self) -> None:
        """As a terminal's break key."""
        self._send(b"", SEND_BREAK)

    def close(self) -> None:
        """Deactivate the console and end the session. Never raises."""
        self._session.sol_handler = None
        with suppress(DriverError):
            self._ask(DEACTIVATE, SOL_PAYLOAD + bytes(4))
        self._session.close()

    # ------------------------------------------------------------

    def _activate(self) -> int:
        answer = self._ask(ACTIVATE, SOL_PAYLOAD + ENCRYPTED_SIGNED)
        if answer.code == ALREADY_ACTIVE:
            self._ask(DEACTIVATE, SOL_PAYLOAD + bytes(4))
            answer = self._ask(ACTIVATE, SOL_PAYLOAD + ENCRYPTED_SIGNED)
        if answer.code == ALREADY_ACTIVE:
            raise Busy(f"{self._session.address}: the serial console is somebody else's, and stays so")
        if answer.code != 0:
            words = WORDS.get(answer.code, "it gives no serial console")
            raise REASONS.get(answer.code, Refused)(f"{self._session.address}: {words} (code 0x{answer.code:02x})")
        if len(answer.data) < 10:
            raise Malformed(f"{self._session.address}: Activate Payload gave {len(answer.data)} bytes")
        port = answer.data[8:10]
        here = self._session.address.port
        if here not in (int.from_bytes(port, "little"), int.from_bytes(port, "big")):  # some swap the bytes
            raise Unsupported(f"{self._session.address}: has its serial console on another port")
        return max(SMALLEST, min(int.from_bytes(answer.data[4:6], "little") - HEADER, LARGEST))

    def _begin(self) -> None:
        """An empty packet: OpenIPMI's simulator, for one, remembers the last number of whoever had the console before, and takes a first
        packet of that number for one that it knows."""
        self._sent = 1
        self._session.send_sol(bytes((self._sent, 0, 0, 0)))
        self._session.listen(lambda: self._acknowledged is not None or self._over is not None, self._waits_s[0])

    def _ask(self, command: tuple[int, int], data: bytes) -> Answer:
        answer = self._session.exchange(*command, data, COMMAND_WAITS_S, Deadline.after(self._total_s))
        if answer is None:
            raise TimedOut(f"{self._session.address}: does not answer any more")
        return answer

    def _keep_alive(self) -> None:
        """What comes from the machine keeps no session open at some BMCs."""
        if time.monotonic() - self._alive_at > ALIVE_EVERY_S:
            self._ask(GET_DEVICE_ID, b"")
            self._alive_at = time.monotonic()

    def _check(self) -> None:
        if self._over is not None:
            raise self._over

    def _something(self) -> bool:
        return bool(self._heard) or self._over is not None

    def _send(self, chunk: bytes, operation: int) -> int:
        """Send one packet until it is acknowledged; how many bytes of it were accepted."""
        self._check()
        self._sent = self._sent % 15 + 1
        packet = bytes((self._sent, 0, 0, operation)) + chunk
        self._acknowledged = None
        for wait_s in self._waits_s:
            self._session.send_sol(packet)
            self._session.listen(lambda: self._acknowledged is not None or self._over is not None, wait_s)
            self._check()
            if self._acknowledged is not None:
                _, accepted, status = self._acknowledged
                self._alive_at = time.monotonic()
                if status & NACK and accepted == 0:  # its buffer is full, or the machine is off
                    self._session.listen(lambda: self._over is not None, wait_s)
                    self._check()
                    return 0 if chunk else 1
                return min(accepted, len(chunk)) if status & NACK else len(chunk) or 1
        raise TimedOut(f"{self._session.address}: the serial console does not take what is typed")

    def _take(self, packet: bytearray) -> None:
        """A packet of the BMC's: an acknowledgement, data, or both."""
        if len(packet) < HEADER:
            return
        number, acknowledged, accepted, status = packet[0] & 0x0F, packet[1] & 0x0F, packet[2], packet[3]
        if status & CLOSED:
            self._over = Unreachable(f"{self._session.address}: the serial console was taken away")
        if acknowledged and acknowledged == self._sent:
            self._acknowledged = (acknowledged, accepted, status)
        if number:
            self._hear(number, bytes(packet[HEADER:]))

    def _hear(self, number: int, data: bytes) -> None:
        new = data
        if number == self._received:  # again, since our acknowledgement was lost: perhaps with more behind it
            new = data[self._received_size :]
        self._received, self._received_size = number, len(data)
        self._heard += new
        del self._heard[:-BUFFER_LIMIT]
        with suppress(Unreachable):  # the next call tells
            self._session.send_sol(bytes((0, number, min(len(data), 255), 0)))
