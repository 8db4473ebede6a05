"""Sensors over Redfish: Thermal and Power, the Sensors collection, or the subsystems that took their place.

Thermal and Power (deprecated, and on nearly every BMC) give all in two requests. A Sensors collection gives more on some makers and a
single sensor on others, and costs a request for each where the BMC cannot expand it. So both are asked, the collection only where it is
cheap or all that there is, and the one that tells more is believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import DriverError, Malformed, Refused, ServerFault, Unsupported
from bcmetal_drivers.redfish_around import chassis, is_a_board, wider_chassis
from bcmetal_drivers.redfish_document import Doc, dig, health_word, key, link, number, objects, text
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import Sensor, SensorKind

ONE_BY_ONE: Final = 200  # sensors that are read each by a request of its own
FEW: Final = 4  # sensors that tell something; no machine has fewer
SENSORS: Final = 1000
NAME_LIMIT: Final = 128
LARGEST: Final = 1e9
KINDS: Final[Mapping[str, SensorKind]] = {
    "Temperature": SensorKind.TEMPERATURE,
    "Rotational": SensorKind.FAN,
    "Voltage": SensorKind.VOLTAGE,
    "Current": SensorKind.CURRENT,
    "Power": SensorKind.POWER,
}
UNITS: Final[Mapping[str, str]] = {
    "RPM": "{rev}/min",
    "Percent": "%",
    "Celsius": "Cel",
    "C": "Cel",  # no sensor counts coulombs
    "Watts": "W",
    "Volts": "V",
    "Amps": "A",
}
UNIT_OF: Final[Mapping[SensorKind, str]] = {  # that the standard says for its kind
    SensorKind.TEMPERATURE: "Cel",
    SensorKind.VOLTAGE: "V",
    SensorKind.CURRENT: "A",
    SensorKind.POWER: "W",
}
NEW_THRESHOLDS: Final[Mapping[str, str]] = {
    f"{side}{level}": f"{side.lower()}-{level.lower()}"
    for side in ("Lower", "Upper")
    for level in ("Caution", "Critical", "Fatal")
}
OLD_THRESHOLDS: Final[Mapping[str, str]] = {
    f"{side}Threshold{old}": f"{side.lower()}-{new}"
    for side in ("Lower", "Upper")
    for old, new in (("NonCritical", "caution"), ("Critical", "critical"), ("Fatal", "fatal"))
}
NOT_THERE: Final = ("Absent", "Disabled", "UnavailableOffline", "Deferring")


@dataclass(slots=True)
class _Look:
    """One reading: what fails at one place costs that place only."""

    tree: Tree
    left: int  # requests for one sensor each
    told: bool = False  # whether any chassis tells of sensors
    trouble: DriverError | None = None
    unread: Sequence[str] = ()  # paths that `members` passed over the last time

    def find(self, path: str | None) -> dict[str, Any] | None:
        try:
            with tolerated():
                return self.tree.find(path)
        except (ServerFault, Malformed) as error:
            self.trouble = error
            return None

    def members(self, path: str | None) -> Iterator[dict[str, Any]]:
        self.unread = ()
        if path is None:
            return
        try:
            with tolerated(Refused, Unsupported):
                listed = self.tree.members(path)
                self.unread = listed[self.left :]
                for member in listed[: self.left]:
                    self.left -= 1
                    doc = self.find(member)
                    if doc is not None:
                        yield doc
        except (ServerFault, Malformed) as error:
            self.trouble = error


def sensors(tree: Tree) -> tuple[Sensor, ...]:
    """Raises Unsupported where no chassis of the system tells of any.

    Some systems name but the board of their BMC (BlueField 3, GB200): where that tells of little, their other chassis are asked too.
    """
    look, system = _Look(tree, ONE_BY_ONE), tree.system()
    found = [one for _, doc in chassis(tree, system) for one in _of_chassis(look, doc)]
    if sum(one.value is not None for one in found) < FEW:
        found += [one for _, doc in wider_chassis(tree, system) for one in _of_chassis(look, doc)]
    if not found and look.trouble is not None:
        raise look.trouble
    if not look.told:
        raise Unsupported(f"{tree.address}: the BMC shows no sensors")
    return tuple(_told_apart(found[:SENSORS]))


def _of_chassis(look: _Look, doc: Doc) -> list[Sensor]:
    look.told = look.told or any(link(doc, name) for name in ("Thermal", "Power", "Sensors", "ThermalSubsystem"))
    old = [*_thermal(look.find(link(doc, "Thermal"))), *_power(look.find(link(doc, "Power")))]
    new = list(_collection(look, link(doc, "Sensors"), wanted=not any(one.value is not None for one in old)))
    if not old and not new:
        new = list(_subsystems(look, doc))
    return max(old, new, key=lambda listed: sum(one.value is not None for one in listed))


def _told_apart(found: Iterable[Sensor]) -> Iterator[Sensor]:
    """Some makers call all their power supplies the same."""
    seen: dict[str, int] = {}
    for one in found:
        seen[one.name] = seen.get(one.name, 0) + 1
        yield one if seen[one.name] == 1 else replace(one, name=f"{one.name} #{seen[one.name]}")


def power_draw_w(tree: Tree) -> float | None:
    """The chassis' own figure; else what its power supplies take together; else the same of the chassis that those are in."""
    look, system = _Look(tree, ONE_BY_ONE), tree.system()
    own = [doc for _, doc in chassis(tree, system)]
    drawn = _drawn(look, own)
    if drawn is None and any(is_a_board(doc) for doc in own):
        holders = {key(path) for doc in own if (path := link(doc, "Links", "ContainedBy"))}
        around = [doc for path, doc in wider_chassis(tree, system) if key(path) in holders or not is_a_board(doc)]
        drawn = _drawn(look, around)
    if drawn is None and look.trouble is not None:
        raise look.trouble
    return drawn


