"""NVMe: Sanitize and Format NVM, by `nvme`, from the bytes of the specification (NVM Express Base Specification 2.0c), not from its words.

A sanitize goes over the whole NVM subsystem and goes on by itself through resets and power cycles. It is offered only when every namespace
that this machine sees there is in the plan.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bcmetal_agent.tasks.disk_identity import clean, same_serial
from bcmetal_agent.tasks.disk_transport import nvme_controllers
from bcmetal_agent.tasks.disks import BlockDevice, Where, devices, opened
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.erase_ways import CLEAR, HOUR_S, PURGE, Elapsed, Offers, Refused, Way, Work, ask, wait
from bcmetal_agent.tasks.look_files import number
from bcmetal_agent.tasks.tools import ToolFailed, run
from bcmetal_agent.wire_tasks import Method

_EXIT_FAILURE, _BLOCK, _OVERWRITE, _CRYPTO = 1, 2, 3, 4  # figure 302: the sanitize action
_IN_PROGRESS, _FAILED = 2, 3  # figure 273: the status
_DONE: Final = {1, 4}
_ESTIMATES: Final = {_OVERWRITE: 4, _BLOCK: 8, _CRYPTO: 12}  # where the log has them, seconds
_SANITIZES: Final[tuple[tuple[int, Method, int, str], ...]] = (
    # bit of SANICAP, method, sanitize action, what it is
    (1, "nvme-crypto", _CRYPTO, "crypto erase"),
    (2, "nvme-block", _BLOCK, "block erase"),
    (4, "nvme-overwrite", _OVERWRITE, "overwrite"),
)
_BOOT_PARTITIONS: Final = "boot partitions, if it has any"
_RPMB: Final = "replay protected memory block"
_REFUSALS: Final = re.compile(
    r"invalid|not supported|unsupported|prohibited|permitted|denied|read.?only|write.?protected|opcode", re.I
)


@dataclass(frozen=True, slots=True)
class _Controller:
    """What IDENTIFY CONTROLLER says (figure 275). `unseen`: namespaces that exist and that this machine does not see."""

    node: Path
    serial: str
    formats: bool
    format_is_all: bool
    erase_is_all: bool
    crypto_format: bool
    several_controllers: bool
    sanitizes: int
    has_rpmb: bool
    unallocated: int
    unseen: tuple[int, ...]


def look(device: BlockDevice, where: Where, planned: frozenset[str]) -> Offers:
    """`planned`: names of the disks that may be erased."""
    controller = _controller(device, where)
    nsid = number(where.sys / "block" / device.name / "nsid")
    if controller is None or nsid is None:
        return Offers(message="the drive's controller does not say what it can do")
    beside = {
        other.name
        for other in devices(where)
        if other.transport == "nvme" and other.serial and same_serial(other.serial, controller.serial)
    }
    alone = beside <= planned
    left = (_BOOT_PARTITIONS, *((_RPMB,) if controller.has_rpmb else ()))
    found = []
    if alone and not (controller.several_controllers and controller.unseen):
        found += [
            Way(method, PURGE, f"NVMe sanitize, {what}", partial(_sanitize, action=action), left)
            for bit, method, action, what in _SANITIZES
            if controller.sanitizes & bit
        ]
    if controller.formats and (alone or not (controller.format_is_all or controller.erase_is_all)):
        more = [f"namespace {n}, hidden" for n in controller.unseen if not controller.erase_is_all]
        if controller.unallocated:
            more.append("capacity of no namespace")
        beyond = (*left, *more[:10])
        if controller.crypto_format:
            erase = partial(_format, nsid=nsid, ses=2)
            found.append(Way("nvme-crypto", PURGE, "NVMe format with cryptographic erase", erase, beyond))
        erase = partial(_format, nsid=nsid, ses=1)
        found.append(Way("nvme-block", CLEAR, "NVMe format with user data erase", erase, beyond))
    notes = []
    if not alone:
        notes.append(f"shares its controller with {', '.join(sorted(beside - planned))}, not in the plan")
    if controller.unseen:
        notes.append(f"namespaces {', '.join(map(str, controller.unseen[:8]))} exist there and are hidden")
    hidden = (*left, *(f"namespace {n}, hidden" for n in controller.unseen[:10]))
    return Offers(tuple(found), message="; ".join(notes) or None, hidden=hidden)


def settle(work: Work) -> None:
    """Wait for a sanitize that an earlier task began: until it ends the drive takes no reads and writes."""
    controller = _node(work.device, work.where)
    if controller is not None and _status(_log(controller, work)) == _IN_PROGRESS:
        work.log("a sanitize is under way, waiting for its end")
        wait(work, partial(_fraction, controller, may_have_failed=True), 24 * HOUR_S)


def _sanitize(work: Work, action: int) -> None:
    device, node = _checked(work)
    log = _log(node)
    if _status(log) == _FAILED:
        # a failed sanitize is left by another one, or where its first ended in unrestricted mode by this
        ask(["nvme", "sanitize", str(node), f"--sanact={_EXIT_FAILURE}"])
    with opened(device, os.O_RDWR):
        _command(work, ["nvme", "sanitize", str(node), f"--sanact={action}"], 600)
        at = _ESTIMATES[action]
        estimate = int.from_bytes(log[at : at + 4], "little") if len(log) >= at + 4 else 0xFFFFFFFF
        at_most_s = 48 * HOUR_S if estimate == 0xFFFFFFFF else max(4 * HOUR_S, 3.0 * estimate)
        wait(work, partial(_fraction, node), at_most_s)
    log = _log(node)
    work.record(f"sanitize log page 81h: {log[:32].hex()}")
    if _status(log) not in _DONE:
        raise TaskFailed("erase-failed", f"after the sanitize the drive's log has status {_status(log)}")


def _format(work: Work, nsid: int, ses: int) -> None:
    device, node = _checked(work)
    argv = ["nvme", "format", str(node), f"--namespace-id={nsid}", f"--ses={ses}", "--force"]
    argv.append(f"--timeout={int(12 * HOUR_S * 1000)}")
    with opened(device, os.O_RDWR):
        _command(work, argv, 12 * HOUR_S)
    work.record(f"Format NVM of namespace {nsid} with SES {ses} ended well")


def _command(work: Work, argv: list[str], deadline_s: float) -> None:
    """Raises Refused when the drive did not take it, TaskFailed when it broke off."""
    try:
        ran = run(argv, deadline_s=deadline_s, doing=Elapsed(work, 300), limit=64 * 1024)
    except ToolFailed as e:
        said = (clean(e.ran.err, 300) or clean(e.ran.out, 300) or "it said nothing").strip()
        if _REFUSALS.search(said):
            raise Refused(f"the drive refused: {said}") from e
        work.begun = True
        raise TaskFailed("erase-failed", f"the drive broke off: {said}") from e
    work.begun = True
    work.log(clean(ran.out, 300) or "the drive took it")


def _checked(work: Work) -> tuple[BlockDevice, Path]:
    """The disk, found once more, and its controller, which has to be that serial's too."""
    device = work.again()
    controller = _controller(device, work.where)
    if controller is None or device.serial is None or not same_serial(controller.serial, device.serial):
        raise TaskFailed("disk-missing", f"the controller of {device.name} is not that of the disk in the plan")
    return device, controller.node


