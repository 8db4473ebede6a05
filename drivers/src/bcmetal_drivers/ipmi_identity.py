"""Which machine and which BMC it is, over IPMI: FRU, system GUID and device id put together."""

from __future__ import annotations

from dataclasses import replace

from bcmetal_drivers import ipmi_chassis
from bcmetal_drivers.capabilities import BmcInfo, Identity, Inventory
from bcmetal_drivers.errors import Malformed, Permanent
from bcmetal_drivers.ipmi_door import GET_DEVICE_ID, IpmiDoor
from bcmetal_drivers.ipmi_fru import MAKERS, FruFields, read_fru, read_guid
from bcmetal_drivers.learned import forget_another
from bcmetal_drivers.quirks import Quirks, quirks_of


def identity(door: IpmiDoor) -> Identity:
    return _identity(_fru_or_trouble(door), read_guid(door))


def bmc_info(door: IpmiDoor) -> BmcInfo:
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


def inventory(door: IpmiDoor, offered: tuple[str, ...]) -> Inventory:
    fields = _fru_or_trouble(door)
    bmc = bmc_info(door)
    who = _identity(fields, read_guid(door))
    sections = dict.fromkeys(("cpus", "memory", "nics", "drives", "gpus", "tpm"), "absent")
    firmware = {"BMC": bmc.firmware} if bmc.firmware else {}
    return Inventory(
        identity=who,
        bmc=bmc,
        firmware=firmware,
        capabilities=offered,
        sections={**sections, "identity": fields.trouble or "ok", "bmc": "ok"},
    )


def _fru_or_trouble(door: IpmiDoor) -> FruFields:
    try:
        return read_fru(door)
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
