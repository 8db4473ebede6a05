"""The sensor data records of an IPMI BMC (IPMI 2.0, chapters 33 and 43): fetched whole or in parts, and decoded.

A repository may change under the reader: its reservation is lost then (0xC5), and the record is read again. The repository of a BMC
without one of its own is asked for as device SDRs. Records that make no sense are left out, for others are good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bcmetal_drivers.errors import Busy, Malformed, Unsupported
from bcmetal_drivers.ipmi_door import Command, IpmiDoor

GET_INFO: Final = Command("Get SDR Repository Info", 0x0A, 0x20)
RESERVE: Final = Command("Reserve SDR Repository", 0x0A, 0x22)
GET_RECORD: Final = Command("Get SDR", 0x0A, 0x23)
RESERVE_DEVICE: Final = Command("Reserve Device SDR Repository", 0x04, 0x22)
GET_DEVICE_RECORD: Final = Command("Get Device SDR", 0x04, 0x21)

HEADER: Final = 5
WHOLE: Final = 0xFF
LAST: Final = 0xFFFF
RECORDS_LIMIT: Final = 2048
RECORD_LIMIT: Final = HEADER + 255
LOSSES_LIMIT: Final = 16  # of the reservation, in one reading of all records
CHUNKS: Final = (32, 16, 8)  # bytes at a time, where a record cannot be had whole
RESERVATION_LOST: Final = 0xC5
CANNOT_RETURN: Final = frozenset({0xC7, 0xC8, 0xC9, 0xCA, 0xCC, 0xFF})
GONE: Final = 0xCB  # no such record
FULL, COMPACT, FRU_LOCATOR = 0x01, 0x02, 0x11
BMC_ADDRESS: Final = 0x20


@dataclass(frozen=True, slots=True)
class Formula:
    """How a raw reading becomes a value: L((M·x + B·10^K1)·10^K2) (IPMI 2.0, section 36.3)."""

    m: int
    b: int
    b_exponent: int
    exponent: int
    linearisation: int
    signed: int  # 0 unsigned, 1 ones' complement, 2 two's complement

    def value(self, raw: int) -> float | None:
        """None where the formula has no value there, such as the logarithm of a negative number."""
        x = raw
        if self.signed and raw & 0x80:
            x = raw - 0xFF if self.signed == 1 else raw - 0x100
        try:
            linear = (self.m * x + self.b * 10.0**self.b_exponent) * 10.0**self.exponent
            value = _LINEARISATIONS[self.linearisation](linear)
        except (ArithmeticError, ValueError):
            return None
        return value if math.isfinite(value) else None


_LINEARISATIONS: Final[Mapping[int, Callable[[float], float]]] = {
    0: lambda x: x,
    1: math.log,
    2: math.log10,
    3: math.log2,
    4: math.exp,
    5: lambda x: 10.0**x,
    6: lambda x: 2.0**x,
    7: lambda x: 1.0 / x,
    8: lambda x: x * x,
    9: lambda x: x**3,
    10: math.sqrt,
    11: lambda x: math.copysign(abs(x) ** (1 / 3), x),
}


@dataclass(frozen=True, slots=True)
class SensorRecord:
    """A full or a compact record (IPMI 2.0, sections 43.1 and 43.2); numbers are the specification's.

    `formula` None: no number, or one whose factors must be asked for at each reading (`non_linear`).
    """

    name: str
    number: int
    lun: int
    owner: int
    kind: int  # sensor type
    reading_type: int
    entity: int
    unit: int
    percent: bool
    formula: Formula | None
    signed: int
    non_linear: bool
    thresholds_mask: int  # those that it has, bits as in Get Sensor Thresholds
    fixed_thresholds: bytes  # in the order of Get Sensor Thresholds, where they cannot be asked for; else empty

    @property
    def key(self) -> tuple[int, int]:
        return self.owner, self.number


@dataclass(frozen=True, slots=True)
class FruLocator:
    """Where another FRU is: a power supply's, a memory module's. Of the BMC itself, and logical, so that Read FRU Data reaches it."""

    name: str
    device: int
    entity: int


def repository_stamp(door: IpmiDoor) -> bytes | None:
    """What changes whenever the repository does; None where the BMC does not tell."""
    answer = door.read(GET_INFO)
    return answer.data[1:3] + answer.data[5:13] if answer.code == 0 and len(answer.data) >= 13 else None


def read_records(door: IpmiDoor) -> tuple[SensorRecord | FruLocator, ...]:
    """Every sensor and FRU that the BMC has a record of.

    Raises Unsupported where it has neither a repository nor device SDRs, Busy when they change all the time, Malformed.
    """
    try:
        raw = list(_Repository(door, RESERVE, GET_RECORD).records())
    except Unsupported:
        raw = list(_Repository(door, RESERVE_DEVICE, GET_DEVICE_RECORD).records())
    return tuple(record for record in map(decode, raw) if record is not None)


class _Repository:
    def __init__(self, door: IpmiDoor, reserve: Command, get: Command) -> None:
        self._door = door
        self._reserve = reserve
        self._get = get
        self._reservation = b"\x00\x00"
        self._chunks = [WHOLE, *CHUNKS]
        self._losses = 0

    def records(self) -> Iterator[bytes]:
        self._take_reservation()
        number, seen = 0, set[int]()
        while number != LAST and number not in seen and len(seen) < RECORDS_LIMIT:
            seen.add(number)
            following, record = self._record(number)
            if record is not None:
                yield record
            number = following

    def _take_reservation(self) -> None:
        answer = self._door.read(self._reserve)
        # a BMC that knows no reservations takes a zero one
        self._reservation = answer.data[:2] if answer.code == 0 and len(answer.data) >= 2 else b"\x00\x00"

    def _record(self, number: int) -> tuple[int, bytes | None]:
        """The next record's number and this record. An empty repository has none."""
        while True:
            found = self._once(number)
            if found is not None:
                return found
            self._losses += 1
            if self._losses > LOSSES_LIMIT:
                raise Busy(f"{self._door.address}: its sensor records change while they are read")
            self._take_reservation()

    def _once(self, number: int) -> tuple[int, bytes | None] | None:
        """None: the reservation was lost on the way."""
        record = bytearray()
        following, size = LAST, HEADER
        while len(record) < size:
            chunk = self._chunks[0]
            if chunk == WHOLE and record:
                chunk = size - len(record)
            asked = chunk if chunk == WHOLE else min(chunk, size - len(record))
            request = self._reservation + number.to_bytes(2, "little") + bytes((len(record), asked))
            answer = self._door.read(self._get, request)
            if answer.code == RESERVATION_LOST:
                return None
            if answer.code in CANNOT_RETURN and len(self._chunks) > 1:
                self._chunks.pop(0)
                continue
            if answer.code == GONE and not record:
                return LAST, None
            data = self._door.check(self._get, answer)
            if len(data) < 3:
                raise Malformed(f"{self._door.address}: {self._get.name} gave {len(data)} bytes for record {number}")
            following = int.from_bytes(data[:2], "little")
            record += data[2:]
            if len(record) >= HEADER:
                size = min(HEADER + record[4], RECORD_LIMIT)
        return following, bytes(record[:size])


