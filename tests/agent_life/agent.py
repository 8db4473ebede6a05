"""A double of the agent in the ramdisk: it speaks to the real door, and does its tasks on a `SimulatedMachine`.

What is doubled is the machine's side, at the wire. A call that gets no answer is made again, under the next number, as the real one does.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent_life.disks import BLOCK, Disk
from bcmetal_agent import wire, wire_tasks
from bcmetal_agent.wire_tasks import (
    DiskRef,
    DriveOutcome,
    EraseDrive,
    EraseParams,
    EraseResult,
    RescueParams,
    RescueReady,
    SetBoot,
    SetBootParams,
    Task,
    TestParams,
    TestResult,
    WriteConfigDriveParams,
    WriteImageParams,
    WroteConfigDrive,
    WroteImage,
)
from in_process import Answered

if TYPE_CHECKING:
    from agent_life.machine import SimulatedMachine

Line = Callable[[str, str, bytes, Mapping[str, str], str], Awaitable[Answered | None]]  # None: no answer came
CALLS_A_TURN: Final = 6


class Failing(Exception):
    """The task failed, by this code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class RamdiskAgent:
    machine: SimulatedMachine
    token: str = field(repr=False)
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate, repr=False)
    session_id: str = ""
    sequence: int = 0
    fenced: str = ""  # why the daemon has nothing for it any more
    silent: bool = False
    _task: Task | None = None
    _report: dict[str, Any] | None = None

    def kill(self) -> None:
        """The process dies and starts again: what is left is the key, and the numbers that it reserved."""
        self._task = self._report = None
        self.session_id = ""
        self.sequence += 1000

    async def turn(self, line: Line) -> None:
        for _ in range(CALLS_A_TURN):
            if self.fenced or self.silent or not await self._go_on(line):
                return

    async def _go_on(self, line: Line) -> bool:
        """One call; whether there is more to do now."""
        if not self.session_id:
            return await self.hello(line)
        if self._report is not None:
            return await self._reported(line, self._report)
        if self._task is None:
            return await self._next(line)
        task = self._task
        if self.machine.doing(task):
            await self._said(line, {"taskId": task.task_id, "state": "running", "progress": 500, "message": "half"})
            return False
        if self._task is task:  # `doing` may have killed it
            self._report = await self._done(line, task)
        return self._report is not None

    async def hello(self, line: Line) -> bool:
        body = wire.encode(
            wire_tasks.Hello(
                public_key=base64.b64encode(self.key.public_key().public_bytes_raw()).decode(),
                identifiers=self.machine.identifiers(),
                version="0.1",
                clock="1970-01-01T00:00:07Z",
            )
        )
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        answer = await line("POST", wire_tasks.HELLO_PATH, body, headers, self.machine.address)
        if answer is None:
            return False
        if answer.status == 200:
            self.session_id = str(answer.doc["sessionId"])
            return True
        if answer.status in (401, 403):
            self.fenced = str(answer.error.get("details", {}).get("reason") or answer.code)
        return False

    async def call(self, line: Line, method: str, path: str, body: bytes = b"") -> Answered | None:
        self.sequence += 1
        signed = wire_tasks.statement(method, path, self.session_id, self.sequence, body)
        headers = {
            wire_tasks.SESSION_HEADER: self.session_id,
            wire_tasks.SEQUENCE_HEADER: str(self.sequence),
            wire_tasks.SIGNATURE_HEADER: base64.b64encode(self.key.sign(signed)).decode(),
        }
        if body:
            headers["Content-Type"] = "application/json"
        answer = await line(method, path, body, headers, self.machine.address)
        if answer is not None and answer.status == 403:
            self.fenced = "not-yours"
        return answer if answer is not None and answer.status == 200 else None

    async def _next(self, line: Line) -> bool:
        answer = await self.call(line, "POST", wire_tasks.NEXT_PATH, wire.encode(wire_tasks.Next()))
        if answer is None or answer.doc["status"] != "task":
            return False
        self._task = wire.decode(Task, answer.raw, wire_tasks.TASK_LIMIT)
        return True

    async def _said(self, line: Line, report: Mapping[str, Any]) -> bool | None:
        """Whether to go on; None: no answer came."""
        body = wire.encode(wire.read_doc(wire_tasks.Report, dict(report)))
        answer = await self.call(line, "POST", wire_tasks.REPORT_PATH, body)
        return None if answer is None else bool(answer.doc["goOn"])

    async def _reported(self, line: Line, report: Mapping[str, Any]) -> bool:
        if await self._said(line, report) is None:
            return False
        self._task = self._report = None
        return True

    # -------------------------------------------------------- tasks

    async def _done(self, line: Line, task: Task) -> dict[str, Any] | None:
        """The report that ends it; None: it has to be tried again."""
        about = {"taskId": task.task_id}
        try:
            params = wire.read_doc(wire_tasks.PARAMS[task.kind], task.params)
            result = await self._write_image(line, params) if task.kind == "writeImage" else self._do(task.kind, params)
        except Failing as error:
            return {**about, "state": "failed", "errorCode": error.code, "errorMessage": str(error)}
        if result is None:
            return None
        phase = f":{task.params['phase']}" if task.kind == "erase" else ""
        self.machine.tasks.append(task.kind + phase)
        answer = self.machine.answers(task, wire.to_doc(result))
        log = f"{task.kind}{phase} done\n"
        return {**about, "state": "done", "progress": 1000, "result": dict(answer), "log": log, "logOffset": 0}

    def _do(self, kind: str, params: Any) -> Any:
        machine = self.machine
        match kind:
            case "inventory":
                return machine.inventory()
            case "test":
                return self._test(params)
            case "erase":
                return self._erase(params)
            case "writeConfigDrive":
                return self._write_config_drive(params)
            case "setBoot":
                machine.boot_entry = self._disk(cast(SetBootParams, params).disk).serial
                return SetBoot(entry="0003")
            case "rescue":
                return self._rescue(params)
        raise Failing("unknown-task", f"no such task: {kind}")

    def _test(self, params: TestParams) -> TestResult:
        return self.machine.tests.get(params.name, TestResult(f"{params.name}: nothing wrong", True))

    def _disk(self, ref: DiskRef) -> Disk:
        found = [one for one in self.machine.disks if one.agrees(ref)]
        if len(found) != 1 or found[0].shared:
            raise Failing("disk-not-found", f"{len(found)} disks are {ref.serial}")
        return found[0]

    def _erase(self, params: EraseParams) -> EraseResult:
        planned = {one.disk.serial for one in params.drives}
        unplanned = [one.serial or one.name for one in self.machine.disks if one.serial not in planned]
        return EraseResult(tuple(self._drive(params.phase, one) for one in params.drives), tuple(unplanned))

    def _drive(self, phase: str, wanted: EraseDrive) -> DriveOutcome:
        found = [one for one in self.machine.disks if one.agrees(wanted.disk)]
        serial = wanted.disk.serial
        if len(found) != 1:
            return DriveOutcome(serial, "ambiguous" if found else "missing")
        disk, pattern = found[0], base64.b64decode(wanted.pattern)
        if disk.shared:
            return DriveOutcome(serial, "shared")
        offers = tuple(one for one in wanted.methods if one in disk.offers)
        if phase == "inspect":
            return DriveOutcome(serial, "done", offers=cast(Any, disk.offers))
        if phase == "erase":
            if not offers:
                return DriveOutcome(serial, "unsupported")
            disk.erase()
            return DriveOutcome(serial, "done", method=offers[0], standard="NIST SP 800-88r2 purge", drive_log="done")
        if phase == "plant":
            for at in wanted.sectors:
                disk.write(at, pattern)
        samples = (disk.read(at, BLOCK) for at in wanted.sectors)
        told = tuple("zero" if not any(one) else hashlib.sha256(one).hexdigest() for one in samples)
        return DriveOutcome(serial, "done", samples=told)

    async def _write_image(self, line: Line, params: WriteImageParams) -> WroteImage | None:
        disk = self._disk(params.disk)
        answer = await self.call(line, "GET", wire_tasks.IMAGE_PATH)
        if answer is None:
            return None
        image = answer.raw
        if (hashlib.sha256(image).hexdigest(), len(image)) != (params.sha256, params.size_bytes):
            raise Failing("image-checksum", "the image is another one than was said")
        disk.write(0, image)
        back = hashlib.sha256(disk.read(0, len(image))).hexdigest()
        return WroteImage(disk.name, len(image), len(image), params.sha256, back, 1000)

    def _write_config_drive(self, params: WriteConfigDriveParams) -> WroteConfigDrive:
        disk = self._disk(params.disk)
        iso = gzip.decompress(base64.b64decode(params.iso))
        if hashlib.sha256(iso).hexdigest() != params.sha256:
            raise Failing("config-drive", "the config drive is another one than was said")
        offset = (disk.size_bytes - len(iso)) // BLOCK * BLOCK - BLOCK * 16
        disk.write(offset, iso)
        disk.config_drive = iso
        return WroteConfigDrive(partition=4, offset_bytes=offset)

    def _rescue(self, params: RescueParams) -> RescueReady:
        self.machine.rescued_with = wire.to_doc(params)
        return RescueReady((self.machine.address,), 22, params.user, ("ssh-ed25519 AAAAC3Nz",), ("SHA256:abc",))
