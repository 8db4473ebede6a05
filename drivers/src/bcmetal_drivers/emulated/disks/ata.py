"""`hdparm` (9.65): --Istdout, -N, --dco-identify, the sanitize and the security commands."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from bcmetal_drivers.emulated.disks.answer import Answer, fault, state_of
from bcmetal_drivers.emulated.disks.state import Drive, changing

_OPTIONS: Final = {
    "--sanitize-crypto-scramble": "crypto",
    "--sanitize-block-erase": "block",
    "--sanitize-overwrite": "overwrite",
}
_BITS: Final = {"crypto": 13, "overwrite": 14, "block": 15}
_IO_ERROR, _INVALID = 5, 22  # hdparm's exit codes: the error's number
# what it prints of a command that the drive aborted; it ends with 0 then
_ABORTED: Final = b"SG_IO: bad/missing sense data, sb[]:  70 00 0b 00 00 00 00 0a 04 41 e0 01 00 00 00 00 00 00 00 00\n"


def hdparm(states: Path, arguments: list[str]) -> Answer:
    device = arguments[-1]
    with changing(state_of(states, device)) as drive:
        said = _answer(drive, arguments)
    return Answer(f"\n{device}:\n".encode() + said.out, said.err, said.code)


def _answer(drive: Drive, arguments: list[str]) -> Answer:
    for option, action in _OPTIONS.items():
        if option in arguments:
            return _sanitize(drive, arguments, action)
    match arguments:
        case ["--Istdout", _]:
            return Answer(_identify(drive))
        case ["-N", _]:
            return Answer(_extent(drive))
        case ["--dco-identify", _]:
            if not drive.overlaid_sectors:
                said = b"DCO Checksum verified.\nDCO Revision: 0x0000 -- unknown, treating as 0002\n\tReal max sectors: 1\n"
                return Answer(said, _ABORTED)
            whole = drive.sectors + drive.hidden_sectors + drive.overlaid_sectors
            return Answer(f"DCO Checksum verified.\nDCO Revision: 0x0002\n\tReal max sectors: {whole}\n".encode())
        case ["--sanitize-status", _]:
            return _status(drive)
        case ["--user-master", "u", option, word, _] if option.startswith("--security-"):
            return _security(drive, option.removeprefix("--security-"), word)
    return fault(f"hdparm: {' '.join(arguments)}: not one of the fake's", _INVALID)


def _identify(drive: Drive) -> bytes:
    words = [0] * 256
    words[0] = 0x0040
    for at, text, size in ((10, drive.serial, 20), (23, drive.firmware, 8), (27, drive.model, 40)):
        raw = text.encode().ljust(size)[:size]
        words[at : at + size // 2] = [int.from_bytes(raw[n : n + 2], "big") for n in range(0, size, 2)]
    if drive.sanitizes:
        words[59] = 1 << 12 | sum(1 << _BITS[action] for action in drive.sanitizes)
    words[82] = 1 << 10 | 2 * drive.security.supported
    words[89] = words[90] = 2
    s = drive.security
    words[128] = s.supported | s.enabled << 1 | s.locked << 2 | s.frozen << 3 | s.enhanced << 5
    lines = [" ".join(f"{word:04x}" for word in words[n : n + 8]) for n in range(0, 256, 8)]
    return ("\n".join(lines) + "\n").encode()


def _extent(drive: Drive) -> bytes:
    state = "HPA is enabled" if drive.hidden_sectors else "HPA is disabled"
    return f" max sectors   = {drive.sectors}/{drive.sectors + drive.hidden_sectors}, {state}\n".encode()


def _status(drive: Drive) -> Answer:
    if not drive.sanitizes:
        return fault("SANITIZE feature set is not supported", _INVALID)
    drive.move_on()
    said = "Issuing SANITIZE_STATUS command\nSanitize status:\n"
    if drive.running:
        percent = 100 * drive.progress // 65536
        said += f"    State:    SD2 Sanitize operation In Process\n    Progress: {drive.progress:#x} ({percent}%)\n"
    elif drive.outcome == "failed":
        said += "    State:    SD3 Sanitize Operation Failed\n"
    else:
        said += "    State:    SD0 Sanitize Idle\n"
        said += "    Last Sanitize Operation Completed Without Error\n" if drive.outcome == "done" else ""
    return Answer(said.encode())


def _sanitize(drive: Drive, arguments: list[str], action: str) -> Answer:
    if "--yes-i-know-what-i-am-doing" not in arguments:
        return fault("Please supply the --yes-i-know-what-i-am-doing flag if you really want this.", 1)
    if drive.refuses or drive.security.locked or action not in drive.sanitizes:
        return fault("SANITIZE failed: Input/output error", _IO_ERROR)
    drive.commands.append(f"sanitize {action}")
    drive.start_sanitize(action)
    return Answer(b"Operation started in background\nYou may use `--sanitize-status` to check progress\n")


def _security(drive: Drive, command: str, word: str) -> Answer:
    s = drive.security
    name = {"set-pass": "SECURITY_SET_PASS", "unlock": "SECURITY_UNLOCK", "disable": "SECURITY_DISABLE"}.get(
        command, "SECURITY_ERASE"
    )
    said = f" Issuing {name} command, user=user, mode=high\n".encode()
    if s.deaf:
        return Answer(said, f"SG_IO: bad/missing sense data, sb[]:  {s.deaf}\n".encode())
    wrong = s.enabled and word != s.password
    shut = s.locked and command in ("set-pass", "disable")
    if s.frozen or drive.refuses or wrong or shut or (command != "set-pass" and not s.enabled):
        return Answer(said, _ABORTED)
    if command == "set-pass":
        s.enabled, s.password = True, word
    elif command == "unlock":
        s.locked = False
    elif command == "disable":
        s.enabled, s.password = False, ""
    else:
        return _erase(drive, command, said)
    return Answer(said)


def _erase(drive: Drive, command: str, said: bytes) -> Answer:
    drive.commands.append(command)
    time.sleep(drive.slow_s)
    if drive.dies:
        drive.wipe("zeros", 0.5)
        return Answer(said, b"SECURITY_ERASE: Input/output error\n", _IO_ERROR)
    drive.wipe("zeros")
    if drive.security.keeps:
        return Answer(said)
    drive.security.enabled, drive.security.locked, drive.security.password = False, False, ""
    return Answer(said)
