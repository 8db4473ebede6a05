"""The serial console of an emulated IPMI BMC: what the machine writes goes to whoever has the console, what is typed is kept and echoed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

DONE, ALREADY_ACTIVE, SWITCHED_OFF, NOT_ACTIVE = 0x00, 0x80, 0x81, 0x80
PARAMETER_NOT_SUPPORTED: Final = 0x80
SIZE: Final = 64  # characters of one packet
CLOSED: Final = 0x10
RESEND_S: Final = 0.1

Reply = tuple[int, bytes]


@dataclass(slots=True)
class Serial:
    """`owner` sends a packet to the client that has the console; None: nobody has it. `stale`: a client that went away without a word."""

    enabled: bool = True
    echoes: bool = True
    greeting: bytes = b"login: "
    owner: Callable[[bytes], None] | None = None
    stale: bool = False
    typed: bytearray = field(default_factory=bytearray)
    breaks: int = 0
    activations: int = 0
    _waiting: bytearray = field(default_factory=bytearray)
    _packet: bytes | None = None  # sent, and not yet acknowledged
    _number: int = 0
    _heard: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def activate(self, send: Callable[[bytes], None], port: int) -> Reply:
        with self._lock:
            if not self.enabled:
                return SWITCHED_OFF, b""
            if self.owner is not None or self.stale:
                return ALREADY_ACTIVE, b""
            self.owner, self._packet, self._number, self._heard = send, None, 0, 0
            self.activations += 1
            self._waiting[:] = self.greeting
            size = (SIZE + 4).to_bytes(2, "little")
            return DONE, bytes(4) + size + size + port.to_bytes(2, "little") + b"\xff\xff"

    def deactivate(self) -> Reply:
        with self._lock:
            if self.owner is None and not self.stale:
                return NOT_ACTIVE, b""
            self.take_away()
            return DONE, b""

    def take_away(self) -> None:
        """As somebody else who deactivates it: its client is told."""
        with self._lock:
            owner, self.owner, self.stale = self.owner, None, False
            if owner is not None:
                owner(bytes((0, 0, 0, CLOSED)))

    def dropped(self, send: Callable[[bytes], None]) -> None:
        """That client's session ended."""
        with self._lock:
            if self.owner == send:
                self.owner = None

    def output(self, data: bytes) -> None:
        """The machine writes; the wire's thread sends it soon."""
        with self._lock:
            self._waiting += data

    def take(self, packet: bytes) -> None:
        """From the client: something typed, an acknowledgement, or both."""
        number, acknowledged, operation = packet[0] & 0x0F, packet[1] & 0x0F, packet[3]
        with self._lock:
            if self._packet is not None and acknowledged == self._packet[0]:
                self._packet = None
            if number and self.owner is not None:
                data = packet[4:]
                if number != self._heard:
                    self._heard = number
                    self.typed += data
                    self.breaks += bool(operation & 0x10)
                    if self.echoes:
                        self._waiting += data
                self.owner(bytes((0, number, len(data), 0)))
            self._next()

    def again(self) -> None:
        """Send what was not acknowledged once more, or what was written meanwhile."""
        with self._lock:
            if self._packet is not None and self.owner is not None:
                self.owner(self._packet)
            else:
                self._next()

    @property
    def in_use(self) -> bool:
        return self.owner is not None

    def start(self) -> None:
        with self._lock:
            self._next()

    def _next(self) -> None:
        if self._packet is None and self._waiting and self.owner is not None:
            self._number = self._number % 15 + 1
            chunk = bytes(self._waiting[:SIZE])
            del self._waiting[:SIZE]
            self._packet = bytes((self._number, 0, 0, 0)) + chunk
            self.owner(self._packet)

    def get_parameter(self, data: bytes) -> Reply:
        values = {
            0: b"\x00",
            1: bytes((self.enabled,)),
            2: b"\x84",
            3: b"\x0c\x60",
            4: b"\x07\x32",
            5: b"\x0a",
            6: b"\x0a",
            7: b"\x01",
        }
        value = values.get(data[1])
        return (PARAMETER_NOT_SUPPORTED, b"") if value is None else (DONE, b"\x11" + value)

    def set_parameter(self, data: bytes) -> Reply:
        if data[1] == 1:
            self.enabled = bool(data[2] & 0x01)
        return DONE, b""
