"""One server for many BMCs: a listening socket for each, one pool of threads for all. A thousand BMCs in a process.

The address that was dialled says which BMC is meant. A listener of a hall is used as one of `serve.Listener`.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from cheroot import connections
from cheroot.makefile import MakeFile
from cheroot.ssl import Adapter

from bcmetal_drivers.emulated.serve import (
    CONNECTION,
    HttpServer,
    Tls,
    WsgiApp,
    free_port,
    serving,
    tls_file,
)

THREADS: Final = 16
BACKLOG: Final = 64
EXPIRES_EVERY_S: Final = 0.25  # also how long a stop may take

Where = tuple[str, int]


def _where(sock: socket.socket) -> Where:
    name = sock.getsockname()
    return name[0], name[1]


class _Doorman(connections.ConnectionManager):
    """Accepts on every listening socket of the hall; cheroot's own accepts on one."""

    _selector: Any  # these are cheroot's, whose stubs leave them out
    _stop_requested: bool
    _expire: Callable[..., None]
    _from_server_socket: Callable[[socket.socket], Any]
    _remove_invalid_sockets: Callable[[], None]

    def __init__(self, server: HttpServer) -> None:
        super().__init__(server)
        self.listening: dict[int, socket.socket] = {}

    def listen(self, sock: socket.socket) -> None:
        self.listening[sock.fileno()] = sock
        self._selector.register(sock.fileno(), selectors.EVENT_READ, data=self.server)

    def leave(self, sock: socket.socket) -> None:
        if self.listening.pop(sock.fileno(), None) is not None:
            self._selector.unregister(sock.fileno())

    def _run(self, expiration_interval: float) -> None:
        checked = time.time()
        while not self._stop_requested:
            try:
                ready = list(self._selector.select(timeout=expiration_interval))
            except OSError:
                self._remove_invalid_sockets()
                continue
            for number, line in ready:
                if line is self.server:
                    accepted = self._accepted(number)
                else:
                    self._selector.unregister(number)
                    accepted = line
                if accepted is not None:
                    self.server.process_conn(accepted)
            now = time.time()
            if now - checked > expiration_interval:
                self._expire(threshold=now - self.server.timeout)
                checked = now

    def _accepted(self, number: int) -> Any:
        sock = self.listening.get(number, self.server.socket)
        with contextlib.suppress(OSError):  # it may have been closed meanwhile
            return self._from_server_socket(sock)
        return None


class _EachItsOwn(Adapter):
    """TLS by the certificate of the BMC that was dialled."""

    def __init__(self, listeners: dict[Where, HallListener]) -> None:
        self._listeners = listeners

    def bind(self, sock: socket.socket) -> socket.socket:
        return sock

    def wrap(self, sock: socket.socket) -> tuple[socket.socket, dict[str, str]]:
        found = self._listeners.get(_where(sock))
        tls = None if found is None else found.tls()
        return (sock, {}) if tls is None else tls.wrap(sock)

    def get_environ(self) -> dict[str, str]:
        return {}

    def makefile(self, sock: socket.socket, mode: str = "r", bufsize: int = -1) -> Any:
        if isinstance(sock, ssl.SSLSocket):
            return tls_file(sock, mode, bufsize)
        return MakeFile(sock, mode, bufsize)


class Hall:
    """Runs while it has a listener."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._listeners: dict[Where, HallListener] = {}
        self._lock = threading.Lock()
        self._server: HttpServer | None = None
        self._serving: threading.Thread | None = None

    def listener(
        self, host: str, port: int, app: WsgiApp, certificate: Path | None, name: str, *, old_tls: bool = False
    ) -> HallListener:
        return HallListener(self, host, port, app, certificate, old_tls=old_tls)

    def open(self, listener: HallListener) -> socket.socket:
        with self._lock:
            server = self._running()
            family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
            sock = socket.create_server((listener.host, listener.port), family=family, backlog=BACKLOG)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._listeners[_where(sock)] = listener
            _doorman(server).listen(sock)
            return sock

    def shut(self, listener: HallListener, sock: socket.socket) -> None:
        with self._lock:
            server = self._server
            self._listeners.pop(_where(sock), None)
            if server is not None:
                _doorman(server).leave(sock)
                server.shut_lines((listener.host, listener.port))
            sock.close()
            if not self._listeners and server is not None:
                server.stop()
                if self._serving is not None:
                    self._serving.join(timeout=10)
                self._server = self._serving = None

    def _running(self) -> HttpServer:
        if self._server is None:
            self._server = serving("127.0.0.1", 0, self._app, self._threads)
            self._server.expiration_interval = EXPIRES_EVERY_S
            self._server.ssl_adapter = _EachItsOwn(self._listeners)
            self._server.connections_made_by = _Doorman
            self._server.prepare()
            self._serving = threading.Thread(target=self._server.serve, name="redfish hall", daemon=True)
            self._serving.start()
        return self._server

    def _app(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        found = self._listeners.get(_where(environ[CONNECTION].socket))
        if found is None:
            start_response("404 Not Found", [("Content-Length", "0")])
            return []
        return found.app(environ, start_response)


def _doorman(server: HttpServer) -> _Doorman:
    made = server.connections
    assert isinstance(made, _Doorman)  # see `HttpServer.prepare`
    return made


class HallListener:
    """One address and port of a hall."""

    def __init__(
        self, hall: Hall, host: str, port: int, app: WsgiApp, certificate: Path | None, *, old_tls: bool
    ) -> None:
        self.host = host
        self.port = port
        self.app = app
        self._hall = hall
        self._certificate = certificate
        self._old_tls = old_tls
        self._tls: Tls | None = None
        self._sock: socket.socket | None = None

    def start(self) -> None:
        if self._sock is None:
            self.port = self.port or free_port(self.host)
            self._sock = self._hall.open(self)

    def stop(self) -> None:
        if self._sock is not None:
            self._hall.shut(self, self._sock)
            self._sock = None

    def tls(self) -> Tls | None:
        """Made at the first connection."""
        if self._tls is None and self._certificate is not None:
            self._tls = Tls(str(self._certificate), old=self._old_tls)
        return self._tls
