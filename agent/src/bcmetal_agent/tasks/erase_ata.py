"""ATA: SANITIZE DEVICE and SECURITY ERASE UNIT, by `hdparm`, from the words of IDENTIFY DEVICE (ACS-4, 7.13).

SECURITY ERASE UNIT needs a password on the drive first, and a power cut leaves the drive locked with it. So the password is a word that
everybody knows, and the next task takes it off, or erases with it. It is no secret: a drive that holds it is about to be erased.

Frozen: the firmware locks the security commands at boot, until the drive's next power-on. Suspending the machine would thaw it, and would
lose a machine that does not wake up again; so it is told, and SANITIZE, which freezing does not touch, is taken where the drive has it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from typing import Final

from bcmetal_agent.tasks.disk_identity import clean, same_serial
from bcmetal_agent.tasks.disks import BlockDevice, opened
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.erase_ways import CLEAR, HOUR_S, PURGE, Blocked, Elapsed, Offers, Refused, Way, Work, ask, wait
from bcmetal_agent.tasks.tools import Ran, ToolFailed, run
from bcmetal_agent.wire_tasks import Method

_LOCK_WORD: Final = "bcmetal-erases-this"
_I_KNOW: Final = "--yes-i-know-what-i-am-doing"
_UNKNOWN_S: Final = 24 * HOUR_S  # what an erase may take when the drive does not say, or says "more than 508 minutes"
_OVERLAY: Final = "sectors taken away by a device configuration overlay"
_SANITIZES: Final[tuple[tuple[int, Method, str, str], ...]] = (
    # bit of word 59, method, hdparm's option, what it is
    (13, "ata-crypto", "--sanitize-crypto-scramble", "crypto scramble"),
    (15, "ata-secure", "--sanitize-block-erase", "block erase"),
    (14, "ata-secure", "--sanitize-overwrite", "overwrite"),
)


@dataclass(frozen=True, slots=True)
class _Identity:
    """Words 59, 82, 89, 90 and 128."""

    serial: str
    sanitize: int
    security: bool
    enabled: bool
    locked: bool
    frozen: bool
    enhanced: bool
    erase_s: float
    enhanced_s: float


def look(device: BlockDevice) -> Offers:
    identity = _identify(device)
    if identity is None:
        return Offers(message="the drive does not answer IDENTIFY DEVICE")
    if identity.locked:
        return Offers(blocked="locked", closed=True, message="the drive is locked with a password that is not ours")
    visible, native, whole = _extent(device)
    left = (_OVERLAY,) if whole > native > 0 else ()
    found = [
        Way(method, PURGE, f"ATA sanitize, {what}", partial(_sanitize, option=option), left)
        for bit, method, option, what in _SANITIZES
        if identity.sanitize & 1 << 12 and identity.sanitize & 1 << bit
    ]
    blocked: Blocked | None = None
    message = None
    if identity.security and identity.frozen:
        blocked = "frozen"
        message = "the firmware froze the drive's security commands until its next power-on; no suspend was tried"
    elif identity.security and identity.enabled:
        blocked = "locked"
        message = "the drive has a security password that is not ours"
    elif identity.security:
        if identity.enhanced:
            run_it = partial(_security_erase, enhanced=True)
            found.append(Way("ata-secure", CLEAR, "ATA security erase, enhanced", run_it, left))
        run_it = partial(_security_erase, enhanced=False)
        found.append(Way("ata-secure", CLEAR, "ATA security erase", run_it, left))
    hidden = max(0, native - visible)
    if hidden:
        message = f"{hidden} sectors are hidden in a host protected area, which the host cannot write to"
    return Offers(tuple(found), blocked, closed=hidden > 0, message=message, hidden=left)


def settle(work: Work, may_erase: bool) -> None:
    """Go on with what a killed task left: wait for its sanitize, take its password off, or end its erase where that is allowed."""
    ran = ask(["hdparm", "--sanitize-status", str(work.device.path)], work)
    if ran is not None and _state_of(ran) == 2:
        work.log("a sanitize is under way, waiting for its end")
        wait(work, partial(_sanitize_fraction, work.device, may_have_failed=True), 48 * HOUR_S)
    identity = _identify(work.device)
    if identity is None or not identity.enabled or identity.frozen:
        return
    if identity.locked and not _tell(work, "--security-unlock"):
        work.log("it is locked, and our word does not unlock it")
        if not may_erase:
            return
        # a drive whose erase was cut short may take nothing but the erase, with the word that began it
        device = _checked(work)
        with opened(device, os.O_RDWR):
            if not _tell(work, "--security-erase", takes_s=identity.erase_s):
                return
        work.record("the security erase that was cut short was ended")
        return
    if _tell(work, "--security-disable"):
        work.log("the word that an earlier task left on it was taken off")


def _security_erase(work: Work, enhanced: bool) -> None:
    device = _checked(work)
    identity = _identify(device)
    if identity is None or identity.frozen or identity.enabled:
        raise Refused("its security state changed meanwhile")
    option = "--security-erase-enhanced" if enhanced else "--security-erase"
    with opened(device, os.O_RDWR):
        if not _tell(work, "--security-set-pass") or not _enabled(device):
            raise Refused("the drive takes no password")
        work.begun = True
        done = _tell(work, option, takes_s=identity.enhanced_s if enhanced else identity.erase_s)
        kept = _enabled(device)
        if kept:
            _tell(work, "--security-disable")
    if not done:
        raise TaskFailed("erase-failed", "the drive broke off its security erase")
    work.record(f"SECURITY ERASE UNIT{', enhanced,' if enhanced else ''} ended well")
    if kept is not False:
        # a successful erase ends with security disabled (ACS-4, 7.45)
        raise TaskFailed("erase-failed", "after its security erase the drive still has its password: it did not erase")


def _sanitize(work: Work, option: str) -> None:
    device = _checked(work)
    argv = ["hdparm", _I_KNOW, *([option, "hex:00000000"] if option.endswith("overwrite") else [option])]
    if option.endswith("overwrite"):
        argv[1:1] = ["--sanitize-overwrite-passes", "1"]
    with opened(device, os.O_RDWR):
        try:
            ran = run([*argv, str(device.path)], deadline_s=600, limit=64 * 1024)
        except ToolFailed as e:
            raise Refused(f"the drive refused: {clean(e.ran.err or e.ran.out, 300)}") from e
        work.begun = True
        work.log(clean(ran.out, 300) or "the sanitize began")
        wait(work, partial(_sanitize_fraction, device), 96 * HOUR_S)
    last = ask(["hdparm", "--sanitize-status", str(device.path)])
    work.record(clean(last.out, 600) or "" if last is not None else "no sanitize status")
    if last is None or "Without Error" not in last.text or _state_of(last) != 0:
        raise TaskFailed("erase-failed", "the drive does not say that its sanitize ended without error")


def _checked(work: Work) -> BlockDevice:
    """The disk, found once more, which has to answer with the plan's serial itself."""
    device = work.again()
    identity = _identify(device)
    if identity is None or device.serial is None or not same_serial(identity.serial, device.serial):
        raise TaskFailed("disk-missing", f"{device.path} does not answer as the disk in the plan")
    return device