# ---------------------------------------------------------------- decoding


def decode(record: bytes) -> SensorRecord | FruLocator | None:
    """A sensor's record, or a FRU's; None for other kinds of records, and for what is cut short."""
    kind = record[3] if len(record) > 3 else None
    if kind == FRU_LOCATOR and len(record) > 15 and record[5] >> 1 == BMC_ADDRESS >> 1 and record[7] & 0x80:
        return FruLocator(_name(record[15:]), record[6], record[12])
    if kind not in (FULL, COMPACT):
        return None
    name_at = 47 if kind == FULL else 31
    if len(record) <= name_at:
        return None
    unit_bytes, capabilities = record[20], record[11]
    signed = unit_bytes >> 6
    linearisation = record[23] & 0x7F if kind == FULL else 0
    non_linear = kind == FULL and linearisation > 11
    analog = kind == FULL and signed != 3 and record[13] == 0x01
    formula = _formula(record[24:30], linearisation, signed) if analog and not non_linear else None
    access = capabilities >> 2 & 0x03 if kind == FULL else 0
    return SensorRecord(
        name=_name(record[name_at:]),
        number=record[7],
        lun=record[6] & 0x03,
        owner=record[5],
        kind=record[12],
        reading_type=record[13],
        entity=record[8],
        unit=record[21],
        percent=bool(unit_bytes & 0x01),
        formula=formula,
        signed=signed,
        non_linear=analog and non_linear,
        thresholds_mask=_mask(record, access),
        fixed_thresholds=_thresholds(record) if kind == FULL and access == 3 else b"",
    )


def _mask(record: bytes, access: int) -> int:
    if access == 3:  # what is compared with, since nothing can be read
        return record[15] >> 4 & 0x07 | (record[17] >> 4 & 0x07) << 3
    return record[18] & 0x3F if access else 0


def _thresholds(record: bytes) -> bytes:
    """A full record has them from non-recoverable inwards, upper ones first; here they are in the order of Get Sensor Thresholds."""
    upper_nr, upper_c, upper_nc, lower_nr, lower_c, lower_nc = record[36:42]
    return bytes((lower_nc, lower_c, lower_nr, upper_nc, upper_c, upper_nr))


def factors(data: bytes, signed: int) -> Formula | None:
    """The formula in an answer to Get Sensor Reading Factors, which a non-linear sensor has for each reading."""
    return _formula(data[1:7], 0, signed) if len(data) >= 7 else None


def _formula(data: bytes, linearisation: int, signed: int) -> Formula:
    return Formula(
        m=_signed(data[0] | (data[1] & 0xC0) << 2, 10),
        b=_signed(data[2] | (data[3] & 0xC0) << 2, 10),
        b_exponent=_signed(data[5] & 0x0F, 4),
        exponent=_signed(data[5] >> 4, 4),
        linearisation=linearisation,
        signed=signed,
    )


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


_BCD_PLUS: Final = "0123456789 -.:,_"


def _name(field: bytes) -> str:
    """A type/length field (IPMI 2.0, section 43.15)."""
    kind, data = field[0] >> 6, field[1 : 1 + (field[0] & 0x1F)]
    if kind == 1:
        text = "".join(_BCD_PLUS[byte >> 4] + _BCD_PLUS[byte & 0x0F] for byte in data)
    elif kind == 2:
        packed = int.from_bytes(data, "little")
        text = "".join(chr((packed >> 6 * n & 0x3F) + 0x20) for n in range(len(data) * 8 // 6))
    else:
        text = data.decode("latin-1" if kind == 3 else "utf-8", "replace")
    return "".join(c for c in text if c.isprintable()).strip()
