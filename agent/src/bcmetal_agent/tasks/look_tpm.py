"""The TPM: its version by sysfs, its maker and firmware by one TPM2_GetCapability (TPM 2.0 part 3, 30.2)."""

from __future__ import annotations

import os
import select
import struct
from pathlib import Path
from typing import Final

from bcmetal_agent.tasks.look_files import Machine, number, printable, raw
from bcmetal_agent.wire_inventory import Tpm

ANSWER_S: Final = 10.0
_FIXED, _COUNT = 0x100, 16  # TPM_PT_FIXED: the properties that no reset changes
_MAKER, _FIRMWARE_1, _FIRMWARE_2 = 0x105, 0x10B, 0x10C
_COMMAND: Final = struct.pack("!HIIIII", 0x8001, 22, 0x17A, 6, _FIXED, _COUNT)


def read(machine: Machine, notes: dict[str, str]) -> Tpm | None:
    """None: the kernel found none."""
    device = machine.path("sys/class/tpm/tpm0")
    if not device.exists():
        return None
    major = number(device / "tpm_version_major")
    if major == 1:
        return _old(device)
    maker = firmware = None
    if machine.live:
        try:
            maker, firmware = parse(_ask(Path("/dev/tpmrm0")))
        except (OSError, ValueError) as error:
            notes["tpm"] = f"it does not tell its maker and firmware: {error}"
    return Tpm("2.0" if major == 2 else None, maker, firmware)


def _old(device: Path) -> Tpm:
    """TPM 1.2's `caps`: Manufacturer: 0x…, Firmware version: 1.2.3."""
    lines = (raw(device / "caps") or raw(device / "device/caps") or b"").decode("ascii", "replace").splitlines()
    told = {name.strip(): printable(value) for name, _, value in (line.partition(":") for line in lines)}
    try:
        maker = _letters(int(told.get("Manufacturer", ""), 16) & 0xFFFFFFFF)
    except ValueError:
        maker = None
    return Tpm("1.2", maker, told.get("Firmware version"))


def _ask(path: Path) -> bytes:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.write(fd, _COMMAND)
        if not select.select([fd], [], [], ANSWER_S)[0]:
            raise TimeoutError(f"no answer within {ANSWER_S:.0f} s")
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def parse(answer: bytes) -> tuple[str | None, str | None]:
    """Maker and firmware of an answer to the command above. Raises ValueError."""
    if len(answer) < 19:
        raise ValueError("its answer is too short")
    _, _, code, _, capability, count = struct.unpack_from("!HIIBII", answer)
    if code or capability != 6:
        raise ValueError(f"it answered with code 0x{code:x}")
    told = dict(struct.unpack_from("!II", answer, 19 + 8 * n) for n in range(min(count, (len(answer) - 19) // 8)))
    first, second = told.get(_FIRMWARE_1), told.get(_FIRMWARE_2)
    parts = [] if first is None else [first >> 16, first & 0xFFFF]
    if parts and second:
        parts += [second >> 16, second & 0xFFFF]
    maker = told.get(_MAKER)
    return None if maker is None else _letters(maker), ".".join(map(str, parts)) or None


def _letters(word: int) -> str | None:
    return printable(word.to_bytes(4, "big").rstrip(b"\0")) or None