def _tell(work: Work, option: str, takes_s: float = 0.0) -> bool:
    """A security command with our word. It is not broken off: the drive would go on, locked."""
    argv = ["hdparm", "--user-master", "u", option, _LOCK_WORD, str(work.device.path)]
    deadline_s = 3 * takes_s + HOUR_S if takes_s else 600.0
    try:
        ran = run(argv, deadline_s=deadline_s, doing=Elapsed(work, takes_s) if takes_s else None, limit=64 * 1024)
    except ToolFailed as e:
        work.log(f"{option.lstrip('-')}: {clean(e.ran.err or e.ran.out, 300)}")
        return False
    fault = _fault(ran.err.decode("utf-8", "replace"))
    if fault is not None:
        work.log(f"{option.lstrip('-')}: {clean(fault.encode(), 300)}")
    return fault is None


def _fault(said: str) -> str | None:
    """hdparm ends with 0 after some of the drive's errors. Sense data that is not an ATA return descriptor (bridges, SAS HBAs) is an error
    by its key alone: 0 and 1 are none (SPC-5, 4.4.7)."""
    found = re.search(r"Input/output error|SECURITY_[A-Z_]+: .*", said)
    if found is not None:
        return found[0]
    found = re.search(r"bad/missing sense data, sb\[\]:\s+(?:[7f][01] [0-9a-f]{2} .|72 .)([0-9a-f])\b.*", said)
    return found[0] if found is not None and found[1] not in "01" else None


def _enabled(device: BlockDevice) -> bool | None:
    identity = _identify(device)
    return None if identity is None else identity.enabled


def _identify(device: BlockDevice) -> _Identity | None:
    ran = ask(["hdparm", "--Istdout", str(device.path)])
    words = [int(word, 16) for word in re.findall(r"\b[0-9a-f]{4}\b", ran.text.partition(":")[2])] if ran else []
    if len(words) != 256:
        return None
    raw = b"".join(word.to_bytes(2, "big") for word in words[10:20])
    state = words[128]
    return _Identity(
        serial=clean(raw, 64) or "",
        sanitize=words[59],
        security=bool(words[82] & 2) and bool(state & 1),
        enabled=bool(state & 2),
        locked=bool(state & 4),
        frozen=bool(state & 8),
        enhanced=bool(state & 32),
        erase_s=_takes_s(words[89]),
        enhanced_s=_takes_s(words[90]),
    )


def _takes_s(word: int) -> float:
    """In units of two minutes, of 8 bits or of 15 (ACS-4, 9.11.6); the largest means "or more"."""
    extended = bool(word & 0x8000)
    units = word & 0x7FFF if extended else word & 0xFF
    return 120.0 * units if units not in (0, 0x7FFF if extended else 0xFF) else _UNKNOWN_S


def _extent(device: BlockDevice) -> tuple[int, int, int]:
    """Sectors that are visible, that there are, and that there were before an overlay; zeros where the drive does not say."""
    ran = ask(["hdparm", "-N", str(device.path)])
    found = re.search(r"max sectors\s*=\s*(\d{1,20})/(\d{1,20})", ran.text) if ran else None
    visible, native = (int(found[1]), int(found[2])) if found else (0, 0)
    ran = ask(["hdparm", "--dco-identify", str(device.path)])
    # a drive without overlays gets an error, and hdparm prints the empty answer as one of 1 sector
    there = ran is not None and _fault(ran.err.decode("utf-8", "replace")) is None
    found = re.search(r"Real max sectors:\s*(\d{1,20})", ran.text) if ran is not None and there else None
    return visible, native, int(found[1]) if found else 0


def _state_of(ran: Ran) -> int:
    found = re.search(r"\bSD([0-4])\b", ran.text)
    return int(found[1]) if found else -1


def _sanitize_fraction(device: BlockDevice, may_have_failed: bool = False) -> float | None:
    ran = ask(["hdparm", "--sanitize-status", str(device.path)])
    state = _state_of(ran) if ran is not None else -1
    if ran is None or (state == 3 and not may_have_failed):
        raise TaskFailed("erase-failed", "the drive says that its sanitize failed")
    found = re.search(r"Progress: 0x([0-9a-f]{1,4})\b", ran.text)
    return (int(found[1], 16) if found else 0) / 65536 if state == 2 else None
