"""The daemon's side of the ramdisk's session, as little as there is of it: one token, one key, one task after the other."""

from __future__ import annotations

import base64
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bcmetal_agent import boot_token, wire, wire_tasks
from fake_control_plane import Answer, Call, ControlPlane

REFUSED = json.dumps({"error": {"code": "UNAUTHENTICATED", "message": "the boot token has ended"}}).encode()


def a_token() -> str:
    return f"bcbt_{'0a' * 13}.{secrets.token_urlsafe(32)}"


def a_task(kind: str, params: Mapping[str, Any] | None = None, task_id: str = "") -> dict[str, Any]:
    return {"taskId": task_id or f"at_{secrets.token_hex(8)}", "kind": kind, "params": params or {}, "status": "task"}


@dataclass
class Told:
    """What was heard of one task."""

    states: list[str] = field(default_factory=list)
    log: str = ""
    last: wire_tasks.Report | None = None


class Door(ControlPlane):
    """`tasks`: handed out in order, each until its end is heard. `faults`: turns for the next calls of a path."""

    def __init__(self, folder: Path, token: str) -> None:
        super().__init__(folder)
        self.token = token
        self.key: Ed25519PublicKey | None = None
        self.session_id = f"as_{secrets.token_hex(8)}"
        self.number = 0
        self.tasks: list[dict[str, Any]] = []
        self.told: dict[str, Told] = {}
        self.hellos: list[wire_tasks.Hello] = []
        self.go_on = True
        self.image = b""
        self.server_time: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.faults: dict[str, list[Callable[[Call], Answer | None]]] = {}
        self.changed = threading.Condition()
        self.token_ended = False

    def __enter__(self) -> Door:
        super().__enter__()
        return self

    def site_file(self, folder: Path) -> Path:
        path = folder / "site.json"
        path.write_text(json.dumps({"agentUrl": self.url, "caPem": self.root_pem, "site": "test"}))
        return path

    def token_file(self, folder: Path) -> Path:
        path = folder / "boot-token"
        path.write_bytes(boot_token.render(self.token))
        return path

    def wait_for(self, true: Callable[[], bool], within_s: float = 20) -> None:
        """Also for what is no call: looked at a few times a second."""
        end = time.monotonic() + within_s
        with self.changed:
            while not true():
                assert time.monotonic() < end, (self.told, [call.path for call in self.calls])
                self.changed.wait(0.1)

    def ended(self, task_id: str) -> bool:
        return self.told.get(task_id, Told()).states[-1:] in (["done"], ["failed"])

    def _answer(self, call: Call) -> Answer:
        with self.changed:
            self.calls.append(call)
            self.changed.notify_all()
            faults = self.faults.get(call.path, [])
            answer = faults.pop(0)(call) if faults else None
            if answer is None:
                answer = self._hello(call) if call.path == wire_tasks.HELLO_PATH else self._signed(call)
            self.changed.notify_all()
            return answer

    def _hello(self, call: Call) -> Answer:
        hello = wire.decode(wire_tasks.Hello, call.body)
        self.hellos.append(hello)
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(hello.public_key, validate=True))
        known = self.key is None or _raw(self.key) == _raw(key)
        if call.authorization != f"Bearer {self.token}" or self.token_ended or not known:
            return Answer(401, REFUSED)
        self.key = key
        return Answer(200, wire.encode(wire_tasks.Welcome(self.session_id, self.server_time().isoformat())))

    def _signed(self, call: Call) -> Answer:
        number = int(call.headers.get(wire_tasks.SEQUENCE_HEADER.lower(), "0"))
        if self.key is None or self.token_ended or number <= self.number:
            return Answer(401, REFUSED)
        signed = wire_tasks.statement(call.method, call.path, self.session_id, number, call.body)
        self.key.verify(base64.b64decode(call.headers[wire_tasks.SIGNATURE_HEADER.lower()]), signed)
        assert call.headers[wire_tasks.SESSION_HEADER.lower()] == self.session_id
        self.number = number
        if call.path == wire_tasks.NEXT_PATH:
            waiting = [task for task in self.tasks if not self.ended(task["taskId"])]
            return Answer(200, json.dumps(waiting[0] if waiting else {"status": "idle", "afterS": 0}).encode())
        if call.path == wire_tasks.REPORT_PATH:
            return self._report(wire.decode(wire_tasks.Report, call.body, wire_tasks.REPORT_LIMIT))
        return self._part(call)

    def _report(self, report: wire_tasks.Report) -> Answer:
        told = self.told.setdefault(report.task_id, Told())
        told.states.append(report.state)
        told.last = report
        if report.log is not None:
            assert report.log_offset <= len(told.log), "a part of the log is missing"
            told.log = told.log[: report.log_offset] + report.log
        return Answer(200, wire.encode(wire_tasks.Heard(self.go_on)))

    def _part(self, call: Call) -> Answer:
        found = re.fullmatch(r"bytes=(\d+)-", call.headers.get("range", ""))
        assert found is not None
        at, size = int(found.group(1)), len(self.image)
        if at >= size:
            return Answer(416, b"", (("Content-Range", f"bytes */{size}"),))
        return Answer(206, self.image[at:], (("Content-Range", f"bytes {at}-{size - 1}/{size}"),))


def _raw(key: Ed25519PublicKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)
