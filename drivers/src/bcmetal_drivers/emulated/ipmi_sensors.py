"""The sensors of an emulated IPMI BMC, their records, and what it logs (IPMI 2.0, chapters 31 to 36 and 43)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.resources import PowerState

DONE, NO_SUCH_RECORD, RESERVATION_LOST, CANNOT_RETURN = 0x00, 0xCB, 0xC5, 0xCA
LAST: Final = 0xFFFF
BMC: Final = 0x20
TEMPERATURE, VOLTAGE, FAN, POWER_SUPPLY, OTHER = 1, 2, 4, 8, 0x0B
CELSIUS, VOLTS, WATTS, RPM = 1, 4, 6, 18
THRESHOLD, SENSOR_SPECIFIC = 0x01, 0x6F
SYSTEM_EVENT, LOG_DISABLED, LOG_CLEARED = 0x02, 0x10, 0x02
NOT_AVAILABLE: Final = bytes((0, 0xE0, 0xC0))

Reply = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class _Analog:
    """value = m · raw · 10^exponent. `thresholds` raw: lower non-critical, critical, non-recoverable, then the upper ones."""

    name: str
    kind: int
    unit: int
    m: int
    exponent: int
    on: int
    off: int | None  # None: no reading while the machine is off
    sick: int
    thresholds: tuple[int, int, int, int, int, int]
    mask: int  # thresholds that it has


ANALOG: Final = (
    _Analog("CPU1 Temp", TEMPERATURE, CELSIUS, 1, 0, 41, None, 101, (0, 0, 0, 85, 95, 100), 0x38),
    _Analog("System Temp", TEMPERATURE, CELSIUS, 1, 0, 28, 24, 28, (5, 0, 0, 70, 80, 85), 0x39),
    _Analog("12V", VOLTAGE, VOLTS, 63, -3, 190, None, 190, (174, 165, 160, 205, 212, 216), 0x3F),
    _Analog("FAN1", FAN, RPM, 100, 0, 52, None, 4, (7, 5, 3, 250, 252, 254), 0x3F),
    _Analog("PW Consumption", OTHER, WATTS, 4, 0, 60, 3, 60, (0, 0, 0, 0, 0, 0), 0x00),
)
PSU: Final = "PS1 Status"
PSU_FRU: Final = 1


@dataclass(slots=True)
class Reserved:
    """Reservation numbers: one is good until the next is given out, or until what it is for changes."""

    number: int = 0

    def take(self) -> Reply:
        self.number = self.number % 0xFFFE + 1
        return DONE, self.number.to_bytes(2, "little")

    def holds(self, data: bytes) -> bool:
        return int.from_bytes(data[:2], "little") == self.number

    def lose(self) -> None:
        self.number = self.number % 0xFFFE + 1


class Sensors:
    """`read_limit`: how many bytes of a record one Get SDR gives; 0: as many as one asks for."""

    def __init__(self, machine: Machine, locator: bytes) -> None:
        self._machine = machine
        analog = (_full(n + 1, a) for n, a in enumerate(ANALOG))
        self._records = [locator, *analog, _compact(len(ANALOG) + 1), _fru_locator(PSU_FRU, "PS1 FRU")]
        self._reserved = Reserved()
        self.read_limit = 0

    def get_sdr_info(self, _: bytes) -> Reply:
        return DONE, bytes((0x51, *len(self._records).to_bytes(2, "little"), 0, 0)) + bytes(8) + b"\x02"

    def reserve_sdr(self, _: bytes) -> Reply:
        return self._reserved.take()

    def get_sdr(self, data: bytes) -> Reply:
        number, offset, count = int.from_bytes(data[2:4], "little"), data[4], data[5]
        at = len(self._records) - 1 if number == LAST else max(0, number - 1)
        if at >= len(self._records):
            return NO_SUCH_RECORD, b""
        record = (at + 1).to_bytes(2, "little") + self._records[at][2:]
        if (offset or count not in (0xFF, 5)) and not self._reserved.holds(data):
            return RESERVATION_LOST, b""
        wanted = len(record) - offset if count == 0xFF else count
        if self.read_limit and wanted > self.read_limit:
            return CANNOT_RETURN, b""
        following = at + 2 if at + 1 < len(self._records) else LAST
        return DONE, following.to_bytes(2, "little") + record[offset:][:wanted]

    def get_sensor_reading(self, data: bytes) -> Reply:
        at = data[0] - 1
        if at == len(ANALOG):
            lost = 0x08 if self._machine.health == "Critical" else 0  # AC lost
            return DONE, bytes((0, 0xC0, 0x01 | lost, 0x80))
        if not 0 <= at < len(ANALOG):
            return NO_SUCH_RECORD, b""
        raw = self._raw(ANALOG[at])
        if raw is None:
            return DONE, NOT_AVAILABLE
        return DONE, bytes((raw, 0xC0, 0xC0 | _crossed(ANALOG[at], raw)))

    def get_sensor_thresholds(self, data: bytes) -> Reply:
        at = data[0] - 1
        if not 0 <= at < len(ANALOG):
            return NO_SUCH_RECORD, b""
        return DONE, bytes((ANALOG[at].mask, *ANALOG[at].thresholds))

    def get_power_reading(self, data: bytes) -> Reply:
        watts = ANALOG[-1].m * (self._raw(ANALOG[-1]) or 0)
        low, now = watts.to_bytes(2, "little"), int(time.time()).to_bytes(4, "little")
        return DONE, b"\xdc" + low * 4 + now + (1000).to_bytes(4, "little") + b"\x40"

    def _raw(self, sensor: _Analog) -> int | None:
        if self._machine.power not in (PowerState.ON, PowerState.POWERING_OFF):
            return sensor.off
        return sensor.sick if self._machine.health == "Critical" else sensor.on


def _crossed(sensor: _Analog, raw: int) -> int:
    lower = (raw <= limit for limit in sensor.thresholds[:3])
    upper = (raw >= limit for limit in sensor.thresholds[3:])
    return sum(1 << n for n, crossed in enumerate((*lower, *upper)) if crossed and sensor.mask >> n & 1)


def _name(text: str) -> bytes:
    return bytes((0xC0 | len(text),)) + text.encode("ascii")


def _full(number: int, s: _Analog) -> bytes:
    """A full sensor record (table 43-1), without linearisation."""
    lower_nc, lower_c, lower_nr, upper_nc, upper_c, upper_nr = s.thresholds
    body = bytes((BMC, 0, number, 0x03, number, 0x7F, 0x64 if s.mask else 0x60, s.kind, THRESHOLD))
    body += bytes((0, (s.mask & 0x07) << 4, 0, (s.mask >> 3) << 4, s.mask, 0))  # what is compared with and read
    body += bytes((0x00, s.unit, 0, 0x00, s.m & 0xFF, s.m >> 8 << 6, 0, 0, 0, (s.exponent & 0x0F) << 4))
    body += bytes((0x00, s.on, 0xFF, 0, 0xFF, 0))
    body += bytes((upper_nr, upper_c, upper_nc, lower_nr, lower_c, lower_nc, 1, 1, 0, 0, 0)) + _name(s.name)
    return bytes((0, 0, 0x51, 0x01, len(body))) + body


def _compact(number: int) -> bytes:
    """A compact sensor record (table 43-2): a power supply."""
    body = bytes((BMC, 0, number, 0x0A, 1, 0x7F, 0x40, POWER_SUPPLY, SENSOR_SPECIFIC, 0x09, 0, 0x09, 0, 0x09, 0))
    body += bytes((0xC0, 0, 0, 0x01, 0, 0, 0, 0, 0, 0, 0)) + _name(PSU)
    return bytes((0, 0, 0x51, 0x02, len(body))) + body


def _fru_locator(device: int, name: str) -> bytes:
    """A FRU device locator record (table 43-7): a power supply's, logical, of the BMC itself."""
    body = bytes((BMC, device, 0x80, 0, 0, 0x10, 0, 0x0A, 1, 0)) + _name(name)
    return bytes((0, 0, 0x51, 0x11, len(body))) + body


