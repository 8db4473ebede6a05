"""LAN channel 1 of an emulated IPMI BMC: addresses, access, cipher suites; and channel 15, the host's way in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bcmetal_drivers.emulated.ipmi_wire import ADMINISTRATOR, SUITES, suite_records
from bcmetal_drivers.emulated.machine import Machine

DONE, INVALID_DATA = 0x00, 0xCC
NOT_SUPPORTED, READ_ONLY = 0x80, 0x82
CHANNEL: Final = 1
THIS_CHANNEL, SYSTEM_INTERFACE = 0x0E, 0x0F
ENTRIES: Final = tuple(SUITES)  # the suites that it knows, usable or not
AUTH_TYPES, SUITE_COUNT, SUITE_ENTRIES, SUITE_PRIVILEGES = 2, 22, 23, 24
ALWAYS: Final = 0x02

Reply = tuple[int, bytes]


class Lan:
    """`levels`: up to which privilege each suite may be used; 0: not at all."""

    def __init__(self, machine: Machine, host: str) -> None:
        self.levels = dict.fromkeys(ENTRIES, 0) | {17: ADMINISTRATOR, 3: ADMINISTRATOR}
        self._access = {0x40: ALWAYS, 0x80: ALWAYS}  # stored, in force
        self._limit = ADMINISTRATOR
        self._parameters: dict[int, bytes] = {
            0: b"\x00",
            1: b"\x14",  # MD5 and passwords are supported by IPMI 1.5
            AUTH_TYPES: bytes(5),
            3: bytes(map(int, host.split("."))),
            4: b"\x01",
            5: bytes.fromhex(f"0200{machine.uuid.hex[:8]}"),
            6: b"\xff\x00\x00\x00",
            7: b"\x40\x40\x10",
            10: b"\x02",
            11: b"\x00",
            12: bytes(4),
            13: bytes(6),
            14: bytes(4),
            15: bytes(6),
            16: b"public".ljust(18, b"\x00"),
            20: bytes(2),
            21: b"\x00",
        }

    @property
    def is_on(self) -> bool:
        """Whether anybody is answered on the network."""
        return bool(self._access[0x80] & 0x07)

    def suites(self) -> tuple[int, ...]:
        return tuple(suite for suite, level in self.levels.items() if level)

    def use_suites(self, suites: tuple[int, ...]) -> None:
        self.levels = {suite: ADMINISTRATOR if suite in suites else 0 for suite in ENTRIES}

    def set_parameter(self, number: int, data: bytes) -> None:
        """As somebody at the host would."""
        self._parameters[number] = data

    def snapshot(self) -> dict[str, Any]:
        return {
            "levels": [[suite, level] for suite, level in self.levels.items()],
            "access": self._access[0x40],
            "parameters": [[number, data.hex()] for number, data in self._parameters.items()],
        }

    def restore(self, doc: Mapping[str, Any]) -> None:
        self.levels = {int(suite): int(level) for suite, level in doc["levels"]}
        self._access = {0x40: doc["access"], 0x80: doc["access"]}
        self._parameters = {int(number): bytes.fromhex(data) for number, data in doc["parameters"]}

    # ------------------------------------------------------------ commands

    def get_channel_info(self, data: bytes) -> Reply:
        channel = data[0] & 0x0F
        if channel == SYSTEM_INTERFACE:
            return DONE, bytes((SYSTEM_INTERFACE, 0x0C, 0x05, 0x00, 0xF2, 0x1B, 0x00, 0x00, 0x00))
        if channel not in (CHANNEL, THIS_CHANNEL):
            return INVALID_DATA, b""
        return DONE, bytes((CHANNEL, 0x04, 0x01, 0x80, 0xF2, 0x1B, 0x00, 0x00, 0x00))

    def get_cipher_suites(self, data: bytes) -> Reply:
        return DONE, suite_records(self.suites(), data[2] & 0x3F)

    def get_channel_access(self, data: bytes) -> Reply:
        if data[0] & 0x0F not in (CHANNEL, THIS_CHANNEL) or data[1] & 0xC0 not in self._access:
            return INVALID_DATA, b""
        return DONE, bytes((self._access[data[1] & 0xC0], self._limit))

    def set_channel_access(self, data: bytes) -> Reply:
        where = data[1] & 0xC0
        if data[0] & 0x0F not in (CHANNEL, THIS_CHANNEL):
            return INVALID_DATA, b""
        if where in self._access:
            self._access[where] = data[1] & 0x3F
        if data[2] & 0xC0:
            self._limit = data[2] & 0x0F
        return DONE, b""

    def get_lan_parameter(self, data: bytes) -> Reply:
        if data[0] & 0x0F not in (CHANNEL, THIS_CHANNEL):
            return INVALID_DATA, b""
        number = data[1]
        if number == SUITE_COUNT:
            value: bytes | None = bytes((len(ENTRIES),))
        elif number == SUITE_ENTRIES:
            value = bytes((0, *ENTRIES)).ljust(17, b"\x00")
        elif number == SUITE_PRIVILEGES:
            levels = [self.levels[suite] for suite in ENTRIES] + [0] * (16 - len(ENTRIES))
            value = bytes((0, *(levels[n] | levels[n + 1] << 4 for n in range(0, 16, 2))))
        else:
            value = self._parameters.get(number)
        return (NOT_SUPPORTED, b"") if value is None else (DONE, b"\x11" + value)

    def set_lan_parameter(self, data: bytes) -> Reply:
        number, value = data[1], data[2:]
        if number == SUITE_PRIVILEGES:
            nibbles = [nibble for byte in value[1:9] for nibble in (byte & 0x0F, byte >> 4)]
            if len(nibbles) < len(ENTRIES):
                return 0xC7, b""
            self.levels = dict(zip(ENTRIES, nibbles, strict=False))
            return DONE, b""
        if number in (SUITE_COUNT, SUITE_ENTRIES, 1):
            return READ_ONLY, b""
        if number not in self._parameters:
            return NOT_SUPPORTED, b""
        if number != 0 and len(value) != len(self._parameters[number]):
            return 0xC7, b""
        self._parameters[number] = value
        return DONE, b""
