"""The system event log of an IPMI BMC (IPMI 2.0, chapters 31 and 32): its newest entries decoded, and clearing it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from bcmetal_drivers import ipmi_words
from bcmetal_drivers.errors import Busy, Malformed, MaybeSent, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.ipmi_chassis import when
from bcmetal_drivers.ipmi_door import Command, IpmiDoor
from bcmetal_drivers.ipmi_sdr import SensorRecord
from bcmetal_drivers.ipmi_sensors import Records
from bcmetal_drivers.resources import LogEntry

GET_INFO: Final = Command("Get SEL Info", 0x0A, 0x40)
RESERVE: Final = Command("Reserve SEL", 0x0A, 0x42)
GET_ENTRY: Final = Command("Get SEL Entry", 0x0A, 0x43)
CLEAR: Final = Command("Clear SEL", 0x0A, 0x47)

FIRST, LAST = 0x0000, 0xFFFF
WHOLE: Final = 0xFF
ENTRY: Final = 16
GONE: Final = 0xCB
RESERVATION_LOST: Final = 0xC5
WALK_LIMIT: Final = 16384
SYSTEM_EVENT: Final = 0x02
START, STATUS = 0xAA, 0x00
LOG_DISABLED, LOG_CLEARED = 0x10, 0x02  # a sensor type, and its offset
TRIES: Final = 4
ERASE_POLL_S: Final = 0.5

SensorsByKey = Mapping[tuple[int, int], SensorRecord]


def newest(door: IpmiDoor, records: Records, limit: int) -> tuple[LogEntry, ...]:
    """The newest `limit` entries, oldest first."""
    if limit < 1 or _entries(door) == 0:
        return ()
    raw = _tail(door, limit)
    known = _known(door, records) if raw else {}
    return tuple(_decode(entry, known) for entry in raw)


def clear(door: IpmiDoor) -> None:
    """Under a reservation, which somebody else's event takes away: then again, a few times. Returns when the erasure is complete."""
    before = _entries(door)
    for _ in range(TRIES):
        reservation = _reservation(door)
        try:
            answer = door.write(CLEAR, reservation + b"CLR" + bytes((START,)))
        except MaybeSent:
            if before and _entries(door) < before:  # the log is shorter: it took it
                return
            raise
        if answer.code == RESERVATION_LOST:
            continue
        door.check(CLEAR, answer)
        _wait(door, reservation)
        left = _entries(door)
        if left and left >= before and not _tells_of_clearing(_entry(door, LAST)):
            raise NotAsAsked(f"{door.address}: its event log was cleared, and still holds {left} entries")
        return
    raise Busy(f"{door.address}: new events came whenever its log was to be cleared")


def _tells_of_clearing(last: tuple[int, bytes] | None) -> bool:
    """Most BMCs begin a log with the entry that it was cleared."""
    return last is not None and (last[1][10], last[1][13] & 0x0F) == (LOG_DISABLED, LOG_CLEARED)


def _wait(door: IpmiDoor, reservation: bytes) -> None:
    """Ends with the call's deadline at the latest: the door raises TimedOut then."""
    while True:
        answer = door.read(CLEAR, reservation + b"CLR" + bytes((STATUS,)))
        if answer.code != 0 or not answer.data or answer.data[0] & 0x0F:  # a lost reservation: the count tells
            return
        time.sleep(ERASE_POLL_S)


def _entries(door: IpmiDoor) -> int:
    data = door.get(GET_INFO)
    if len(data) < 3:
        raise Malformed(f"{door.address}: {GET_INFO.name} gave {len(data)} bytes")
    return int.from_bytes(data[1:3], "little")


def _reservation(door: IpmiDoor) -> bytes:
    answer = door.read(RESERVE)
    return answer.data[:2] if answer.code == 0 and len(answer.data) >= 2 else b"\x00\x00"


def _tail(door: IpmiDoor, limit: int) -> list[bytes]:
    """Entries are a list with links forward only; mostly they are numbered one by one, so that a jump near its end saves the walk."""
    last = _entry(door, LAST)
    if last is not None:
        start = int.from_bytes(last[1][:2], "little") - limit + 1
        if start > 1:
            jumped = list(_walk(door, start))
            if len(jumped) >= limit:
                return jumped[-limit:]
    return list(deque(_walk(door, FIRST), maxlen=limit))


def _walk(door: IpmiDoor, number: int) -> Iterator[bytes]:
    seen = set[int]()
    while number != LAST and number not in seen and len(seen) < WALK_LIMIT:
        seen.add(number)
        found = _entry(door, number)
        if found is None:
            return
        number, record = found
        yield record


def _entry(door: IpmiDoor, number: int) -> tuple[int, bytes] | None:
    """The next one's number and this entry; None where there is no such entry."""
    answer = door.read(GET_ENTRY, b"\x00\x00" + number.to_bytes(2, "little") + bytes((0, WHOLE)))
    if answer.code == GONE:
        return None
    data = door.check(GET_ENTRY, answer)
    if len(data) < 2 + ENTRY:
        raise Malformed(f"{door.address}: {GET_ENTRY.name} gave {len(data)} bytes")
    return int.from_bytes(data[:2], "little"), data[2 : 2 + ENTRY]


def _known(door: IpmiDoor, records: Records) -> SensorsByKey:
    try:
        return {record.key: record for record in records.of(door)}
    except (Unsupported, Refused, Malformed, Busy):
        return {}  # the log is worth reading without the sensors' names


# ---------------------------------------------------------------- decoding


def _decode(entry: bytes, known: SensorsByKey) -> LogEntry:
    ref, kind = str(int.from_bytes(entry[:2], "little")), entry[2]
    if kind >= 0xE0:  # a maker's, without a time
        return LogEntry(ref, None, None, f"OEM record 0x{kind:02x}: {entry[3:].hex()}")
    at = when(entry[3:7])
    if kind != SYSTEM_EVENT:
        return LogEntry(ref, at, None, f"OEM record 0x{kind:02x}: {entry[7:].hex()}")
    owner, sensor_type, number = entry[7], entry[10], entry[11]
    asserted, reading_type, data = not entry[12] & 0x80, entry[12] & 0x7F, entry[13:16]
    record = known.get((owner, number))
    name = record.name if record is not None and record.name else None
    offset = data[0] & 0x0F
    meaning = ipmi_words.state(sensor_type, reading_type, offset, asserted)
    if meaning is None:
        verb = "asserted" if asserted else "deasserted"
        words, severity = f"event {reading_type:#04x}/{offset} {verb}, data {data.hex()}", None
    else:
        words, severity = meaning.words, meaning.severity
    detail = _detail(record, sensor_type, reading_type, offset, data)
    message = f"{ipmi_words.sensor_type(sensor_type)}: {words}{f' ({detail})' if detail else ''}"
    return LogEntry(ref, at, severity, message, name or f"sensor {number}")


def _detail(record: SensorRecord | None, kind: int, reading_type: int, offset: int, data: bytes) -> str | None:
    if reading_type == ipmi_words.SENSOR_SPECIFIC:
        return ipmi_words.more(kind, offset, data)
    if reading_type != ipmi_words.THRESHOLD or record is None or record.formula is None:
        return None
    said = []
    if data[0] >> 6 == 1:  # byte 2 is the reading that crossed
        said.append(("read", record.formula.value(data[1])))
    if data[0] >> 4 & 0x03 == 1:  # byte 3 is the threshold
        said.append(("threshold", record.formula.value(data[2])))
    return ", ".join(f"{word} {value:g}" for word, value in said if value is not None) or None
