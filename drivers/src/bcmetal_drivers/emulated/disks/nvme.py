"""`nvme` (nvme-cli 2.3): id-ctrl, list-ns, sanitize, sanitize-log, format."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bcmetal_drivers.emulated.disks.answer import Answer, fault, state_of
from bcmetal_drivers.emulated.disks.state import Drive, changing

_ACTIONS: Final = {"1": "exit", "2": "block", "3": "overwrite", "4": "crypto"}
_BITS: Final = {"crypto": 1, "block": 2, "overwrite": 4}
_NO_ESTIMATE: Final = b"\xff\xff\xff\xff"


def nvme(states: Path, arguments: list[str]) -> Answer:
    command, device, *options = arguments
    values = dict(option.lstrip("-").partition("=")[::2] for option in options)
    with changing(state_of(states, device)) as drive:
        match command:
            case "id-ctrl":
                return Answer(_identify(drive))
            case "list-ns":
                there = sorted({int(n) for n in drive.nodes} | set(drive.hidden_namespaces if "all" in values else ()))
                return Answer("".join(f"[{n:4}]:{nsid:#x}\n" for n, nsid in enumerate(there)).encode())
            case "sanitize-log":
                drive.move_on()
                return Answer(_log(drive))
            case "sanitize":
                return _sanitize(drive, values)
            case "format":
                return _format(drive, values)
    return fault(f"Unknown command {command}")


def _identify(drive: Drive) -> bytes:
    page = bytearray(4096)
    page[4:24] = drive.serial.encode().ljust(20)[:20]
    page[24:64] = drive.model.encode().ljust(40)[:40]
    page[64:72] = drive.firmware.encode().ljust(8)[:8]
    page[256] = 2 * drive.formats | (8 if drive.hidden_namespaces else 0)
    page[328] = sum(_BITS[action] for action in drive.sanitizes)
    page[524] = 4 * drive.format_crypto | 2 * drive.format_is_all
    return bytes(page)


def _log(drive: Drive) -> bytes:
    status = 2 if drive.running else {"never": 0, "done": 1, "failed": 3}[drive.outcome]
    return drive.progress.to_bytes(2, "little") + bytes([status, 0, 0, 0, 0, 0]) + _NO_ESTIMATE * 6 + bytes(480)


def _sanitize(drive: Drive, values: dict[str, str]) -> Answer:
    action = _ACTIONS[values["sanact"]]
    if drive.refuses or (action != "exit" and action not in drive.sanitizes):
        return fault(
            "NVMe status: Invalid Field in Command: A reserved coded value or an unsupported value in a field(0x2)"
        )
    if drive.running:
        return fault("NVMe status: Sanitize In Progress: The requested function is prohibited(0x1d)")
    if action == "exit":
        return Answer()
    drive.commands.append(f"sanitize {action}")
    drive.start_sanitize(action)
    return Answer()


def _format(drive: Drive, values: dict[str, str]) -> Answer:
    ses, nsid = values["ses"], values["namespace-id"]
    if drive.refuses or not drive.formats or (ses == "2" and not drive.format_crypto):
        return fault("NVMe status: Invalid Format: The LBA Format specified is not supported(0x10a)")
    drive.commands.append(f"format {nsid} ses {ses}")
    if drive.dies:
        drive.wipe("zeros", 0.5, nsid)
        return fault("NVMe status: Internal Error: The command was not completed successfully(0x6)")
    drive.wipe("random" if ses == "2" else "zeros", nsid=None if drive.format_is_all else nsid)
    return Answer(f"Success formatting namespace:{nsid}\n".encode())
