"""The Redfish driver on a recorded tree without a network: its own code, down to the line, which answers in process.

Thousands of trees in seconds, where a port and a connection for each would take minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPMessage
from typing import Any

from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust, TrustKind
from bcmetal_drivers.door import Door
from bcmetal_drivers.emulated.messages import Request
from bcmetal_drivers.emulated.recorded_front import RecordedService
from bcmetal_drivers.errors import Malformed
from bcmetal_drivers.redfish import RedfishBmc
from bcmetal_drivers.tcp import Deadline
from bcmetal_drivers.wire import BODY_LIMIT, Answer, Line, Upload

ADDRESS = BmcAddress("redfish+http", "recorded.invalid", 80)


class InProcessLine(Line):
    """In the place of one connection."""

    def __init__(self, service: RecordedService, limits: Limits) -> None:
        super().__init__(f"http://{ADDRESS.host}:{ADDRESS.port}", ADDRESS.host, ADDRESS.port, None, limits)
        self._service = service
        self._origin_shown = f"http://{ADDRESS.host}:{ADDRESS.port}"
        self._until = Deadline(0)

    def open(self, deadline: Deadline) -> bool:
        self._until = deadline
        return True

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | Upload | None) -> Answer:
        url = self._origin_shown + path
        self._until.left(1.0, url)
        self.sent = True
        where, _, query = path.partition("?")
        sent = body if isinstance(body, bytes) else b"".join(body.chunks()) if body is not None else b""
        environ: dict[str, Any] = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
        answer = self._service.answer(Request(method, where.rstrip("/") or "/", query, sent, environ))
        content = answer.payload()
        if len(content) > BODY_LIMIT:
            raise Malformed(f"{url}: the answer is longer than {BODY_LIMIT // 1024 // 1024} MiB")
        told = HTTPMessage()
        for name, value in {"Content-Type": answer.content_type, **answer.headers}.items():
            told[name] = value
        return Answer(answer.status, told, content, url)


@contextmanager
def driving(
    service: RecordedService,
    limits: Limits,
    system_path: str | None = None,
    learned: Mapping[str, object] | None = None,
) -> Iterator[RedfishBmc]:
    """The driver with a conversation of its own with this service."""
    credential = Credential(service.username, service.password)
    address = BmcAddress(ADDRESS.scheme, ADDRESS.host, ADDRESS.port, system_path)
    trust = Trust(TrustKind.NONE)
    door = Door(address, credential, trust, limits, line=InProcessLine(service, limits))
    bmc = RedfishBmc(address, credential, trust, limits, learned=learned, door=door)
    try:
        yield bmc
    finally:
        bmc.close()
