"""Which machine and which BMC it is, over IPMI: FRU, system GUID and device id put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from bcmetal_drivers import ipmi_chassis, ipmi_sensors
from bcmetal_drivers.errors import Malformed, Permanent, Refused, Transient, Unsupported
from bcmetal_drivers.ipmi_door import GET_DEVICE_ID, IpmiDoor
from bcmetal_drivers.ipmi_fru import MAKERS, FruFields, read_fru, read_guid
from bcmetal_drivers.ipmi_sdr import FruLocator
from bcmetal_drivers.ipmi_sensors import Records
from bcmetal_drivers.learned import forget_another
from bcmetal_drivers.quirks import Quirks, quirks_of
from bcmetal_drivers.resources import BmcInfo, Identity, Inventory, SensorKind

PARTS: Final[Mapping[int, str]] = {0x08: "dimms", 0x20: "dimms", 0x0A: "psus"}  # entity -> list (IPMI 2.0, table 43-13)
FAN, POWER_SUPPLY = 0x04, 0x08  # sensor types
FRUS_LIMIT: Final = 48


def identity(door: IpmiDoor) -> Identity:
    """By FRU 0 and the system GUID: no MACs, no host name. A FRU that cannot be read leaves its fields None."""
    return _identity(_fru_or_trouble(door), read_guid(door))


def bmc_info(door: IpmiDoor) -> BmcInfo:
    """`device`, with the clock of the event log."""
    return replace(device(door), clock=ipmi_chassis.clock(door))


def device(door: IpmiDoor) -> BmcInfo:
    """Maker, model and firmware alone, by one request."""
    data = door.get(GET_DEVICE_ID)
    if len(data) < 11:
        raise Malformed(f"{door.address}: {GET_DEVICE_ID.name} gave {len(data)} bytes")
    number = int.from_bytes(data[6:9], "little") & 0x0FFFFF
    maker = MAKERS.get(number, f"IANA {number}")
    model = f"product 0x{int.from_bytes(data[9:11], 'little'):04x}"
    firmware = f"{data[2] & 0x7F}.{data[3] >> 4}{data[3] & 0x0F}"
    forget_another(door.memory, maker, model, firmware)
    return BmcInfo(maker=maker, model=model, firmware=firmware)


def quirks(door: IpmiDoor) -> Quirks:
    """What is known of this maker's BMCs; the standard's word where the BMC does not say whose it is."""
    try:
        known = device(door)
    except Permanent:
        return Quirks()
    return quirks_of(known.maker, known.model, known.firmware)


def inventory(door: IpmiDoor, records: Records, offered: tuple[str, ...]) -> Inventory:
    """The parts come last: a BMC with hundreds of records costs those, and not who it is."""
    fields = _fru_or_trouble(door)
    bmc = bmc_info(door)
    who = _identity(fields, read_guid(door))
    sections = dict.fromkeys(("cpus", "memory", "nics", "drives", "gpus", "tpm", "psus", "fans"), "absent")
    sections |= {"identity": fields.trouble or "ok", "bmc": "ok"}
    parts: dict[str, list[Mapping[str, object]]] = {"psus": [], "dimms": [], "fans": []}
    try:
        _read_parts(door, records, parts)
    except (Unsupported, Refused):
        pass  # it has no records
    except (Transient, Malformed) as error:
        sections |= dict.fromkeys(("psus", "fans"), f"partial: {error}")
    else:
        named = {"psus": parts["psus"], "memory": parts["dimms"], "fans": parts["fans"]}
        sections |= dict.fromkeys((name for name, found in named.items() if found), "ok")
    return Inventory(
        identity=who,
        bmc=bmc,
        firmware={"BMC": bmc.firmware} if bmc.firmware else {},
        capabilities=offered,
        psus=tuple(parts["psus"]),
        dimms=tuple(parts["dimms"]),
        fans=tuple(parts["fans"]),
        sections=sections,
    )


def _read_parts(door: IpmiDoor, records: Records, parts: Mapping[str, list[Mapping[str, object]]]) -> None:
    """Into `parts`, so that what came before a trouble is kept. Power supplies and memory modules have FRUs; fans have sensors alone."""
    for locator in records.frus(door)[:FRUS_LIMIT]:
        where = PARTS.get(locator.entity)
        if where is not None and locator.device:
            parts[where].append(_part(locator, _fru_or_trouble(door, locator.device)))
    for sensor in ipmi_sensors.sensors(door, records, (FAN, POWER_SUPPLY)):
        where = "fans" if sensor.kind is SensorKind.FAN else "psus"
        if where == "fans" or not any("serial" in part for part in parts["psus"]):
            parts[where].append({"id": sensor.name, "name": sensor.name, "health": sensor.health})


def _part(locator: FruLocator, fields: FruFields) -> Mapping[str, object]:
    told = {
        "id": locator.name or f"FRU {locator.device}",
        "name": fields.model or locator.name,
        "manufacturer": fields.manufacturer,
        "partNumber": fields.part_number,
        "serial": fields.serial,
    }
    return {name: value for name, value in told.items() if value}


def _fru_or_trouble(door: IpmiDoor, device: int = 0) -> FruFields:
    try:
        return read_fru(door, device)
    except Permanent as error:
        return FruFields(trouble=str(error))  # the inventory goes on without it


def _identity(fields: FruFields, guid: str | None) -> Identity:
    return Identity(
        product_uuid=guid,
        serial=fields.serial,
        sku=fields.part_number,
        manufacturer=fields.manufacturer,
        model=fields.model,
        asset_tag=fields.asset_tag,
    )