def _drawn(look: _Look, docs: Iterable[Doc]) -> float | None:
    supplies: float | None = None
    for doc in docs:
        power = look.find(link(doc, "Power"))
        for entry in objects(power, "PowerControl", limit=SENSORS):
            drawn = _value(number(entry, "PowerConsumedWatts"))
            if drawn is not None and drawn >= 0:
                return drawn
        drawn = _value(number(look.find(link(doc, "EnvironmentMetrics")), "PowerWatts", "Reading"))
        if drawn is not None and drawn >= 0:
            return drawn
        listed = [number(entry, "PowerInputWatts") for entry in objects(power, "PowerSupplies", limit=SENSORS)]
        if not any(watts is not None for watts in listed):
            subsystem = look.find(link(doc, "PowerSubsystem"))
            metrics = (look.find(link(supply, "Metrics")) for supply in look.members(link(subsystem, "PowerSupplies")))
            listed = [number(one, "InputPowerWatts", "Reading") for one in metrics]
        known = [watts for watts in listed if watts is not None and 0 <= watts < LARGEST]
        if known and supplies is None:
            supplies = sum(known)
    return supplies


# ---------------------------------------------------------------- Thermal and Power


def _thermal(doc: Doc | None) -> Iterator[Sensor]:
    for entry in objects(doc, "Temperatures", limit=SENSORS):
        yield from _old(entry, SensorKind.TEMPERATURE, number(entry, "ReadingCelsius"), "Cel")
    for entry in objects(doc, "Fans", limit=SENSORS):
        reading = number(entry, "Reading")
        unit = text(entry, "ReadingUnits") or "RPM"
        yield from _old(
            entry, SensorKind.FAN, number(entry, "ReadingRPM") if reading is None else reading, UNITS.get(unit, unit)
        )


def _power(doc: Doc | None) -> Iterator[Sensor]:
    for entry in objects(doc, "PowerControl", limit=SENSORS):
        yield from _old(entry, SensorKind.POWER, number(entry, "PowerConsumedWatts"), "W", "Power")
    for entry in objects(doc, "Voltages", limit=SENSORS):
        yield from _old(entry, SensorKind.VOLTAGE, number(entry, "ReadingVolts"), "V")
    for entry in objects(doc, "PowerSupplies", limit=SENSORS):
        taken, given = number(entry, "PowerInputWatts"), number(entry, "PowerOutputWatts")
        given = number(entry, "LastPowerOutputWatts") if given is None and taken is None else given
        for what, watts in (("input", taken), ("output", given)):
            if watts is not None:
                yield from _old(entry, SensorKind.POWER, watts, "W", "Power supply", f" {what}")
        volts = number(entry, "LineInputVoltage")
        if volts is not None:
            yield from _old(entry, SensorKind.VOLTAGE, volts, "V", "Power supply", " line")


def _old(
    entry: Doc, kind: SensorKind, value: float | None, unit: str, otherwise: str = "", of: str = ""
) -> Iterator[Sensor]:
    if not _is_there(entry):
        return
    name = text(entry, "Name") or text(entry, "FanName") or otherwise or text(entry, "MemberId") or kind.value
    limits = {ours: number(entry, theirs) for theirs, ours in OLD_THRESHOLDS.items()} if not of else {}
    yield Sensor(name + of, kind, _value(value), unit, _health(entry), _numbers(limits))


# ---------------------------------------------------------------- Sensors


def _collection(look: _Look, path: str | None, wanted: bool) -> Iterator[Sensor]:
    """`wanted`: also one request for each, as long as there may be; the others are named by their paths."""
    if path is None:
        return
    shown = _expanded(look.tree, path)
    unread: Sequence[str] = ()
    if not shown and wanted:
        shown = list(look.members(path))
        unread = look.unread
    there = [doc for doc in shown if _is_there(doc)]
    names = Counter(text(doc, "Name") for doc in there)
    for doc in there:
        yield _sensor(doc, by_id=names[text(doc, "Name")] > 1)
    for member in unread[:SENSORS]:
        name = "".join(c for c in member.rstrip("/").rpartition("/")[2][:NAME_LIMIT] if c.isprintable())
        yield Sensor(name or "sensor", SensorKind.OTHER, None, unread=True)


