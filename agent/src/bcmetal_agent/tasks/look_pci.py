"""PCI functions, by sysfs; their names by pci.ids where the ramdisk has it."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from bcmetal_agent.tasks.look_files import Machine, link_name, names, number, printable, text
from bcmetal_agent.wire_inventory import PciDevice

DEVICES: Final = "sys/bus/pci/devices"
IDS: Final = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids")
IDS_LIMIT: Final = 16 * 2**20
_HEX: Final = re.compile(r"0x[0-9a-f]{4,6}")


def devices(machine: Machine) -> tuple[PciDevice, ...]:
    folder = machine.path(DEVICES)
    found = (_device(folder / address) for address in sorted(names(folder)))
    return tuple(one for one in found if one is not None)


def _device(path: Path) -> PciDevice | None:
    vendor, device, class_id = (_hex(path / name) for name in ("vendor", "device", "class"))
    if vendor is None or device is None or class_id is None:
        return None
    sub_vendor, sub_device = _hex(path / "subsystem_vendor"), _hex(path / "subsystem_device")
    return PciDevice(
        address=path.name,
        vendor_id=vendor,
        device_id=device,
        class_id=class_id,
        subsystem=f"{sub_vendor}:{sub_device}" if sub_vendor and sub_device else None,
        driver=link_name(path / "driver"),
        numa_node=number(path / "numa_node"),
        link_width=number(path / "current_link_width") or None,
        link_width_max=_width(number(path / "max_link_width")),
        link_speed=_speed(path / "current_link_speed"),
        link_speed_max=_speed(path / "max_link_speed"),
    )


def _hex(path: Path) -> str | None:
    found = (text(path, 16) or "").lower()
    return found[2:] if _HEX.fullmatch(found) else None


def _width(found: int | None) -> int | None:
    return found if found and found <= 32 else None  # 255: the kernel could not tell


def _speed(path: Path) -> str | None:
    """The kernel writes `16.0 GT/s PCIe`, older ones `16 GT/s`."""
    match = re.match(r"(\d{1,3}(?:\.\d)?) GT/s", text(path, 64) or "")
    return f"{float(match[1]):g} GT/s" if match else None


def known_names(machine: Machine, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str | None]]:
    """(vendor id, device id) → names of the maker and, where known, of the device."""
    found: dict[tuple[str, str], tuple[str, str | None]] = {}
    path = next((one for one in map(machine.path, IDS) if one.is_file()), None)
    if path is None or not wanted:
        return found
    vendors = {vendor for vendor, _ in wanted}
    vendor, maker = "", ""
    with path.open("rb") as file:
        for line in file.read(IDS_LIMIT).splitlines():
            if line[:1] in (b"#", b"") or line[:2] == b"\t\t":
                continue
            if line[:1] != b"\t":
                vendor, maker = line[:4].decode("ascii", "replace").lower(), printable(line[6:])[:256]
                if line[:2] == b"C ":  # the classes come after the last vendor
                    break
                if vendor in vendors:
                    found.update({key: (maker, None) for key in wanted if key[0] == vendor})
            elif vendor in vendors:
                key = (vendor, line[1:5].decode("ascii", "replace").lower())
                if key in wanted:
                    found[key] = (maker, printable(line[7:])[:256] or None)
    return found
