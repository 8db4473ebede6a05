"""A control plane for the agent to talk to: TLS on loopback, the messages of `wire`, certificates of the daemon's own CA module.

It keeps every byte that it was sent. `next_joins` and `next_renewals` say what becomes of the next calls; once they are
used up, each is admitted.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bcmetal.decisions import SECOND, Micros
from bcmetal.join import ca
from bcmetal_agent import wire

NODE_ID = "nd_0123456789abcdefghjkmnpqrs"
HEAD_LIMIT = 64 * 1024


@dataclass(frozen=True)
class Call:
    path: str
    authorization: str
    body: bytes
    peer: bytes | None  # the client's certificate, DER
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    method: str = ""


@dataclass(frozen=True)
class Answer:
    """`drop`: do what was asked, and break off instead of answering."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    drop: bool = False


Turn = Callable[["ControlPlane", Call], Answer]


class ControlPlane:
    """`shows`: the kind of certificate that its listeners have; `bundle`: the roots that it hands out, its own by default."""

    def __init__(self, folder: Path, *, shows: ca.IssuerKind = ca.IssuerKind.SERVER, life_s: int = 24 * 3600) -> None:
        began = micros(datetime.now(UTC) - timedelta(days=60))
        self.root = ca.make_root("Test", began)
        self.issuers = {kind: ca.make_issuer(kind, self.root, began) for kind in ca.IssuerKind}
        self.life_s = life_s
        self.issue_at: Callable[[], datetime] = _now
        self.said_time: Callable[[], datetime] = _now
        self.bundle: tuple[str, ...] = (self.root_pem,)
        self.received: list[bytes] = []
        self.calls: list[Call] = []
        self.next_joins: list[Turn] = []
        self.next_renewals: list[Turn] = []
        self.next_bundles: list[Turn] = []
        self.platform_secrets: dict[str, str] = {}
        self.admitted: dict[str, wire.Admitted] = {}  # by the SHA-256 of the request's DER
        self.renewed: dict[int, str] = {}  # serial → the request that renewed it
        self.cloned = False
        self.listens_at = "127.0.0.1"
        self._serial = 1000
        self._lock = threading.RLock()
        self._folder = folder
        self.use_certificate(shows)

    # ------------------------------------------------------------ life

    def __enter__(self) -> ControlPlane:
        self._ending = False
        self._doors = [socket.create_server((self.listens_at, 0)) for _ in range(2)]
        self.port, self.node_port = (door.getsockname()[1] for door in self._doors)
        self._threads: list[threading.Thread] = []
        for door, asks in zip(self._doors, (False, True), strict=True):
            self._start(self._accept, door, asks)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        for door in self._doors:
            with contextlib.suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            door.close()
        for thread in self._threads:
            thread.join(10)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def node_url(self) -> str:
        return f"https://127.0.0.1:{self.node_port}"

    @property
    def root_pem(self) -> str:
        return ca.pem_of([self.root.certificate])

    @property
    def pin(self) -> str:
        return ca.pin_of(self.root.certificate)

    @property
    def requests(self) -> list[bytes]:
        """The DER of the request in each join and renewal, in order."""
        kinds = {wire.JOIN_PATH: wire.Join, wire.RENEW_PATH: wire.Renew}
        return [csr_der(wire.decode(kinds[call.path], call.body).csr) for call in self.calls if call.path in kinds]

    def use_certificate(self, kind: ca.IssuerKind, names: tuple[str, ...] = ("127.0.0.1", "localhost")) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        now, days = micros(datetime.now(UTC)), 1
        if kind is ca.IssuerKind.SERVER:
            made = ca.issue_server_certificate(self.issuers[kind], key.public_key(), names, now, days, self._next())
        else:
            made = ca.issue_node_certificate(
                self.issuers[kind], key.public_key(), NODE_ID, "test.example", now, self._next()
            )
        self.use_files(made.chain, key)

    def use_files(self, chain: str, key: ec.EllipticCurvePrivateKey) -> None:
        file = self._folder / f"listener-{self._next()}.pem"
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        file.write_text(secret + chain)
        file.chmod(0o600)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(file)
        self._node_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._node_context.load_cert_chain(file)
        self._node_context.load_verify_locations(cadata=self.root_pem)
        self._node_context.verify_mode = ssl.CERT_REQUIRED

    # ------------------------------------------------------------ what it decides

    def admit(self, call: Call) -> Answer:
        """The stored answer for a request that is known, else a new certificate for its key."""
        csr = wire.decode(wire.Join, call.body).csr
        return Answer(200, wire.encode(self.admission(csr)))

    def admission(self, csr: str, kind: ca.IssuerKind = ca.IssuerKind.NODE) -> wire.Admitted:
        request = x509.load_pem_x509_csr(csr.encode())
        name = hashlib.sha256(csr_der(csr)).hexdigest()
        with self._lock:
            if name not in self.admitted:
                public = request.public_key()
                assert isinstance(public, ec.EllipticCurvePublicKey)
                at = self.issue_at()
                made = ca.issue_node_certificate(
                    self.issuers[kind], public, NODE_ID, "test.example", micros(at), self._next(), self.life_s
                )
                self.admitted[name] = wire.Admitted(
                    node_id=NODE_ID,
                    certificate=made.chain,
                    trust_bundle="".join(self.bundle),
                    renew_after=(at + timedelta(seconds=self.life_s / 2)).isoformat(),
                    server_time=self.said_time().isoformat(),
                )
            return self.admitted[name]

    def renew(self, call: Call) -> Answer:
        """As the daemon does: one request renews a serial, another key makes a clone of it."""
        message = wire.decode(wire.Renew, call.body)
        if message.expired is not None:
            old = x509.load_pem_x509_certificate(message.expired.certificate.encode())
            public = old.public_key()
            assert isinstance(public, ec.EllipticCurvePublicKey)
            signed = wire.renewal_statement(csr_der(message.csr))
            public.verify(_unbase64(message.expired.signature), signed, ec.ECDSA(SHA256()))
        elif call.peer is not None:
            old = x509.load_der_x509_certificate(call.peer)
        else:
            return refuse(401, "UNAUTHENTICATED", "no certificate")(self, call)
        name = hashlib.sha256(csr_der(message.csr)).hexdigest()
        with self._lock:
            if self.renewed.setdefault(old.serial_number, name) != name:
                self.cloned = True
                return refuse(403, "PERMISSION_DENIED", "refused")(self, call)
            return Answer(200, wire.encode(self.admission(message.csr)))

    def _answer(self, call: Call) -> Answer:
        with self._lock:
            self.calls.append(call)
        if call.path == wire.TRUST_BUNDLE_PATH:
            bundle = Answer(200, wire.encode(wire.TrustBundle(self.bundle)))
            return self._turn(self.next_bundles, call) or bundle
        if call.path == wire.JOIN_PATH:
            return self._turn(self.next_joins, call) or self.admit(call)
        if call.path == wire.RENEW_PATH:
            return self._turn(self.next_renewals, call) or self.renew(call)
        if call.path == wire.SECRETS_PATH and call.peer is not None:
            names = wire.decode(wire.AskSecrets, call.body).names
            found = {name: value for name, value in self.platform_secrets.items() if not names or name in names}
            return Answer(200, wire.encode(wire.Secrets(tuple(wire.Secret(*item) for item in found.items()))))
        return Answer(404, b"{}")

    def _turn(self, turns: list[Turn], call: Call) -> Answer | None:
        with self._lock:
            turn = turns.pop(0) if turns else None
        return turn(self, call) if turn else None

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    # ------------------------------------------------------------ HTTP, as little as there is

    def _start(self, what: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=what, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, door: socket.socket, asks: bool) -> None:
        while not self._ending:
            try:
                plain, _ = door.accept()
            except OSError:
                return
            self._start(self._serve, plain, asks)

    def _serve(self, plain: socket.socket, asks: bool) -> None:
        context = self._node_context if asks else self._context
        with plain, contextlib.suppress(OSError):
            plain.settimeout(5)
            with context.wrap_socket(plain, server_side=True) as door:
                call = self._read(door)
                if call is None:
                    return
                answer = self._answer(call)
                if answer.drop:
                    return
                headers = {"Content-Length": str(len(answer.body)), "Connection": "close", **dict(answer.headers)}
                head = [f"HTTP/1.1 {answer.status} x", *(f"{name}: {value}" for name, value in headers.items())]
                door.sendall("\r\n".join([*head, "", ""]).encode() + answer.body)

    def _read(self, door: ssl.SSLSocket) -> Call | None:
        raw = b""
        while b"\r\n\r\n" not in raw:
            more = door.recv(HEAD_LIMIT)
            if not more:
                return None
            self.received.append(more)
            raw += more
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            more = door.recv(HEAD_LIMIT)
            if not more:
                return None
            self.received.append(more)
            body += more
        peer = door.getpeercert(binary_form=True)
        return Call(first.split(" ")[1], headers.get("authorization", ""), body, peer, headers, first.split(" ")[0])


