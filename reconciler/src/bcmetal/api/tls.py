"""The API's listener: TLS 1.2 or newer, and the client's certificate handed to the application by the connection itself."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn
from cryptography import x509
from cryptography.x509.oid import NameOID
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from bcmetal.api.auth import CERTIFICATE
from bcmetal.errors import StartRefused
from bcmetal.patience import AT_ONCE, HEADER_LIMIT, PatientHttpTools
from bcmetal.settings import Daemon, secret_path

IDLE_S: Final = 30


class _Certified:
    """Puts the common name of the connection's certificate into each scope; it was verified in the handshake, or there is none."""

    def __init__(self, app: ASGIApp, common_name: str) -> None:
        self._app = app
        self._common_name = common_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[CERTIFICATE] = self._common_name
        await self._app(scope, receive, send)


def common_name_of(transport: asyncio.BaseTransport) -> str | None:
    """None: no certificate was shown, or its subject has no single common name."""
    tls = transport.get_extra_info("ssl_object")
    der = tls.getpeercert(binary_form=True) if tls is not None else None
    if not der:
        return None
    names = x509.load_der_x509_certificate(der).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else None


class CertifiedH11(H11Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        common_name = common_name_of(transport)
        if common_name is not None:
            self.app: Any = _Certified(self.app, common_name)


class CertifiedHttpTools(PatientHttpTools):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        common_name = common_name_of(transport)
        if common_name is not None:
            self.app: Any = _Certified(self.app, common_name)


class ApiServer(uvicorn.Server):
    """Signals belong to the daemon: a listener that caught them would stop alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server_context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Raises StartRefused. With `client_ca` a client may show a certificate, and one of another CA ends the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise StartRefused(f"the API's certificate {certificate} or its key cannot be used: {error}") from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise StartRefused(f"the admins' CA {client_ca} cannot be used: {error}") from error
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def api_server(
    app: Any, daemon: Daemon, protocol: type[asyncio.Protocol] = CertifiedHttpTools
) -> tuple[uvicorn.Server, list[socket.socket]]:
    """The server and its bound socket, for `server.serve(sockets=…)`. Raises StartRefused."""
    if daemon.tls_cert is None or daemon.tls_key is None:
        raise StartRefused("the API needs TLS: set tls_cert and tls_key in [daemon], or run `bcmetal init`")
    context = server_context(daemon.tls_cert, secret_path(daemon.tls_key), daemon.client_ca)
    return ApiServer(server_config(app, protocol, context)), [bound(daemon.api_listen)]


def server_config(app: Any, protocol: type[asyncio.Protocol], context: ssl.SSLContext) -> uvicorn.Config:
    """What every TLS listener has in common."""
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,  # nobody's header says where a call comes from
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=3,
        limit_concurrency=AT_ONCE,
        h11_max_incomplete_event_size=HEADER_LIMIT,
        ssl_context_factory=lambda _config, _default: context,
    )


def bound(listen: str) -> socket.socket:
    """A bound socket for `HOST:PORT` or `[v6]:PORT`; `[::]` takes IPv4 too. Raises StartRefused."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6 and host == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, int(port)))
    except OSError as error:
        listener.close()
        raise StartRefused(f"{listen} cannot be listened at: {error.strerror}") from error
    return listener
