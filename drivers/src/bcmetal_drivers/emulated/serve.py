"""HTTP as the rack's BMCs speak it: cheroot with TLS, kept-alive lines, and lines that are reset on demand."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ipaddress
import os
import socket
import ssl
import struct
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cheroot import errors, server, wsgi
from cheroot.makefile import StreamReader, StreamWriter
from cheroot.ssl import Adapter
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CONNECTION: Final = "bcmetal.connection"
REQUEST: Final = "bcmetal.request"
THREADS: Final = 4
OTHER_NAME: Final = "192.0.2.1"  # TEST-NET-1: nobody's
WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Dropped(errors.FatalSSLAlert):
    """The connection is to be reset, with no answer. cheroot ends a connection in silence for this class of error."""


class _Connection(server.HTTPConnection):
    reset = False
    requests = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server.opened(self)

    def close(self) -> None:
        self.server.closed(self)
        if self.reset:
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.rfile.close()
            self.socket.close()
        else:
            super().close()
        with contextlib.suppress(OSError):
            self.wfile.close()  # else what is left in its buffer is sent, in vain, when it is collected

    def shut(self) -> None:
        """Wake whoever reads or writes; below TLS, whose handshake may not be over."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class _Gateway(wsgi.Gateway_10):
    def get_environ(self) -> dict[str, Any]:  # type: ignore[override]  # cheroot's stubs say None
        environ: dict[str, Any] = super().get_environ()  # type: ignore[no-untyped-call]  # cheroot has no types there
        self.req.conn.requests += 1
        environ[CONNECTION] = self.req.conn
        environ[REQUEST] = self.req
        return environ


class Tls(Adapter):
    """The handshake is left to the thread that reads: a client that stops in it holds up nobody else."""

    def __init__(self, certificate: str, *, old: bool = False) -> None:
        super().__init__(certificate, certificate)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if old:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # which is the point
                self.context.minimum_version = ssl.TLSVersion.TLSv1
                self.context.maximum_version = ssl.TLSVersion.TLSv1_1
            self.context.set_ciphers("ALL:@SECLEVEL=0")
        self.context.load_cert_chain(certificate)

    def bind(self, sock: socket.socket) -> socket.socket:
        return sock

    def wrap(self, sock: socket.socket) -> tuple[ssl.SSLSocket, dict[str, str]]:
        wrapped = self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return wrapped, self.get_environ()

    def get_environ(self) -> dict[str, str]:
        return {"wsgi.url_scheme": "https", "HTTPS": "on"}

    def makefile(self, sock: ssl.SSLSocket, mode: str = "r", bufsize: int = -1) -> Any:
        return tls_file(sock, mode, bufsize)


def tls_file(sock: ssl.SSLSocket, mode: str, bufsize: int) -> Any:
    return (StreamReader if "r" in mode else StreamWriter)(sock, mode, bufsize)


class HttpServer(wsgi.Server):
    connections_made_by: Callable[[HttpServer], Any] | None = None  # cheroot's own when None
    _connections: Any  # cheroot's, whose stubs leave it out

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lines: set[_Connection] = set()
        self._lock = threading.Lock()

    def opened(self, line: _Connection) -> None:
        with self._lock:
            self._lines.add(line)

    def closed(self, line: _Connection) -> None:
        with self._lock:
            self._lines.discard(line)

    def shut_lines(self, where: tuple[str, int] | None = None) -> None:
        """Those to that address and port, or all."""
        with self._lock:
            for line in self._lines:
                with contextlib.suppress(OSError):
                    if where is None or line.socket.getsockname()[:2] == where:
                        line.shut()

    def prepare(self) -> None:
        super().prepare()
        if self.connections_made_by is not None:
            self._connections.close()
            self._connections = self.connections_made_by(self)

    @property
    def connections(self) -> Any:
        """What accepts and keeps them; there once prepared."""
        return self._connections

    def error_log(self, msg: str = "", level: int = 20, traceback: bool = False) -> None:
        """Clients that vanish are everyday; nothing is printed."""


def free_port(host: str) -> int:
    """cheroot lets an address be taken again soon (SO_REUSEADDR) only where the port was named, and a restart needs that."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def serving(host: str, port: int, app: WsgiApp, threads: int) -> HttpServer:
    """Not yet prepared."""
    made = HttpServer((host, port), app, numthreads=threads, server_name=host, timeout=30, request_queue_size=128)
    made.gateway = _Gateway
    made.ConnectionClass = _Connection
    made.keep_alive_conn_limit = 4096
    made.expiration_interval = 0.05  # also how long a stop may take
    made.nodelay = True
    return made


class Listener:
    """One address and port. Port 0 takes a free one at the first start, kept in `port` from then on."""

    def __init__(
        self, host: str, port: int, app: WsgiApp, certificate: Path | None, name: str, *, old_tls: bool = False
    ) -> None:
        self.host = host
        self.port = port
        self._app = app
        self._certificate = certificate
        self._name = name
        self._old_tls = old_tls
        self._server: HttpServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self.port = self.port or free_port(self.host)
        made = serving(self.host, self.port, self._app, THREADS)
        if self._certificate is not None:
            made.ssl_adapter = Tls(str(self._certificate), old=self._old_tls)
        made.prepare()
        self._server = made
        self._thread = threading.Thread(target=made.serve, name=f"redfish {self._name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._server is None or self._thread is None:
            return
        self._server.shut_lines()
        self._server.stop()
        self._thread.join(timeout=10)
        self._server = self._thread = None


def drop(environ: dict[str, Any]) -> Dropped:
    """The error to raise for this request's connection to be reset."""
    connection = environ.get(CONNECTION)
    if connection is not None:
        connection.reset = True
    return Dropped("reset on demand")


def hang_up(environ: Mapping[str, Any], payload: bytes) -> Iterator[bytes]:
    """The answer's body; then the line is closed, which its headers did not announce."""
    yield payload
    environ[REQUEST].close_connection = True


def requests_on_this_line(environ: dict[str, Any]) -> int:
    return int(environ[CONNECTION].requests)


def certificate(path: Path, host: str, name: str, form: str = "") -> None:
    """Write a new key and self-signed certificate there, 0600, if there is none. `form`: "expired", "other-name"."""
    if path.exists():
        return
    named = OTHER_NAME if form == "other-name" else host
    days = (-30, -1) if form == "expired" else (-1, 3650)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(named))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
        f.write(private + made.public_bytes(serialization.Encoding.PEM))


def certificate_pem(path: Path) -> str:
    text = path.read_text()
    return text[text.index("-----BEGIN CERTIFICATE-----") :]


def fingerprint(path: Path) -> str:
    """SHA-256 of the leaf's DER."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate_pem(path))).hexdigest()