# ---------------------------------------------------------------- the log


@dataclass(slots=True)
class EventLog:
    """`erase_polls`: how often Clear SEL is answered with "in progress" before it is done."""

    clock_ahead_s: int = 0
    erase_polls: int = 1
    entries: list[bytes] = field(default_factory=list)
    _next: int = 1
    _erased_at: int = 0
    _added_at: int = 0
    _polls: int = 0
    _reserved: Reserved = field(default_factory=Reserved)

    def now(self) -> int:
        return int(time.time()) + self.clock_ahead_s

    def add(self, kind: int, sensor: int, reading_type: int, data: bytes, at: int | None = None) -> int:
        """A system event of the BMC; its number."""
        number, self._next = self._next, self._next + 1
        stamp = (self.now() if at is None else at).to_bytes(4, "little")
        tail = bytes((BMC, 0, 0x04, kind, sensor, reading_type)) + data.ljust(3, b"\xff")
        return self._put(number, bytes((SYSTEM_EVENT,)) + stamp + tail)

    def add_raw(self, record: bytes) -> int:
        """14 bytes, from the record's type on."""
        number, self._next = self._next, self._next + 1
        return self._put(number, record)

    def _put(self, number: int, record: bytes) -> int:
        self.entries.append(number.to_bytes(2, "little") + record)
        self._added_at = self.now()
        self._reserved.lose()
        return number

    def snapshot(self) -> dict[str, Any]:
        return {"entries": [entry.hex() for entry in self.entries], "next": self._next, "ahead": self.clock_ahead_s}

    def restore(self, doc: Mapping[str, Any]) -> None:
        self.entries = [bytes.fromhex(entry) for entry in doc["entries"]]
        self._next, self.clock_ahead_s = doc["next"], doc["ahead"]

    # ------------------------------------------------------------ commands

    def get_sel_info(self, _: bytes) -> Reply:
        times = self._added_at.to_bytes(4, "little") + self._erased_at.to_bytes(4, "little")
        return DONE, b"\x51" + len(self.entries).to_bytes(2, "little") + (8192).to_bytes(2, "little") + times + b"\x02"

    def reserve_sel(self, _: bytes) -> Reply:
        return self._reserved.take()

    def get_sel_entry(self, data: bytes) -> Reply:
        wanted, offset, count = int.from_bytes(data[2:4], "little"), data[4], data[5]
        numbers = [int.from_bytes(entry[:2], "little") for entry in self.entries]
        if not numbers or wanted not in (0, LAST, *numbers):
            return NO_SUCH_RECORD, b""
        at = 0 if wanted == 0 else len(numbers) - 1 if wanted == LAST else numbers.index(wanted)
        following = numbers[at + 1] if at + 1 < len(numbers) else LAST
        part = self.entries[at][offset:] if count == 0xFF else self.entries[at][offset : offset + count]
        return DONE, following.to_bytes(2, "little") + part

    def clear_sel(self, data: bytes) -> Reply:
        if not self._reserved.holds(data):
            return RESERVATION_LOST, b""
        if data[2:5] != b"CLR":
            return 0xCC, b""
        if data[5] == 0xAA:
            self.entries.clear()
            held = self._reserved.number
            self.add(LOG_DISABLED, 0xD1, SENSOR_SPECIFIC, bytes((LOG_CLEARED,)))
            self._reserved.number, self._erased_at, self._polls = held, self.now(), self.erase_polls
        elif self._polls > 0:
            self._polls -= 1
            return DONE, b"\x00"
        return DONE, b"\x01"

    def get_sel_time(self, _: bytes) -> Reply:
        return DONE, self.now().to_bytes(4, "little")

    def set_sel_time(self, data: bytes) -> Reply:
        self.clock_ahead_s = int.from_bytes(data[:4], "little") - int(time.time())
        return DONE, b""
