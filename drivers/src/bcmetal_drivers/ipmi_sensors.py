"""Sensors over IPMI: the records tell what there is and how to read it, Get Sensor Reading what it shows now; power by DCMI."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from bcmetal_drivers import ipmi_words
from bcmetal_drivers.errors import Refused, Unsupported
from bcmetal_drivers.ipmi_door import Command, IpmiDoor
from bcmetal_drivers.ipmi_sdr import (
    BMC_ADDRESS,
    Formula,
    FruLocator,
    SensorRecord,
    factors,
    read_records,
    repository_stamp,
)
from bcmetal_drivers.resources import Sensor, SensorKind

GET_FACTORS: Final = 0x23
GET_THRESHOLDS: Final = 0x27
GET_READING: Final = 0x2D
SENSOR: Final = 0x04  # the network function
GET_POWER_READING: Final = Command("DCMI Get Power Reading", 0x2C, 0x02)
DCMI: Final = 0xDC
DCMI_ACTIVE: Final = 0x40

NAMES: Final = ("lower-caution", "lower-critical", "lower-fatal", "upper-caution", "upper-critical", "upper-fatal")
CROSSED: Final = ("warning", "critical", "critical", "warning", "critical", "critical")
KINDS: Final[Mapping[int, SensorKind]] = {
    1: SensorKind.TEMPERATURE,
    2: SensorKind.VOLTAGE,
    3: SensorKind.CURRENT,
    4: SensorKind.FAN,
}
WATTS: Final = 6
# IPMI 2.0, table 43-15 -> UCUM, for what servers have
UNITS: Final[Mapping[int, str]] = {
    1: "Cel",
    2: "[degF]",
    3: "K",
    4: "V",
    5: "A",
    WATTS: "W",
    7: "J",
    17: "[cft_i]/min",
    18: "{rev}/min",
    19: "Hz",
    22: "s",
    23: "min",
    24: "h",
}
RANK: Final = ("ok", "warning", "critical")


class Records:
    """The sensors' records, kept as long as the repository does not change: they are hundreds of requests."""

    def __init__(self) -> None:
        self._stamp: bytes | None = None
        self._records: tuple[SensorRecord | FruLocator, ...] | None = None

    def of(self, door: IpmiDoor) -> tuple[SensorRecord, ...]:
        return tuple(record for record in self._all(door) if isinstance(record, SensorRecord))

    def frus(self, door: IpmiDoor) -> tuple[FruLocator, ...]:
        return tuple(record for record in self._all(door) if isinstance(record, FruLocator))

    def _all(self, door: IpmiDoor) -> tuple[SensorRecord | FruLocator, ...]:
        stamp = repository_stamp(door)
        if self._records is None or stamp is None or stamp != self._stamp:
            self._records, self._stamp = read_records(door), stamp
        return self._records


def sensors(door: IpmiDoor, records: Records, kinds: Collection[int] | None = None) -> tuple[Sensor, ...]:
    """Those of the BMC itself; the ones behind other controllers are named without a reading. `kinds`: of these sensor types alone."""
    return tuple(_sensor(door, record) for record in records.of(door) if kinds is None or record.kind in kinds)


def power_draw_w(door: IpmiDoor) -> float | None:
    """By DCMI 1.5, section 6.6.1. None where the BMC does not know it, or does not measure just now."""
    try:
        data = door.get(GET_POWER_READING, bytes((DCMI, 1, 0, 0)))
    except (Unsupported, Refused):
        return None
    if len(data) < 18 or data[0] != DCMI or not data[17] & DCMI_ACTIVE:
        return None
    return float(int.from_bytes(data[1:3], "little"))


def worst(healths: tuple[str | None, ...]) -> str | None:
    """None: nobody says anything."""
    said = [health for health in healths if health is not None]
    return max(said, key=RANK.index) if said else None


def _sensor(door: IpmiDoor, record: SensorRecord) -> Sensor:
    kind = SensorKind.POWER if record.unit == WATTS else KINDS.get(record.kind, SensorKind.OTHER)
    unit = "%" if record.percent else UNITS.get(record.unit)
    name = record.name or f"sensor {record.number}"
    if record.owner != BMC_ADDRESS:
        return Sensor(name, kind, None, unit, unread=True)
    answer = door.read(Command("Get Sensor Reading", SENSOR, GET_READING, record.lun), bytes((record.number,)))
    data = answer.data
    if answer.code != 0 or len(data) < 2 or data[1] & 0x20 or not data[1] & 0x40:  # unavailable, or not scanned
        return Sensor(name, kind, None, unit)
    numeric = record.formula is not None or record.non_linear
    formula = _formula(door, record, data[0]) if numeric else None
    return Sensor(
        name=name,
        kind=kind,
        value=_rounded(formula, data[0]),
        unit=unit if numeric else None,
        health=_health(record, data, numeric),
        thresholds=_thresholds(door, record, formula) if formula is not None else {},
    )


def _formula(door: IpmiDoor, record: SensorRecord, raw: int) -> Formula | None:
    if not record.non_linear:
        return record.formula
    answer = door.read(
        Command("Get Sensor Reading Factors", SENSOR, GET_FACTORS, record.lun), bytes((record.number, raw))
    )
    return factors(answer.data, record.signed) if answer.code == 0 else None


def _rounded(formula: Formula | None, raw: int) -> float | None:
    value = formula.value(raw) if formula is not None else None
    return None if value is None else round(value, 6)


def _thresholds(door: IpmiDoor, record: SensorRecord, formula: Formula) -> Mapping[str, float]:
    mask, raw = record.thresholds_mask, record.fixed_thresholds
    if mask and not raw:
        command = Command("Get Sensor Thresholds", SENSOR, GET_THRESHOLDS, record.lun)
        answer = door.read(command, bytes((record.number,)))
        if answer.code != 0 or len(answer.data) < 7:
            return {}
        mask, raw = answer.data[0] & mask, answer.data[1:7]
    found = {name: _rounded(formula, raw[n]) for n, name in enumerate(NAMES) if mask >> n & 1}
    return {name: value for name, value in found.items() if value is not None}


def _health(record: SensorRecord, data: bytes, numeric: bool) -> str | None:
    if len(data) < 3:
        return None
    if numeric:
        return worst(("ok", *(word for n, word in enumerate(CROSSED) if data[2] >> n & 1)))
    states = data[2] | (data[3] & 0x7F) << 8 if len(data) > 3 else data[2]
    meanings = [ipmi_words.state(record.kind, record.reading_type, n) for n in range(15) if states >> n & 1]
    return worst(tuple(meaning.severity for meaning in meanings if meaning is not None))