def _is_there(doc: Doc) -> bool:
    return text(doc, "Status", "State") not in NOT_THERE


def _expanded(tree: Tree, path: str) -> list[dict[str, Any]]:
    """All members in one answer; none where the BMC cannot do that."""
    can = dig(tree.root(), "ProtocolFeaturesSupported", "ExpandQuery")
    query = next(
        (
            f"$expand={sign}($levels=1)"
            for word, sign in (("NoLinks", "."), ("ExpandAll", "*"))
            if dig(can, word) is True
        ),
        None,
    )
    if query is None:
        return []
    with tolerated(Refused, Unsupported, Malformed, ServerFault):
        page = tree.get(f"{path}?{query}")
        members = [one for one in objects(page, "Members", limit=SENSORS) if "Reading" in one or "ReadingType" in one]
        return members if text(page, "Members@odata.nextLink") is None else []
    return []


def _sensor(doc: Doc, by_id: bool) -> Sensor:
    """`by_id`: its name is not its own (Dell calls the outputs of all supplies the same)."""
    unit = text(doc, "ReadingUnits")
    kind = _kind(doc, unit)
    if unit is None:
        unit = UNIT_OF.get(kind)
    limits = {ours: number(doc, "Thresholds", theirs, "Reading") for theirs, ours in NEW_THRESHOLDS.items()}
    name, own = text(doc, "Name"), text(doc, "Id")
    name = f"{name} ({own})" if by_id and name and own else name or own or "sensor"
    return Sensor(
        name, kind, _value(number(doc, "Reading")), UNITS.get(unit or "", unit), _health(doc), _numbers(limits)
    )


def _kind(doc: Doc, unit: str | None) -> SensorKind:
    """By its type, but for what the unit belies: XCC 2.83 calls watts a current, and gives alarms (`PSU1 Failure`: 0) a type and an empty unit."""
    kind = KINDS.get(text(doc, "ReadingType") or "", SensorKind.OTHER)
    if dig(doc, "ReadingUnits") == "":
        return SensorKind.OTHER
    if unit in ("W", "Watts"):
        return SensorKind.POWER
    if kind is SensorKind.OTHER and (unit in ("RPM", "{rev}/min") or (unit == "%" and _of_a_fan(doc))):
        return SensorKind.FAN
    return kind


def _of_a_fan(doc: Doc) -> bool:
    return "fan" in f"{text(doc, 'PhysicalContext')} {text(doc, 'Id')}".lower()


# ---------------------------------------------------------------- ThermalSubsystem, PowerSubsystem


def _subsystems(look: _Look, doc: Doc) -> Iterator[Sensor]:
    thermal = look.find(link(doc, "ThermalSubsystem"))
    for entry in objects(look.find(link(thermal, "ThermalMetrics")), "TemperatureReadingsCelsius", limit=SENSORS):
        name = text(entry, "DeviceName") or text(entry, "PhysicalContext") or "temperature"
        yield Sensor(name, SensorKind.TEMPERATURE, _value(number(entry, "Reading")), "Cel")
    for fan in look.members(link(thermal, "Fans")):
        rpm = number(fan, "SpeedPercent", "SpeedRPM")
        value, unit = (number(fan, "SpeedPercent", "Reading"), "%") if rpm is None else (rpm, "{rev}/min")
        yield Sensor(text(fan, "Name") or "fan", SensorKind.FAN, _value(value), unit, _health(fan))
    power = look.find(link(doc, "PowerSubsystem"))
    for supply in look.members(link(power, "PowerSupplies")):
        metrics = look.find(link(supply, "Metrics"))
        name = text(supply, "Name") or "power supply"
        for what, metric, kind, unit in (
            ("input", "InputPowerWatts", SensorKind.POWER, "W"),
            ("output", "OutputPowerWatts", SensorKind.POWER, "W"),
            ("line", "InputVoltage", SensorKind.VOLTAGE, "V"),
        ):
            value = number(metrics, metric, "Reading")
            if value is not None:
                yield Sensor(f"{name} {what}", kind, _value(value), unit, _health(supply))
    drawn = number(look.find(link(doc, "EnvironmentMetrics")), "PowerWatts", "Reading")
    if drawn is not None:
        yield Sensor("Power", SensorKind.POWER, _value(drawn), "W")


# ---------------------------------------------------------------- values


def _value(found: float | None) -> float | None:
    return found if found is not None and abs(found) < LARGEST else None


def _numbers(found: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in found.items() if value is not None and abs(value) < LARGEST}


def _health(doc: Doc) -> str | None:
    """Its own, without a roll-up of what is within."""
    return health_word(text(doc, "Status", "Health"))
