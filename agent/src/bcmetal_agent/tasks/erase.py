"""Erase the drives of a plan, and nothing else: inspect, plant, erase, verify, each a task of its own.

Every drive is found anew in each phase, and once more right before each command that destroys something. Drives go in parallel, the
namespaces of one NVMe controller one after the other. The fault of one drive is its own outcome and no other's.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from bcmetal_agent.tasks import erase_ata, erase_host, erase_nvme, erase_scsi
from bcmetal_agent.tasks.disk_identity import clean
from bcmetal_agent.tasks.disks import BlockDevice, Where, devices, find, reread_partitions, resolve
from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.erase_ways import Offers, Refused, Way, Work, moment
from bcmetal_agent.wire_tasks import DriveOutcome, EraseDrive, EraseParams, EraseResult, Method

AT_ONCE: Final = 32
_LOG_LIMIT: Final = 4096
State = Literal[
    "done", "failed", "missing", "read-only", "frozen", "locked", "ambiguous", "shared", "in-use", "unsupported"
]
_STATES: Final[dict[str, State]] = {
    "disk-missing": "missing",
    "disk-ambiguous": "ambiguous",
    "disk-shared": "shared",
    "disk-read-only": "read-only",
    "disk-in-use": "in-use",
}


def erase(params: EraseParams, doing: Doing, where: Where | None = None) -> EraseResult:
    """One phase for all drives. A drive that cannot be done is told in its outcome: only a stop ends the task otherwise."""
    return _Plan(params, doing, where or Where()).run()


class _Named(Exception):
    """A drive that cannot be done, in the outcome's word."""

    def __init__(self, state: State, message: str) -> None:
        super().__init__(message)
        self.state: State = state


