"""Who a disk says it is: serial, WWN, model and firmware, from sysfs, and from the disk itself where sysfs does not tell.

The ramdisk has no udev. All of it comes from the disk, so it is bounded and freed of control characters.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bcmetal_agent.tasks.disk_commands import ata_identity, vital_product_data
from bcmetal_agent.tasks.look_files import raw

SERIAL_LIMIT: Final = 128
MODEL_LIMIT: Final = 256
WWN_LIMIT: Final = 64
_DESIGNATORS: Final = {3: "naa.", 2: "eui."}  # SPC-5, 7.7.6: the types that are unique in the world
_NAMED: Final = re.compile(r"(naa|eui|uuid)\.[0-9a-f-]+")


@dataclass(frozen=True, slots=True)
class Identity:
    """`ata`: an ATA disk, behind whatever it is."""

    serial: str | None = None
    wwn: str | None = None
    model: str | None = None
    vendor: str | None = None
    firmware: str | None = None
    ata: bool = False


def text_of(path: Path, limit: int = 4096) -> str | None:
    """One attribute; None when it is not there, or holds nothing."""
    found = raw(path, 4096)
    return None if found is None else clean(found, limit)


def clean(said: bytes, limit: int) -> str | None:
    text = "".join(char for char in said.decode("utf-8", "replace") if char.isprintable()).strip()
    return text[:limit] or None


def identify(block: Path, node: Path) -> Identity:
    """`block`: the disk's folder in sysfs, `node`: its device node, asked only where sysfs holds no serial."""
    device = block / "device"
    name = block.name
    if name.startswith("nvme"):
        return Identity(
            serial=text_of(device / "serial", SERIAL_LIMIT),
            wwn=_named(text_of(block / "wwid")),
            model=text_of(device / "model", MODEL_LIMIT),
            firmware=text_of(device / "firmware_rev", 64),
        )
    if (device / "type").exists() and (device / "vendor").exists():
        return _scsi(device, node)
    # virtio-blk has its serial beside the disk, MMC at the card
    return Identity(
        serial=text_of(block / "serial", SERIAL_LIMIT) or text_of(device / "serial", SERIAL_LIMIT),
        wwn=None,
        model=text_of(device / "name", MODEL_LIMIT),
        firmware=text_of(device / "fwrev", 64),
    )


def _scsi(device: Path, node: Path) -> Identity:
    vendor = text_of(device / "vendor", 8)
    serial_page, id_page, ata_page = (raw(device / f"vpd_pg{page}", 4096) for page in ("80", "83", "89"))
    identity = ata_page[60:572] if ata_page is not None and len(ata_page) >= 572 else None
    ata = vendor == "ATA" or identity is not None
    if serial_page is None or (ata and identity is None):
        serial_page, id_page, identity = _asked(node, serial_page, id_page, identity, ata)
    serial = _page_text(serial_page)
    model = text_of(device / "model", MODEL_LIMIT)
    firmware = text_of(device / "rev", 64)
    if identity is not None:
        # INQUIRY has room for 16 characters of the model and 4 of the firmware, IDENTIFY DEVICE for 40 and 8
        serial = _ata_text(identity[20:40], SERIAL_LIMIT) or serial
        firmware = _ata_text(identity[46:54], 64) or firmware
        model = _ata_text(identity[54:94], MODEL_LIMIT) or model
    wwn = _named(text_of(device / "wwid")) or _designated(id_page)
    return Identity(serial, wwn, model, None if ata else vendor, firmware, ata)


def _asked(
    node: Path, serial_page: bytes | None, id_page: bytes | None, identity: bytes | None, ata: bool
) -> tuple[bytes | None, bytes | None, bytes | None]:
    """USB bridges and old disks: the kernel does not read their pages by itself."""
    try:
        fd = os.open(node, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return serial_page, id_page, identity
    try:
        serial_page = serial_page or vital_product_data(fd, 0x80)
        id_page = id_page or vital_product_data(fd, 0x83)
        if ata or serial_page is None:
            identity = identity or ata_identity(fd)
    finally:
        os.close(fd)
    return serial_page, id_page, identity


def _page_text(page: bytes | None) -> str | None:
    if page is None or len(page) < 4:
        return None
    (size,) = struct.unpack_from(">H", page, 2)
    return clean(page[4 : 4 + size], SERIAL_LIMIT)


def _ata_text(words: bytes, limit: int) -> str | None:
    """ATA strings have the bytes of each word in reverse (ACS-4, 3.4.9)."""
    swapped = bytearray(words)
    swapped[0::2], swapped[1::2] = words[1::2], words[0::2]
    return clean(bytes(swapped), limit)


def _designated(page: bytes | None) -> str | None:
    """The first unique name of the logical unit itself in a page 83h, NAA before EUI-64."""
    if page is None:
        return None
    found: dict[int, str] = {}
    at = 4
    while at + 4 <= len(page):
        kind, size = page[at + 1], page[at + 3]
        value = page[at + 4 : at + 4 + size]
        association, designator = kind >> 4 & 3, kind & 0x0F
        if association == 0 and designator in _DESIGNATORS and size in (8, 12, 16) and len(value) == size:
            found.setdefault(designator, _DESIGNATORS[designator] + value.hex())
        at += 4 + size
    return found.get(3) or found.get(2)


def _named(wwid: str | None) -> str | None:
    """`t10.` and `nvme.` names are put together of maker, model and serial: no names of the world."""
    if wwid is None:
        return None
    low = wwid.lower()
    return low if _NAMED.fullmatch(low) and len(low) <= WWN_LIMIT and _digits(low).strip("0") else None


# ---------------------------------------------------------------- whether two of them say the same


def same_serial(one: str, other: str) -> bool:
    """Blanks around and between do not count (SCSI pads on the left, ATA on the right, some BMCs fold them), nor do upper and lower case:
    BMCs turn serials to upper case, and no maker tells two disks apart by case."""
    return _folded(one, "") == _folded(other, "") != ""


def same_wwn(one: str, other: str) -> bool:
    """Hex digits alone count: the same name is written `naa.5000…`, `0x5000…`, `50-00-…` and in upper case."""
    return _digits(one) == _digits(other) != ""


def same_model(given: str, model: str, vendor: str | None) -> bool:
    """As `same_serial`, with blanks and underscores for the same (udev writes the one for the other). A maker's name before the model may be
    there or not, and a model of exactly 16 characters may be the beginning of the other: SCSI's INQUIRY has room for no more."""
    one, other = _folded(given, " "), _folded(model, " ")
    maker = _folded(vendor or "", " ")
    if maker:
        one, other = one.removeprefix(maker + " "), other.removeprefix(maker + " ")
    short, long = sorted((one, other), key=len)
    return short == long != "" or (len(short) == 16 and long.startswith(short))


def _folded(text: str, blank: str) -> str:
    return re.sub(r"[\s_\0]+", blank, text.strip(" \0\t\r\n")).casefold()


def _digits(wwn: str) -> str:
    bare = re.sub(r"^(naa\.|eui\.|uuid\.|wwn-|0x)+", "", wwn.strip().lower())
    bare = re.sub(r"[-:. ]", "", bare)
    return bare if re.fullmatch(r"[0-9a-f]{16,32}", bare) else ""
