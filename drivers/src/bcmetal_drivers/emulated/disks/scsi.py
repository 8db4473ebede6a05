"""`sg_sanitize`, `sg_requests` and `sg_opcodes` (sg3-utils 1.46)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bcmetal_drivers.emulated.disks.answer import Answer, fault, state_of
from bcmetal_drivers.emulated.disks.state import Drive, changing

_ACTIONS: Final = {"1": "overwrite", "2": "block", "3": "crypto"}
_ILLEGAL_REQUEST: Final = 5  # sg3-utils' exit code for it


def sg_opcodes(states: Path, arguments: list[str]) -> Answer:
    with changing(state_of(states, arguments[-1])) as drive:
        code = next(option for option in arguments if option.startswith("--opcode="))
        action = _ACTIONS[code.rpartition(",")[2]]
        support = 3 if action in drive.sanitizes else 1
        return Answer(bytes([0, support, 0, 10]) + bytes(10))


def sg_sanitize(states: Path, arguments: list[str]) -> Answer:
    with changing(state_of(states, arguments[-1])) as drive:
        action = next(action for action in _ACTIONS.values() if f"--{action}" in arguments)
        if drive.refuses or action not in drive.sanitizes:
            return fault("Sanitize failed: Illegal request, Invalid opcode", _ILLEGAL_REQUEST)
        drive.commands.append(f"sanitize {action}")
        drive.start_sanitize(action)
        return Answer()


def sg_requests(states: Path, arguments: list[str]) -> Answer:
    with changing(state_of(states, arguments[-1])) as drive:
        drive.move_on()
        return Answer(_sense(drive))


def _sense(drive: Drive) -> bytes:
    sense = bytearray(18)
    sense[0], sense[7] = 0x70, 10
    if drive.running:
        sense[2], sense[12], sense[13], sense[15] = 2, 0x04, 0x1B, 0x80
        sense[16:18] = drive.progress.to_bytes(2, "big")
    elif drive.outcome == "failed":
        sense[2], sense[12], sense[13] = 3, 0x31, 0x03
    return bytes(sense)