def _controller(device: BlockDevice, where: Where) -> _Controller | None:
    node = _node(device, where)
    ran = ask(["nvme", "id-ctrl", str(node), "--raw-binary"]) if node is not None else None
    if node is None or ran is None or len(ran.out) < 4096:
        return None
    said = ran.out
    fna, oacs = said[524], int.from_bytes(said[256:258], "little")
    return _Controller(
        node=node,
        serial=clean(said[4:24], 64) or "",
        formats=bool(oacs & 2),
        format_is_all=bool(fna & 1),
        erase_is_all=bool(fna & 2),
        crypto_format=bool(fna & 4),
        several_controllers=bool(said[76] & 2),
        sanitizes=said[328] & 7,
        has_rpmb=bool(said[312] & 7),
        unallocated=int.from_bytes(said[296:312], "little"),
        unseen=_unseen(node, oacs),
    )


def _unseen(node: Path, oacs: int) -> tuple[int, ...]:
    if not oacs & 8:  # no namespace management, so none can be taken away from sight
        return ()
    lists = [ask(["nvme", "list-ns", str(node), *more]) for more in ([], ["--all"])]
    if lists[0] is None or lists[1] is None:
        return ()
    active, there = ({int(n, 16) for n in re.findall(r":\s*0x([0-9a-f]{1,8})", ran.text)} for ran in lists if ran)
    return tuple(sorted(there - active))


def _node(device: BlockDevice, where: Where) -> Path | None:
    """The node of its controller, or of the first one where its subsystem has more."""
    found = nvme_controllers(where.sys / "block" / device.name)
    return where.dev / found[0].name if found else None


def _log(node: Path, patient: Work | None = None) -> bytes:
    ran = ask(["nvme", "sanitize-log", str(node), "--raw-binary"], patient)
    return ran.out if ran is not None else b""


def _status(log: bytes) -> int:
    return log[2] & 7 if len(log) >= 20 else 0


def _fraction(node: Path, may_have_failed: bool = False) -> float | None:
    log = _log(node) or _log(node)
    status = _status(log)
    if status == _FAILED and not may_have_failed:
        raise TaskFailed("erase-failed", "the drive says that its sanitize failed")
    return int.from_bytes(log[:2], "little") / 65536 if status == _IN_PROGRESS else None