@dataclass
class _Plan:
    params: EraseParams
    doing: Doing
    where: Where
    lock: threading.Lock = field(default_factory=threading.Lock)
    fractions: dict[int, float] = field(default_factory=dict)
    ended: int = 0

    def run(self) -> EraseResult:
        present = devices(self.where)
        found: dict[int, str] = {}
        for n, drive in enumerate(self.params.drives):
            with contextlib.suppress(TaskFailed):
                found[n] = find(drive.disk, self.where).name
        planned = frozenset(found.values())
        queues: dict[str, list[int]] = {}
        for n, drive in enumerate(self.params.drives):
            queues.setdefault(drive.disk.serial, []).append(n)
        outcomes: dict[int, DriveOutcome] = {}

        def one_after_the_other(queue: list[int]) -> None:
            done: set[str] = set()
            for n in queue:
                twice = found.get(n) in done
                done.add(found.get(n, ""))
                outcomes[n] = self._outcome(n, planned, twice)
                self._ended(n)

        if queues:
            with ThreadPoolExecutor(min(AT_ONCE, len(queues)), thread_name_prefix="drive") as pool:
                for future in [pool.submit(one_after_the_other, queue) for queue in queues.values()]:
                    future.result()
        others = tuple(d.serial or d.name for d in present if d.name not in planned and not d.virtual_medium)
        return EraseResult(tuple(outcomes[n] for n in range(len(self.params.drives))), others[:256])

    def _outcome(self, n: int, planned: frozenset[str], twice: bool) -> DriveOutcome:
        drive = self.params.drives[n]
        outcome = DriveOutcome(drive.disk.serial, "failed", started_at=moment())
        work: Work | None = None
        try:
            if twice:
                raise _Named("ambiguous", "the plan names this drive more than once")
            work = self._work(n, drive)
            phases: dict[str, Callable[[Work, DriveOutcome], DriveOutcome]] = {
                "inspect": lambda w, o: self._inspect(w, o, drive, planned),
                "plant": self._plant,
                "erase": lambda w, o: self._erase(w, o, drive, planned),
                "verify": self._verify,
            }
            outcome = phases[self.params.phase](work, outcome)
        except _Named as e:
            outcome = replace(outcome, state=e.state, message=_line(str(e)))
        except TaskFailed as e:
            begun = work is not None and work.begun
            outcome = replace(
                outcome, state="failed" if begun else _STATES.get(e.code, "failed"), message=_line(str(e))
            )
        except OSError as e:
            outcome = replace(outcome, state="failed", message=_line(f"{e.strerror or e}"))
        log = "\n".join(work.said)[-_LOG_LIMIT:] if work is not None else ""
        self.doing.log(
            f"{moment()} {drive.disk.serial}: {self.params.phase}: {outcome.state}, {outcome.message or 'well'}\n"
        )
        return replace(outcome, ended_at=moment(), drive_log=log or None)

    def _work(self, n: int, drive: EraseDrive) -> Work:
        looking = self.params.phase in ("inspect", "verify")
        device = find(drive.disk, self.where) if looking else resolve(drive.disk, self.where)
        if looking and device.shared:
            raise _Named("shared", f"{device.name} is reached over {device.transport}, other machines may see it too")
        pattern = _pattern(drive, self.params.phase)
        for offset in drive.sectors:
            if offset < 0 or offset % erase_host.SECTOR or offset + erase_host.SECTOR > device.size_bytes:
                raise _Named("failed", f"byte {offset} is no sector of a disk of {device.size_bytes} bytes")
        return Work(
            device=device,
            where=self.where,
            doing=self.doing,
            progress=lambda fraction: self._progress(n, fraction),
            again=lambda: self._again(drive, device),
            sectors=drive.sectors,
            pattern=pattern,
        )

    def _again(self, drive: EraseDrive, before: BlockDevice) -> BlockDevice:
        now = resolve(drive.disk, self.where)
        if (now.name, now.number) != (before.name, before.number):
            raise TaskFailed("disk-missing", f"{before.name} went away, and came back as {now.name}")
        return now

    # ------------------------------------------------------------ phases

    def _inspect(self, work: Work, outcome: DriveOutcome, drive: EraseDrive, planned: frozenset[str]) -> DriveOutcome:
        if not work.device.read_only:
            self._settle(work, may_erase=False)
        offers = self._offers(work.device, planned)
        methods = tuple(dict.fromkeys(way.method for way in offers.ways))
        outcome = replace(outcome, offers=methods, not_covered=_words(work.device, offers.hidden))
        if work.device.read_only:
            return replace(outcome, state="read-only", message="the disk takes no writes")
        self._chosen(drive, offers)
        return replace(outcome, state="done", message=_line(offers.message) if offers.message else None)

    def _plant(self, work: Work, outcome: DriveOutcome) -> DriveOutcome:
        self._settle(work, may_erase=True)
        erase_host.plant(work)
        return replace(outcome, state="done")

    def _verify(self, work: Work, outcome: DriveOutcome) -> DriveOutcome:
        return replace(outcome, samples=erase_host.samples(work), state="done")

    def _erase(self, work: Work, outcome: DriveOutcome, drive: EraseDrive, planned: frozenset[str]) -> DriveOutcome:
        self._settle(work, may_erase=True)
        offers = self._offers(work.device, planned)
        ways = self._chosen(drive, offers)
        notes = [offers.message] if offers.message else []
        for way in ways:
            try:
                work.log(f"erasing: {way.how}")
                way.run(work)
            except Refused as e:
                work.log(f"{way.how}: {e}")
                notes.append(f"{way.how}: {e}")
                continue
            except TaskFailed as e:
                state: State = "failed" if work.begun else _STATES.get(e.code, "failed")
                said = "; ".join([f"{way.how}: {e}", *notes])
                return replace(outcome, state=state, method=way.method, standard="none", message=_line(said))
            self._reread(work)
            return replace(
                outcome,
                state="done",
                method=way.method,
                standard=way.standard,
                message=_line("; ".join([way.how, *notes])),
                not_covered=_words(work.device, way.not_covered),
            )
        raise _Named(offers.blocked or "failed", "; ".join(notes))

    # ------------------------------------------------------------ a drive

    def _settle(self, work: Work, may_erase: bool) -> None:
        match work.device.transport:
            case "nvme":
                erase_nvme.settle(work)
            case "sas" | "scsi":
                erase_scsi.settle(work)
            case _ if _speaks_ata(work.device):
                erase_ata.settle(work, may_erase)

    def _offers(self, device: BlockDevice, planned: frozenset[str]) -> Offers:
        match device.transport:
            case "nvme":
                offers = erase_nvme.look(device, self.where, planned)
            case "sas" | "scsi":
                offers = erase_scsi.look(device)
            case _ if _speaks_ata(device):
                offers = erase_ata.look(device)
            case _:
                offers = Offers()
        if not offers.closed:
            offers = replace(offers, ways=(*offers.ways, *erase_host.ways(device, self.where, offers.hidden)))
        return offers

    def _chosen(self, drive: EraseDrive, offers: Offers) -> list[Way]:
        """The ways of the plan's methods, in its order. Raises _Named when there is none."""
        ways = [way for method in drive.methods for way in offers.ways if way.method == method]
        if not ways:
            have: list[Method] = list(dict.fromkeys(way.method for way in offers.ways))
            said = (
                offers.message
                or f"the drive can do none of {', '.join(drive.methods)}; it offers {', '.join(have) or 'nothing'}"
            )
            raise _Named(offers.blocked or "unsupported", said)
        return ways

    def _reread(self, work: Work) -> None:
        """What the kernel makes of it afterwards takes nothing from the erase."""
        try:
            read = reread_partitions(work.device)
        except TaskFailed:
            read = False
        if not read:
            work.log("the kernel did not read its partition table anew")

    # ------------------------------------------------------------ progress

    def _progress(self, n: int, fraction: float) -> None:
        with self.lock:
            self.fractions[n] = max(0.0, min(1.0, fraction))
            count = len(self.params.drives)
            thousandths = int(1000 * sum(self.fractions.values()) / count)
            message = f"{self.params.phase}: {self.ended} of {count} drives done"
        self.doing.progress(thousandths, message)

    def _ended(self, n: int) -> None:
        with self.lock:
            self.ended += 1
        self._progress(n, 1.0)


def _speaks_ata(device: BlockDevice) -> bool:
    """Not behind USB: bridges mistake security commands, and brick the drive."""
    return device.ata and device.transport != "usb"


def _pattern(drive: EraseDrive, phase: str) -> bytes:
    try:
        pattern = base64.b64decode(drive.pattern, validate=True)
    except (binascii.Error, ValueError) as e:
        raise _Named("failed", "the pattern is no base64") from e
    if len(pattern) != erase_host.SECTOR and (pattern or phase == "plant"):
        raise _Named("failed", f"the pattern is {len(pattern)} bytes and not {erase_host.SECTOR}")
    return pattern


def _words(device: BlockDevice, words: tuple[str, ...]) -> tuple[str, ...]:
    more = [f"{part} of the card" for part in device.hidden]
    if device.raid_volume:
        more.append("what the RAID controller keeps of the drives behind this volume")
    return tuple(dict.fromkeys((*words, *more)))[:16]


def _line(text: str) -> str:
    return clean(text.encode("utf-8", "replace"), 1000) or "no message"
