"""Routes to the sensors of a chassis, in the forms that there are: Thermal and Power, the Sensors collection, the subsystems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, collection, link, resource
from bcmetal_drivers.emulated.messages import Answer, not_found
from bcmetal_drivers.resources import PowerState

CHASSIS: Final = f"{ROOT}/Chassis/1"


@dataclass(frozen=True, slots=True)
class Probe:
    """`off` None: no reading while the machine is off. `sick`: what it reads where the machine's health is not OK."""

    id: str
    name: str
    kind: str  # Redfish ReadingType
    unit: str
    on: float
    off: float | None
    sick: float
    upper: tuple[float, float] | None = None  # caution, critical


PROBES: Final = (
    Probe("Inlet", "Inlet Temp", "Temperature", "Cel", 24, 21, 24, (42, 47)),
    Probe("Cpu1", "CPU1 Temp", "Temperature", "Cel", 47, None, 101, (90, 95)),
    Probe("Fan1", "Fan 1", "Rotational", "{rev}/min", 5200, None, 5200),
    Probe("P12V", "12V", "Voltage", "V", 12.1, None, 12.1, (12.8, 13.2)),
    Probe("Draw", "System Power", "Power", "W", 312, 14, 312),
)
FORMS: Final = {
    "both": ("Sensors", "Thermal", "Power"),
    "collection": ("Sensors",),
    "legacy": ("Thermal", "Power"),
    "subsystem": ("ThermalSubsystem", "EnvironmentMetrics"),
    "none": (),
}


def links(inside: Interior) -> dict[str, Any]:
    """For the chassis' document."""
    return {form: link(f"{CHASSIS}/{form}") for form in FORMS[inside.quirks.sensors]}


def _value(inside: Interior, probe: Probe) -> float | None:
    machine = next(iter(inside.machines.values()))
    if machine.power is PowerState.OFF:
        return probe.off
    return probe.on if machine.health == "OK" else probe.sick


def _status(inside: Interior, probe: Probe) -> dict[str, str]:
    value = _value(inside, probe)
    over = value is not None and probe.upper is not None and value >= probe.upper[1]
    return {"State": "Enabled", "Health": "Critical" if over else "OK"}


def list_sensors(inside: Interior, call: Call) -> Answer:
    _has(inside, "Sensors")
    answer = collection(f"{CHASSIS}/Sensors", "Sensor", [f"{CHASSIS}/Sensors/{probe.id}" for probe in PROBES])
    if inside.quirks.expand and "expand=" in call.request.query:
        answer.doc["Members"] = [_sensor(inside, probe) for probe in PROBES]
    return answer


def show_sensor(inside: Interior, call: Call, name: str) -> Answer:
    _has(inside, "Sensors")
    for probe in PROBES:
        if probe.id == name:
            return Answer(200, _sensor(inside, probe))
    raise not_found(f"{CHASSIS}/Sensors/{name}")


def _sensor(inside: Interior, probe: Probe) -> dict[str, Any]:
    doc: dict[str, Any] = resource(
        f"{CHASSIS}/Sensors/{probe.id}",
        "Sensor.v1_8_0",
        probe.name,
        ReadingType=probe.kind,
        ReadingUnits=probe.unit,
        Reading=_value(inside, probe),
        Status=_status(inside, probe),
    ).doc
    if probe.upper is not None:
        caution, critical = probe.upper
        doc["Thresholds"] = {"UpperCaution": {"Reading": caution}, "UpperCritical": {"Reading": critical}}
    return doc


def show_thermal(inside: Interior, call: Call) -> Answer:
    _has(inside, "Thermal")
    temperatures = [_old(inside, probe, "ReadingCelsius") for probe in PROBES if probe.kind == "Temperature"]
    fans = [_old(inside, probe, "Reading") | {"ReadingUnits": "RPM"} for probe in PROBES if probe.kind == "Rotational"]
    return resource(f"{CHASSIS}/Thermal", "Thermal.v1_7_1", "Thermal", Temperatures=temperatures, Fans=fans)


