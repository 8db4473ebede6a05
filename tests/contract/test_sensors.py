"""Sensors and the power draw, in every form that BMCs give them."""

from __future__ import annotations

from typing import Any

import pytest

from bcmetal_drivers import redfish_sensors
from bcmetal_drivers.capabilities import Power, Sensors, need
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.resources import PowerAction, Sensor, SensorKind
from claims import claimed
from driver_bench import Seat

FORMS = ("both", "collection", "legacy", "subsystem")


def switch_on(seat: Seat) -> None:
    need(seat.open(), Power).set_power(PowerAction.ON)


def by_kind(found: tuple[Sensor, ...]) -> dict[SensorKind, list[Sensor]]:
    return {kind: [sensor for sensor in found if sensor.kind is kind] for kind in SensorKind}


def shown_as(seat: Seat, path: str, patch: dict[str, Any]) -> None:
    assert isinstance(seat.bmc.front, RedfishFront)
    seat.bmc.front.overlay.add({path: patch})


def test_sensors_have_values_units_and_health(seat: Seat) -> None:
    bmc = claimed(seat, Sensors)
    switch_on(seat)
    found = by_kind(bmc.sensors())
    hot = next(one for one in found[SensorKind.TEMPERATURE] if one.name.startswith("CPU1"))
    assert (hot.unit, hot.health) == ("Cel", "ok")
    assert hot.value is not None
    assert hot.value < hot.thresholds["upper-caution"] < hot.thresholds["upper-critical"]
    assert [one.unit for one in found[SensorKind.FAN]] == ["{rev}/min"]
    assert found[SensorKind.VOLTAGE][0].unit == "V"
    drawn = bmc.power_draw_w()
    assert drawn == next(one.value for one in found[SensorKind.POWER] if one.value is not None)


def test_what_is_not_measured_now_has_no_value(seat: Seat) -> None:
    assert [one.value for one in by_kind(claimed(seat, Sensors).sensors())[SensorKind.FAN]] == [None]


def test_a_sick_machine_shows_in_its_sensors(seat: Seat) -> None:
    bmc = claimed(seat, Sensors)
    switch_on(seat)
    seat.bmc.set(health="Critical")
    assert "critical" in {one.health for one in bmc.sensors()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("expand", [True, False])
def test_each_form_tells_the_same(redfish: Seat, form: str, expand: bool) -> None:
    redfish.bmc.set(sensors=form, expand=expand)
    bmc = need(redfish.open(), Sensors)
    switch_on(redfish)
    found = by_kind(bmc.sensors())
    assert [one.value for one in found[SensorKind.TEMPERATURE]] == [24.0, 47.0]
    assert [one.value for one in found[SensorKind.FAN]] == [5200.0]
    assert [one.value for one in found[SensorKind.POWER]] == [312.0]
    assert len({one.name for one in bmc.sensors()}) == len(bmc.sensors())


def test_sensors_beyond_those_that_are_read_one_by_one_are_named(
    redfish: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    redfish.bmc.set(sensors="collection", expand=False)
    switch_on(redfish)
    bmc = need(redfish.open(), Sensors)
    whole = bmc.sensors()
    monkeypatch.setattr(redfish_sensors, "ONE_BY_ONE", 2)
    found = bmc.sensors()
    assert [one.unread for one in found] == [False, False, *([True] * (len(whole) - 2))]
    assert found[:2] == whole[:2]
    assert all(one.name and one.value is None for one in found[2:])


def test_a_chassis_without_sensors_has_none_to_tell_of(redfish: Seat) -> None:
    redfish.bmc.set(sensors="none")
    bmc = need(redfish.open(), Sensors)
    with pytest.raises(Unsupported):
        bmc.sensors()
    assert bmc.power_draw_w() is None


@pytest.mark.parametrize(
    "reading", ["47", None, "n/a", True, [47], {"x": 1}, 1e300, "Infinity", "-1e999", "9" * 400, -273.15]
)
def test_a_reading_that_is_none_costs_only_itself(redfish: Seat, reading: Any) -> None:
    temperatures = [
        {"Name": "odd\x1b[2J\x00", "ReadingCelsius": reading},
        {"Name": "good", "ReadingCelsius": 30},
        7,
        None,
    ]
    shown_as(redfish, "/redfish/v1/Chassis/1/Thermal", {"Temperatures": temperatures, "Fans": "none"})
    found = need(redfish.open(), Sensors).sensors()
    odd, good = by_kind(found)[SensorKind.TEMPERATURE]
    assert good.value == 30
    assert odd.value is None or -274 < odd.value < 48
    assert odd.name.isprintable()


def test_supplies_of_one_name_are_told_apart_and_add_up(redfish: Seat) -> None:
    supplies = [{"Name": "Power Supply", "PowerInputWatts": watts} for watts in (199, 169)]
    shown_as(redfish, "/redfish/v1/Chassis/1/Power", {"PowerSupplies": supplies, "PowerControl": [], "Voltages": []})
    bmc = need(redfish.open(), Sensors)
    assert [one.name for one in by_kind(bmc.sensors())[SensorKind.POWER]] == [
        "Power Supply input",
        "Power Supply input #2",
    ]
    assert bmc.power_draw_w() == 368
