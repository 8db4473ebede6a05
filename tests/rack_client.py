"""A plain Redfish client for the rack's tests: http.client, no driver of ours."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bcmetal_drivers.emulated.rack import EmulatedBmc

SYSTEM = "/redfish/v1/Systems/1"
SESSIONS = "/redfish/v1/SessionService/Sessions"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
CD = f"{SYSTEM}/VirtualMedia/Cd"
INSERT = f"{CD}/Actions/VirtualMedia.InsertMedia"
EJECT = f"{CD}/Actions/VirtualMedia.EjectMedia"


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def doc(self) -> Any:
        return json.loads(self.raw)


class Client:
    """One kept-alive line to one BMC; Basic until `login`."""

    def __init__(self, bmc: EmulatedBmc) -> None:
        self.bmc = bmc
        self.token: str | None = None
        self.session: str | None = None
        if bmc.setup.tls:
            context = ssl.create_default_context(cadata=bmc.ca_pem)
            self.line: http.client.HTTPConnection = http.client.HTTPSConnection(
                bmc.host, bmc.port, timeout=10, context=context
            )
        else:
            self.line = http.client.HTTPConnection(bmc.host, bmc.port, timeout=10)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        if self.token:
            sent["X-Auth-Token"] = self.token
        elif "Authorization" not in sent and (method, path) != ("POST", SESSIONS):
            sent["Authorization"] = basic(self.bmc.username, self.bmc.password.get_secret_value())
        self.line.request(method, path, data, sent)
        with self.line.getresponse() as response:
            return Reply(response.status, dict(response.getheaders()), response.read())

    def get(self, path: str = SYSTEM, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: object = None, **headers: str) -> Reply:
        return self.ask("POST", path, {} if body is None else body, **headers)

    def patch(self, path: str, body: object, **headers: str) -> Reply:
        return self.ask("PATCH", path, body, **headers)

    def login(self, password: str | None = None) -> Reply:
        secret = self.bmc.password.get_secret_value() if password is None else password
        reply = self.ask("POST", SESSIONS, {"UserName": self.bmc.username, "Password": secret})
        if reply.status == 201:
            self.token, self.session = reply.headers["X-Auth-Token"], reply.headers["Location"]
        return reply

    def logout(self) -> Reply:
        assert self.session is not None
        reply = self.ask("DELETE", self.session)
        self.token = self.session = None
        return reply

    def reset(self, kind: str) -> Reply:
        return self.post(RESET, {"ResetType": kind})

    def boot_from(self, target: str, enabled: str = "Once") -> Reply:
        boot = {"BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": enabled}
        return self.patch(SYSTEM, {"Boot": boot})


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


@contextmanager
def dialling(bmc: EmulatedBmc) -> Iterator[Client]:
    client = Client(bmc)
    try:
        yield client
    finally:
        client.line.close()


@dataclass
class MediaServer:
    url: str
    body: bytes
    clients: list[str]


@contextmanager
def a_media_server(body: bytes = b"an ISO image" * 5000, tls: ssl.SSLContext | None = None) -> Iterator[MediaServer]:
    """Serves `body` at every path but /absent.iso, and notes who asked."""
    clients: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            clients.append(self.client_address[0])
            self.send_response(404 if self.path == "/absent.iso" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        scheme = "https" if tls else "http"
        yield MediaServer(f"{scheme}://127.0.0.1:{server.server_port}/{'a' * 8}.iso", body, clients)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