def show_power(inside: Interior, call: Call) -> Answer:
    _has(inside, "Power")
    voltages = [_old(inside, probe, "ReadingVolts") for probe in PROBES if probe.kind == "Voltage"]
    control = [_old(inside, probe, "PowerConsumedWatts") for probe in PROBES if probe.kind == "Power"]
    return resource(f"{CHASSIS}/Power", "Power.v1_7_1", "Power", PowerControl=control, Voltages=voltages)


def _old(inside: Interior, probe: Probe, key: str) -> dict[str, Any]:
    entry = {"Name": probe.name, "MemberId": probe.id, key: _value(inside, probe), "Status": _status(inside, probe)}
    if probe.upper is not None:
        entry["UpperThresholdNonCritical"], entry["UpperThresholdCritical"] = probe.upper
    return entry


def show_thermal_subsystem(inside: Interior, call: Call) -> Answer:
    _has(inside, "ThermalSubsystem")
    path = f"{CHASSIS}/ThermalSubsystem"
    metrics, fans = link(f"{path}/ThermalMetrics"), link(f"{path}/Fans")
    return resource(path, "ThermalSubsystem.v1_3_1", "Thermal Subsystem", ThermalMetrics=metrics, Fans=fans)


def show_thermal_metrics(inside: Interior, call: Call) -> Answer:
    _has(inside, "ThermalSubsystem")
    readings = [
        {"DeviceName": probe.name, "Reading": _value(inside, probe)} for probe in PROBES if probe.kind == "Temperature"
    ]
    path = f"{CHASSIS}/ThermalSubsystem/ThermalMetrics"
    return resource(path, "ThermalMetrics.v1_3_1", "Thermal Metrics", TemperatureReadingsCelsius=readings)


def list_fans(inside: Interior, call: Call) -> Answer:
    _has(inside, "ThermalSubsystem")
    path = f"{CHASSIS}/ThermalSubsystem/Fans"
    return collection(path, "Fan", [f"{path}/{probe.id}" for probe in PROBES if probe.kind == "Rotational"])


def show_fan(inside: Interior, call: Call, name: str) -> Answer:
    _has(inside, "ThermalSubsystem")
    path = f"{CHASSIS}/ThermalSubsystem/Fans/{name}"
    for probe in PROBES:
        if probe.id == name and probe.kind == "Rotational":
            speed = {"SpeedRPM": _value(inside, probe)}
            return resource(path, "Fan.v1_5_1", probe.name, SpeedPercent=speed, Status=_status(inside, probe))
    raise not_found(path)


def show_environment(inside: Interior, call: Call) -> Answer:
    _has(inside, "EnvironmentMetrics")
    drawn = next(_value(inside, probe) for probe in PROBES if probe.kind == "Power")
    path = f"{CHASSIS}/EnvironmentMetrics"
    return resource(path, "EnvironmentMetrics.v1_4_0", "Environment Metrics", PowerWatts={"Reading": drawn})


def _has(inside: Interior, form: str) -> None:
    if form not in FORMS[inside.quirks.sensors]:
        raise not_found(f"{CHASSIS}/{form}")


ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", r"/Chassis/1/Sensors", list_sensors),
    ("GET", r"/Chassis/1/Sensors/([^/]+)", show_sensor),
    ("GET", r"/Chassis/1/Thermal", show_thermal),
    ("GET", r"/Chassis/1/Power", show_power),
    ("GET", r"/Chassis/1/ThermalSubsystem", show_thermal_subsystem),
    ("GET", r"/Chassis/1/ThermalSubsystem/ThermalMetrics", show_thermal_metrics),
    ("GET", r"/Chassis/1/ThermalSubsystem/Fans", list_fans),
    ("GET", r"/Chassis/1/ThermalSubsystem/Fans/([^/]+)", show_fan),
    ("GET", r"/Chassis/1/EnvironmentMetrics", show_environment),
)
