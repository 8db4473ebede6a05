"""What IPMI says about whose machine it is: the FRU's fields, the system GUID, makers by their IANA numbers."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyghmi.exceptions
from pyghmi.ipmi import fru

from bcmetal_drivers.errors import Malformed, Refused, Unsupported
from bcmetal_drivers.ipmi_door import Command, IpmiDoor

GET_FRU_AREA: Final = Command("Get FRU Inventory Area Info", 0x0A, 0x10)
READ_FRU: Final = Command("Read FRU Data", 0x0A, 0x11)
GET_SYSTEM_GUID: Final = Command("Get System GUID", 0x06, 0x37)

FRU_LIMIT: Final = 4096
AREAS: Final = ("chassis", "board", "product")
CHUNKS: Final = (64, 32, 16, 8)  # BMCs refuse longer reads (0xC7 to 0xCA) each at a length of its own
TOO_LONG: Final = frozenset({0xC7, 0xC8, 0xC9, 0xCA, 0xFF})

# IANA enterprise numbers, as Get Device ID gives them
MAKERS: Final[Mapping[int, str]] = {
    2: "IBM",
    11: "HPE",
    343: "Intel",
    674: "Dell",
    5771: "Cisco",
    7244: "Quanta",
    10368: "Fujitsu",
    10876: "Supermicro",
    15370: "Gigabyte",
    19046: "Lenovo",
    47196: "HPE",
    47488: "Supermicro",
}


@dataclass(frozen=True, slots=True)
class FruFields:
    """The fields that tell machines apart, raw; None where the FRU has none. `trouble`: what was wrong with its layout, or empty."""

    manufacturer: str | None = None
    model: str | None = None
    part_number: str | None = None
    serial: str | None = None
    board_serial: str | None = None
    chassis_serial: str | None = None
    asset_tag: str | None = None
    trouble: str = ""


def read_fru(door: IpmiDoor, device: int = 0) -> FruFields:
    """A FRU of the BMC; 0 is the machine's. A BMC without it raises Unsupported or Refused; a garbled one gives what could be read."""
    area = door.get(GET_FRU_AREA, bytes((device,)))
    if len(area) < 2:
        raise Malformed(f"{door.address}: {GET_FRU_AREA.name} gave {len(area)} bytes")
    size = min(area[0] | area[1] << 8, FRU_LIMIT)
    raw = bytearray()
    chunks = list(CHUNKS)
    while len(raw) < size:
        asked = min(chunks[0], size - len(raw))
        answer = door.read(READ_FRU, struct.pack("<BHB", device, len(raw), asked))
        if answer.code in TOO_LONG and len(chunks) > 1:
            chunks.pop(0)
            continue
        data = door.check(READ_FRU, answer)
        if len(data) < 2 or data[0] == 0:
            break
        raw += data[1 : 1 + data[0]]
    return parse_fru(bytes(raw))


def parse_fru(raw: bytes) -> FruFields:
    """pyghmi's reading of a FRU image, which raises nearly anything on a garbled one. A wrong checksum is named, the fields kept."""
    try:
        info = fru.FRU(rawdata=bytearray(raw)).info or {}
    except (
        pyghmi.exceptions.PyghmiException,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        struct.error,
    ) as error:
        return FruFields(trouble=f"the FRU is garbled ({type(error).__name__})")
    return FruFields(
        manufacturer=_text(info, "Manufacturer", "Board manufacturer"),
        model=_text(info, "Product name", "Board product name"),
        part_number=_text(info, "Model", "Board model"),
        serial=_text(info, "Serial Number", "Chassis serial number", "Board serial number"),
        board_serial=_text(info, "Board serial number"),
        chassis_serial=_text(info, "Chassis serial number"),
        asset_tag=_text(info, "Asset Number"),
        trouble=wrong_checksums(raw) if info else "the FRU holds no readable area",
    )


def wrong_checksums(raw: bytes) -> str:
    """Which areas of the image (Platform Management FRU Information Storage Definition, sections 8 to 16) do not add up; "" for none."""
    wrong = []
    if sum(raw[:8]) & 0xFF:
        wrong.append("header")
    for name, at in zip(AREAS, raw[2:5], strict=False):
        area = raw[at * 8 :]
        if at and len(area) > 1 and sum(area[: area[1] * 8]) & 0xFF:
            wrong.append(name)
    wrong += [f"record {n}" for n, (_, good) in enumerate(records(raw), 1) if not good]
    return f"a checksum of the FRU is wrong ({', '.join(wrong)})" if wrong else ""


def records(raw: bytes) -> Iterator[tuple[tuple[int, bytes], bool]]:
    """The multi-record area: (type, data) of each, and whether its checksums are right."""
    at = raw[5] * 8 if len(raw) > 7 else 0
    while at and at + 5 <= len(raw):
        kind, flags, size, of_data, _ = raw[at : at + 5]
        data = raw[at + 5 : at + 5 + size]
        yield (kind, data), len(data) == size and not (sum(raw[at : at + 5]) & 0xFF or (sum(data) + of_data) & 0xFF)
        if flags & 0x80:
            return
        at += 5 + size


def _text(info: Mapping[str, object], *names: str) -> str | None:
    for name in names:
        value = info.get(name)
        if isinstance(value, str) and value.strip():
            return "".join(c for c in value if c.isprintable()).strip()[:128]
    return None


def read_guid(door: IpmiDoor) -> str | None:
    """The system GUID as SMBIOS writes it: the first three fields little-endian on the wire, lower-case text.

    The specification wants the whole 16 bytes reversed, makers send what SMBIOS has, and some send network order: the caller
    compares both byte orders. None when the BMC gives none, or all zeros or ones.
    """
    try:
        data = door.get(GET_SYSTEM_GUID)
    except (Unsupported, Refused):
        return None
    if len(data) != 16 or data in (bytes(16), b"\xff" * 16):
        return None
    return str(uuid.UUID(bytes_le=data))
