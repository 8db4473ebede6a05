"""A Redfish BMC on a bare socket, for what no honest server does: each answer is bytes, silence or a reset, as the test says."""

from __future__ import annotations

import datetime
import ipaddress
import json
import secrets
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust, TrustKind
from bcmetal_drivers.door import Door

SESSIONS = "/redfish/v1/SessionService/Sessions"


class Reset(Exception):
    """The connection is reset instead of an answer."""


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int


Script = Callable[[Asked], Iterable[bytes]]


def answer(doc: Any = None, status: int = 200, **headers: str) -> bytes:
    body = doc if isinstance(doc, bytes) else b"" if doc is None else json.dumps(doc).encode()
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def error(message_id: str, message: str = "", status: int = 400, **headers: str) -> bytes:
    entry = {"MessageId": message_id, "Message": message}
    return answer({"error": {"code": "Base.1.0.GeneralError", "@Message.ExtendedInfo": [entry]}}, status, **headers)


@dataclass
class RawBmc:
    """Serves a login and a logout by itself unless the script does (by answering them with something)."""

    script: Script
    tls: ssl.SSLContext | None = None
    logs_in: bool = True
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    tokens: int = 0
    port: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _open: list[socket.socket] = field(default_factory=list)

    def seen(self, method: str, path: str = "") -> list[Asked]:
        return [asked for asked in self.asked if asked.method == method and path in asked.path]

    @property
    def effects(self) -> list[Asked]:
        """Writes other than logins and logouts."""
        return [asked for asked in self.asked if asked.method != "GET" and not asked.path.startswith(SESSIONS)]

    def serve(self, listener: socket.socket) -> None:
        while not self.stopping.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(sock)
            thread = threading.Thread(target=self._talk, args=(sock, self.connections), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _talk(self, sock: socket.socket, connection: int) -> None:
        with sock:
            try:
                if self.tls is not None:
                    with self.tls.wrap_socket(sock, server_side=True) as secure:
                        self._requests(secure, connection)
                else:
                    self._requests(sock, connection)
            except Reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                return  # the client went away, as some tests want

    def _requests(self, sock: socket.socket, connection: int) -> None:
        with sock.makefile("rb") as reader:
            while (first := reader.readline()).strip():
                if not first.endswith(b"HTTP/1.1\r\n"):
                    sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                    return
                method, path, _ = first.decode().split()
                headers = {}
                while (line := reader.readline().decode("latin-1").strip()) != "":
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                asked = Asked(method, path, headers, reader.read(int(headers.get("content-length", "0"))), connection)
                self.asked.append(asked)
                for chunk in self._answer(asked):
                    sock.sendall(chunk)

    def _answer(self, asked: Asked) -> Iterable[bytes]:
        if self.logs_in and asked.method == "POST" and asked.path == SESSIONS:
            self.tokens += 1
            return [
                answer(
                    {},
                    201,
                    X_Auth_Token=f"token-{self.tokens}",
                    Location=f"{SESSIONS}/{self.tokens}",
                )
            ]
        if self.logs_in and asked.method == "DELETE" and asked.path.startswith(SESSIONS):
            return [answer(None, 204)]
        return self.script(asked)

    def stop(self) -> None:
        self.stopping.set()
        for sock in self._open:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed already
        for thread in self._threads:
            thread.join(timeout=5)


@contextmanager
def a_raw_bmc(script: Script, tls: ssl.SSLContext | None = None, logs_in: bool = True) -> Iterator[RawBmc]:
    bmc = RawBmc(script, tls, logs_in)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        bmc.port = listener.getsockname()[1]
        thread = threading.Thread(target=bmc.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield bmc
        finally:
            bmc.stopping.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=5)  # nothing is accepted any more: what `stop` ends is all there is
            bmc.stop()


def documents(docs: dict[str, Any]) -> Script:
    """A script that serves these documents, and 404 for all else."""

    def script(asked: Asked) -> Iterable[bytes]:
        doc = docs.get(asked.path)
        return [answer(doc) if doc is not None else error("Base.1.0.ResourceMissingAtURI", status=404)]

    return script


# ---------------------------------------------------------------- certificates


@dataclass(frozen=True)
class Certificate:
    context: ssl.SSLContext
    pem: str
    fingerprint: str


def a_certificate(folder: Path, host: str = "127.0.0.1", valid_days: tuple[int, int] = (-1, 30)) -> Certificate:
    """Self-signed, for that address, valid from and to so many days from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "raw bmc")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=valid_days[0]))
        .not_valid_after(now + datetime.timedelta(days=valid_days[1]))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both = folder / f"{made.serial_number}.pem"
    both.write_bytes(private + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return Certificate(context, pem.decode(), made.fingerprint(hashes.SHA256()).hex())


# ---------------------------------------------------------------- a door to it

LIMITS = Limits(connect_s=2, read_s=2, total_s=5)
ROOT = "/redfish/v1/"
SYSTEM = "/redfish/v1/Systems/1"
DOCS: dict[str, Any] = {
    ROOT: {"RedfishVersion": "1.6.0", "Links": {"Sessions": {"@odata.id": SESSIONS}}},
    SYSTEM: {"Id": "1", "PowerState": "On"},
}
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"


def a_credential() -> Credential:
    return Credential("admin", SecretStr(secrets.token_hex(12)))


@contextmanager
def a_door(
    bmc: RawBmc, limits: Limits = LIMITS, trust: Trust | None = None, credential: Credential | None = None
) -> Iterator[Door]:
    scheme = "redfish" if bmc.tls else "redfish+http"
    address = BmcAddress(scheme, "127.0.0.1", bmc.port)
    door = Door(address, credential or a_credential(), trust or Trust(TrustKind.NONE), limits)
    try:
        yield door
    finally:
        door.close()


def get(door: Door, path: str = SYSTEM) -> dict[str, Any]:
    with door.call():
        return door.get(path).json()


def post(door: Door, path: str = RESET) -> None:
    with door.call():
        door.post(path, data={"ResetType": "ForceRestart"})


def at(path: str, *answers: Iterable[bytes] | type[Reset]) -> Script:
    """`path` is answered with these in turn, the last one for ever; all else from DOCS."""
    queue = list(answers)
    others = documents(DOCS)

    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path != path:
            return others(asked)
        now = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(now, type):
            raise now
        return now

    return script
