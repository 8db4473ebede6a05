"""Boot flags of an IPMI BMC (System Boot Options, IPMI 2.0 table 28-14): written whole, in the maker's selectors, and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from bcmetal_drivers.errors import Malformed, MaybeSent, NotAsAsked, Permanent, Refused, Unsupported
from bcmetal_drivers.ipmi_door import Command, IpmiDoor
from bcmetal_drivers.quirks import Quirks
from bcmetal_drivers.resources import BootDevice, BootMode, BootOverride

SET_BOOT_OPTIONS: Final = Command("Set System Boot Options", 0x00, 0x08)
GET_BOOT_OPTIONS: Final = Command("Get System Boot Options", 0x00, 0x09)

BOOT_FLAGS: Final = 5
TIMES: Final = 2  # some lose a flag of the first write after another one
NOT_THESE: Final = (0xC9, 0xCC)  # parameter out of range, invalid data field
VALID, PERSISTENT, EFI = 0x80, 0x40, 0x20
KEEP_FLAGS: Final = bytes((3, 0x08))  # do not let the flags lapse after 60 s without a chassis control
SELECTORS: Final[Mapping[BootDevice, tuple[int, ...]]] = {  # the usual one first, then what else means the same
    BootDevice.PXE: (1,),
    BootDevice.DISK: (2, 11),  # 11: a remotely connected hard drive
    BootDevice.CD: (5, 8),  # 8: a remotely connected CD
    BootDevice.BIOS_SETUP: (6,),
}
DEVICES: Final[Mapping[int, BootDevice]] = {
    0: BootDevice.NONE,
    1: BootDevice.PXE,
    2: BootDevice.DISK,
    3: BootDevice.DISK,  # in safe mode
    5: BootDevice.CD,
    6: BootDevice.BIOS_SETUP,
    8: BootDevice.CD,  # remote
    9: BootDevice.DISK,  # the primary remote medium; a local disk where Supermicro says so
    11: BootDevice.DISK,  # remote
}


def arm(door: IpmiDoor, device: BootDevice, mode: BootMode | None, once: bool, quirks: Quirks) -> None:
    """Set the override and read it back: raises NotAsAsked when the BMC shows another device, persistence or mode.

    IPMI knows no "as it is": without a mode the UEFI bit is set, and a BMC that loses it is not blamed.
    """
    flags = VALID | (0 if once else PERSISTENT) | (0 if mode is BootMode.LEGACY else EFI)
    shown: BootOverride | None = None
    for selector in _selectors(device, mode or BootMode.UEFI, quirks):
        for _ in range(TIMES):
            if not _write(door, flags, selector):
                break
            shown = read_override(door)
            if shown.device is device and shown.once is once and (mode is None or shown.mode is mode):
                return
    asked = f"{door.address}: asked to boot {'once' if once else 'always'} from {device.value}"
    if shown is None:
        raise Unsupported(f"{asked}, and it refuses every selector for that")
    if not once and shown.device is device and shown.once:
        raise NotAsAsked(f"{asked}, and it takes it for one boot only")
    raise NotAsAsked(f"{asked}, and it shows {_words(shown)}")


def clear(door: IpmiDoor) -> None:
    """Take any override away, and read back: raises NotAsAsked when one is still shown."""
    if not _write(door, 0, 0):
        raise Refused(f"{door.address}: refuses to clear the boot override")
    shown = read_override(door)
    if shown.device is not BootDevice.NONE:
        raise NotAsAsked(f"{door.address}: asked to clear the boot override, and it shows {_words(shown)}")


def read_override(door: IpmiDoor) -> BootOverride:
    """Device NONE where the flags are not valid. Raises Malformed for an answer about something else."""
    data = door.get(GET_BOOT_OPTIONS, bytes((BOOT_FLAGS, 0, 0)))
    if len(data) < 4 or data[1] & 0x7F != BOOT_FLAGS:
        raise Malformed(
            f"{door.address}: {GET_BOOT_OPTIONS.name} gave {data[:8].hex() or 'nothing'} for the boot flags"
        )
    selector = data[3] >> 2 & 0x0F
    if data[1] & 0x80 or not data[2] & VALID or selector == 0:
        return BootOverride(BootDevice.NONE, once=True)
    mode = BootMode.UEFI if data[2] & EFI else BootMode.LEGACY
    return BootOverride(DEVICES.get(selector, BootDevice.OTHER), once=not data[2] & PERSISTENT, mode=mode)


def _selectors(device: BootDevice, mode: BootMode, quirks: Quirks) -> Sequence[int]:
    own = (quirks.boot_selectors or {}).get((device, mode))
    usual = SELECTORS.get(device, ())
    return usual if own is None else (own, *usual)


def _write(door: IpmiDoor, flags: int, selector: int) -> bool:
    """Whether it was taken; False where the BMC does not know this selector or these flags."""
    with suppress(Permanent, MaybeSent):  # OpenBMC refuses parameter 3; whether it was taken changes nothing here
        door.put(SET_BOOT_OPTIONS, KEEP_FLAGS)
    request = bytes((BOOT_FLAGS, flags, selector << 2, 0, 0, 0))
    try:
        answer = door.write(SET_BOOT_OPTIONS, request)
    except MaybeSent:
        answer = door.write(SET_BOOT_OPTIONS, request)  # the same flags twice are the same as once
    if answer.code in NOT_THESE:
        return False
    door.check(SET_BOOT_OPTIONS, answer)
    return True


def _words(shown: BootOverride) -> str:
    mode = f", {shown.mode.value}" if shown.mode else ""
    return f"{shown.device.value}, {'once' if shown.once else 'lasting'}{mode}"
