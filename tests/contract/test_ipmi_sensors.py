"""Sensors and the event log over IPMI: records in parts, formulas, events in words, clearing under a reservation."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from bcmetal_drivers import ipmi_sdr
from bcmetal_drivers.emulated.ipmi_sensors import ANALOG, SENSOR_SPECIFIC, THRESHOLD
from bcmetal_drivers.errors import Busy, MaybeSent, Refused, Unsupported
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.ipmi_sdr import Formula
from bcmetal_drivers.resources import PowerAction, Sensor, SensorKind
from ipmi_bench import IpmiBench


def by_name(bmc: IpmiBmc) -> dict[str, Sensor]:
    return {sensor.name: sensor for sensor in bmc.sensors()}


# ---------------------------------------------------------------- sensors


def test_sensors_have_values_units_and_thresholds(bmc: IpmiBmc) -> None:
    bmc.set_power(PowerAction.ON)
    found = by_name(bmc)
    assert found["CPU1 Temp"] == Sensor(
        "CPU1 Temp",
        SensorKind.TEMPERATURE,
        41.0,
        "Cel",
        "ok",
        {"upper-caution": 85.0, "upper-critical": 95.0, "upper-fatal": 100.0},
    )
    assert (found["12V"].kind, found["12V"].value, found["12V"].unit) == (SensorKind.VOLTAGE, 11.97, "V")
    assert (found["FAN1"].value, found["FAN1"].unit) == (5200.0, "{rev}/min")
    assert (found["PW Consumption"].kind, found["PW Consumption"].value) == (SensorKind.POWER, 240.0)
    assert (found["PS1 Status"].value, found["PS1 Status"].health) == (None, "ok")


def test_what_is_not_measured_has_no_value(bmc: IpmiBmc) -> None:
    assert by_name(bmc)["FAN1"] == Sensor("FAN1", SensorKind.FAN, None, "{rev}/min")


def test_a_sick_machine_shows_in_the_sensors_that_crossed(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.set_power(PowerAction.ON)
    bench.machine.health = "Critical"
    healths = {name: sensor.health for name, sensor in by_name(bmc).items()}
    assert {name for name, health in healths.items() if health == "critical"} == {"CPU1 Temp", "FAN1", "PS1 Status"}
    assert healths["System Temp"] == "ok"


def test_the_power_draw_is_by_dcmi_and_none_where_it_is_not_known(bmc: IpmiBmc, bench: IpmiBench) -> None:
    assert bmc.power_draw_w() == 12.0
    bench.rule("dcmi-power-reading", "refuse", code=0xC1)
    assert bmc.power_draw_w() is None


@pytest.mark.parametrize("limit", [0, 40, 9])
def test_records_come_whole_or_in_the_parts_that_the_bmc_gives(bmc: IpmiBmc, bench: IpmiBench, limit: int) -> None:
    bench.front.set("sdr_read_limit", limit)
    assert {sensor.name for sensor in bmc.sensors()} == {*(a.name for a in ANALOG), "PS1 Status"}


def test_a_reservation_that_is_lost_on_the_way_is_taken_again(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("sdr_read_limit", 16)
    bench.rule("get-sdr", "refuse", times=3, code=0xC5)
    assert len(bmc.sensors()) == len(ANALOG) + 1
    assert bench.counts["reserve-sdr"] == 4


def test_records_that_never_stand_still_are_busy(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("get-sdr", "refuse", times=None, code=0xC5)
    with pytest.raises(Busy, match="change while"):
        bmc.sensors()


def test_records_are_read_once_as_long_as_they_stay_the_same(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.sensors()
    once = bench.counts["get-sdr"]
    bmc.sensors()
    assert bench.counts["get-sdr"] == once


def test_a_bmc_without_records_has_no_sensors_to_tell_of(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("get-sdr", "refuse", times=None, code=0xC1)
    with pytest.raises(Unsupported):
        bmc.sensors()


@pytest.mark.parametrize(
    ("linearisation", "raw", "value"),
    [(0, 10, 21.0), (1, 10, math.log(21)), (5, 1, 10.0**3), (7, 10, 1 / 21), (8, 10, 441.0), (10, 10, math.sqrt(21))],
)
def test_a_formula_is_linearised(linearisation: int, raw: int, value: float) -> None:
    formula = Formula(m=2, b=1, b_exponent=0, exponent=0, linearisation=linearisation, signed=0)
    assert formula.value(raw) == pytest.approx(value)


def test_signed_readings_and_exponents() -> None:
    assert Formula(1, 0, 0, 0, 0, signed=2).value(0xFF) == -1
    assert Formula(1, 0, 0, 0, 0, signed=1).value(0xFE) == -1
    assert Formula(5, 2, 1, -2, 0, signed=0).value(4) == pytest.approx(0.4)


@pytest.mark.parametrize(("linearisation", "m"), [(1, 0), (7, 0), (10, -1), (1, -1)])
def test_a_formula_without_a_value_there_has_none(linearisation: int, m: int) -> None:
    assert Formula(m, 0, 0, 0, linearisation, signed=0).value(9) is None


@pytest.mark.parametrize(
    ("field", "name"),
    [
        (bytes((0xC4,)) + b"Fan ", "Fan"),
        (bytes((0x42, 0x12, 0xAB)), "12 -"),
        (bytes((0x83, 0x29, 0xDC, 0xA6)), "IPMI"),
        (b"\xc3A\x1b\x07", "A"),
    ],
)
def test_names_come_in_the_three_codings_and_without_control_characters(field: bytes, name: str) -> None:
    record = ipmi_sdr.decode(bytes((1, 0, 0x51, 2, 40)) + bytes(26) + field)
    assert record is not None
    assert record.name == name


# ---------------------------------------------------------------- the log


def test_events_are_told_in_words_with_sensor_and_severity(bmc: IpmiBmc, bench: IpmiBench) -> None:
    log = bench.front.commands.log
    log.add(1, 1, THRESHOLD, bytes((0x59, 101, 95)))
    log.add(0x0C, 0x77, SENSOR_SPECIFIC, bytes((0x01, 0xFF, 3)), at=5)  # before the BMC had a clock
    log.add(8, 6, SENSOR_SPECIFIC | 0x80, bytes((0x03,)))
    log.add_raw(bytes((0xE1,)) + b"maker's own..")
    hot, memory, psu, own = bmc.event_log()
    assert (hot.severity, hot.message, hot.sensor) == (
        "critical",
        "Temperature: Upper critical (read 101, threshold 95)",
        "CPU1 Temp",
    )
    assert hot.at is not None
    assert abs(datetime.fromisoformat(hot.at) - datetime.now(UTC)) < timedelta(minutes=1)
    assert (memory.at, memory.severity, memory.sensor) == (None, "critical", "sensor 119")
    assert (psu.severity, psu.message, psu.sensor) == ("ok", "Power Supply: Power input restored", "PS1 Status")
    assert own.message.startswith("OEM record 0xe1")
    assert [entry.ref for entry in (hot, memory, psu, own)] == ["1", "2", "3", "4"]


def test_the_newest_entries_come_without_a_walk_over_all(bmc: IpmiBmc, bench: IpmiBench) -> None:
    for n in range(60):
        bench.front.commands.log.add(1, 1, THRESHOLD, bytes((n % 12,)))
    assert [entry.ref for entry in bmc.event_log(limit=3)] == ["58", "59", "60"]
    assert bench.counts["get-sel-entry"] <= 5


def test_a_log_with_gaps_in_its_numbers_is_walked(bmc: IpmiBmc, bench: IpmiBench) -> None:
    log = bench.front.commands.log
    for n in range(9):
        log.add(1, 1, THRESHOLD, bytes((n,)))
    log.entries = log.entries[::2]
    assert [entry.ref for entry in bmc.event_log(limit=3)] == ["5", "7", "9"]


def test_a_log_of_a_bmc_without_records_is_told_without_names(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("get-sdr", "refuse", times=None, code=0xC1)
    bench.front.commands.log.add(1, 1, THRESHOLD, bytes((0x09,)))
    assert [entry.sensor for entry in bmc.event_log()] == ["sensor 1"]


def test_clearing_leaves_the_entry_that_tells_of_it(bmc: IpmiBmc, bench: IpmiBench) -> None:
    for _ in range(5):
        bench.front.commands.log.add(1, 1, THRESHOLD, bytes((9,)))
    bmc.clear_event_log()
    assert [entry.message for entry in bmc.event_log()] == ["Event Log Disabled: Log clear"]


def test_an_event_while_the_log_is_cleared_takes_the_reservation_and_it_is_tried_again(
    bmc: IpmiBmc, bench: IpmiBench
) -> None:
    bench.front.commands.log.add(1, 1, THRESHOLD, bytes((9,)))
    bench.rule("clear-sel", "refuse", code=0xC5)
    bmc.clear_event_log()
    assert bench.effects("clear-sel") == [""]


def test_a_clearing_whose_answer_is_lost_is_looked_after(bmc: IpmiBmc, bench: IpmiBench) -> None:
    for _ in range(3):
        bench.front.commands.log.add(1, 1, THRESHOLD, bytes((9,)))
    bench.rule("clear-sel", "drop_after")
    bmc.clear_event_log()
    assert bench.effects("clear-sel") == [""]


def test_a_clearing_that_never_arrived_stays_uncertain(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.commands.log.add(1, 1, THRESHOLD, bytes((9,)))
    bench.rule("clear-sel", "drop_before")
    with pytest.raises(MaybeSent):
        bmc.clear_event_log()
    assert len(bmc.event_log()) == 1


def test_a_log_that_may_not_be_cleared_says_so(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("clear-sel", "refuse", code=0xD4)
    with pytest.raises(Refused):
        bmc.clear_event_log()