# ---------------------------------------------------------------- what may become of a call


def admit(plane: ControlPlane, call: Call) -> Answer:
    return plane.admit(call)


def defer(plane: ControlPlane, call: Call) -> Answer:
    return Answer(202, wire.encode(wire.Deferred("jr_" + "0" * 26, 7, plane.said_time().isoformat())))


def lose(turn: Turn) -> Turn:
    """It happens, and the answer is lost on the way."""

    def lost(plane: ControlPlane, call: Call) -> Answer:
        answer = turn(plane, call)
        return Answer(answer.status, answer.body, drop=True)

    return lost


def refuse(status: int, code: str, message: str) -> Turn:
    body = json.dumps({"error": {"code": code, "message": message, "traceId": "t"}}).encode()
    return lambda plane, call: Answer(status, body)


def say(status: int, body: bytes = b"", *headers: tuple[str, str]) -> Turn:
    return lambda plane, call: Answer(status, body, headers)


def csr_der(pem: str) -> bytes:
    return x509.load_pem_x509_csr(pem.encode()).public_bytes(Encoding.DER)


def a_token() -> str:
    """Made at run time, of the right shape."""
    return f"bcjt_jt_{secrets.token_hex(26)}.{secrets.token_urlsafe(32)}"


def _unbase64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _now() -> datetime:
    return datetime.now(UTC)


def a_root(name: str) -> str:
    """Another root, as PEM."""
    return ca.pem_of([ca.make_root(name, micros(_now())).certificate])


def micros(moment: datetime) -> Micros:
    return Micros(int(moment.timestamp()) * SECOND)
