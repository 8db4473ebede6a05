"""SCSI: SANITIZE (SBC-4, 5.30), by `sg_sanitize`; what a drive can do from REPORT SUPPORTED OPERATION CODES, how far it is from REQUEST SENSE."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Final

from bcmetal_agent.tasks.disk_identity import clean
from bcmetal_agent.tasks.disks import BlockDevice, opened
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.erase_ways import HOUR_S, PURGE, Offers, Refused, Way, Work, ask, wait
from bcmetal_agent.tasks.tools import ToolFailed, run

_SANITIZE: Final = 0x48
_BY_STANDARD: Final = 3  # the support field of SPC-5, 6.36.3
_ACTIONS: Final = (
    # service action, sg_sanitize's options, what it is
    (3, ("--crypto",), "cryptographic erase"),
    (2, ("--block",), "block erase"),
    (1, ("--overwrite", "--zero"), "overwrite"),
)
_NOT_READY, _MEDIUM_ERROR = 0x2, 0x3
_SANITIZE_IN_PROGRESS: Final = (0x04, 0x1B)
_SANITIZE_FAILED: Final = (0x31, 0x03)


@dataclass(frozen=True, slots=True)
class _Sense:
    key: int
    code: tuple[int, int]
    fraction: float
    raw: bytes


def look(device: BlockDevice) -> Offers:
    offered = [
        Way("scsi-sanitize", PURGE, f"SCSI sanitize, {what}", partial(_sanitize, options=options))
        for action, options, what in _ACTIONS
        if _supports(device, action)
    ]
    return Offers(tuple(offered))


def settle(work: Work) -> None:
    """Wait for a sanitize that an earlier task began."""
    sense = _sense(work.device, work)
    if sense is not None and sense.code == _SANITIZE_IN_PROGRESS:
        work.log("a sanitize is under way, waiting for its end")
        wait(work, partial(_fraction, work.device, may_have_failed=True), 96 * HOUR_S)


def _sanitize(work: Work, options: tuple[str, ...]) -> None:
    device = work.again()
    with opened(device, os.O_RDWR):
        try:
            # --early: the drive answers at once; --quick: no fifteen seconds to think it over
            run(["sg_sanitize", *options, "--early", "--quick", str(device.path)], deadline_s=600, limit=64 * 1024)
        except ToolFailed as e:
            raise Refused(f"the drive refused: {clean(e.ran.err or e.ran.out, 300)}") from e
        work.begun = True
        wait(work, partial(_fraction, device), 96 * HOUR_S)
    last = _sense(device)
    work.record(f"sense after the sanitize: {last.raw[:32].hex() if last else 'none'}")
    if last is None or last.key in (_NOT_READY, _MEDIUM_ERROR):
        raise TaskFailed("erase-failed", "after its sanitize the drive is not ready")


def _supports(device: BlockDevice, action: int) -> bool:
    ran = ask(["sg_opcodes", "--raw", f"--opcode={_SANITIZE:#x},{action}", str(device.path)])
    return ran is not None and len(ran.out) >= 4 and ran.out[1] & 7 == _BY_STANDARD


def _fraction(device: BlockDevice, may_have_failed: bool = False) -> float | None:
    sense = _sense(device) or _sense(device)
    if sense is None:
        raise TaskFailed("erase-failed", "the drive does not answer any more")
    if sense.code == _SANITIZE_FAILED and not may_have_failed:
        raise TaskFailed("erase-failed", "the drive says that its sanitize failed")
    return sense.fraction if sense.code == _SANITIZE_IN_PROGRESS else None


def _sense(device: BlockDevice, patient: Work | None = None) -> _Sense | None:
    """SPC-5, 4.4: fixed or descriptor format."""
    ran = ask(["sg_requests", "--raw", str(device.path)], patient)
    if ran is None:
        return None
    raw = ran.out or bytes(8)  # translators answer with nothing where nothing is the matter
    if len(raw) < 8:
        return None
    if raw[0] & 0x7F in (0x72, 0x73):
        specific = _specific(raw)
        key, code = raw[1] & 0x0F, (raw[2], raw[3])
    else:
        padded = raw.ljust(18, b"\0")
        key, code, specific = padded[2] & 0x0F, (padded[12], padded[13]), padded[15:18]
    fraction = int.from_bytes(specific[1:3], "big") / 65536 if len(specific) == 3 and specific[0] & 0x80 else 0.0
    return _Sense(key, code, fraction, raw)


def _specific(raw: bytes) -> bytes:
    """Of a descriptor of type 2: sense key specific."""
    at = 8
    while at + 8 <= len(raw):
        if raw[at] == 2:
            return raw[at + 4 : at + 7]
        at += 2 + raw[at + 1]
    return b""
