"""TLS of the agents' listener and of the nodes': server certificates from our own issuer, and who is at the other end.

uvicorn hands the application no peer certificate: the protocol puts the one that this very connection proved into each scope. What a node
has open is known by its serial, so that it can be closed when the certificate is revoked.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from starlette.types import ASGIApp, Receive, Scope, Send

from bcmetal.decisions import Micros
from bcmetal.join.authority import Authority
from bcmetal.join.ca import SERIAL_BYTES, IssuerKind, issue_server_certificate, new_serial, serial_text
from bcmetal.patience import PatientHttpTools

PEER: Final = "bcmetal.peer_certificate"  # of the scope: DER, set here alone
SERVER_DAYS: Final = 30
_SERVER: Final = IssuerKind.SERVER


class Connections:
    """What nodes have open now, by the serial of the certificate that opened it."""

    def __init__(self) -> None:
        self._open: dict[str, set[asyncio.Transport]] = {}

    def serials(self) -> frozenset[str]:
        return frozenset(self._open)

    def add(self, serial: str, transport: asyncio.Transport) -> None:
        self._open.setdefault(serial, set()).add(transport)

    def remove(self, serial: str, transport: asyncio.Transport) -> None:
        found = self._open.get(serial)
        if found is not None:
            found.discard(transport)
            if not found:
                del self._open[serial]

    def close(self, serial: str) -> int:
        """Cut every connection of a certificate, in the midst of whatever it does; how many."""
        found = self._open.pop(serial, set())
        for transport in found:
            transport.abort()
        return len(found)


class _WithPeer:
    def __init__(self, app: ASGIApp, der: bytes) -> None:
        self._app = app
        self._der = der

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[PEER] = self._der
        await self._app(scope, receive, send)


def node_protocol(connections: Connections) -> type[PatientHttpTools]:
    """A protocol that knows its peer's certificate, and has its connection registered."""

    class NodeProtocol(PatientHttpTools):
        _serial: str | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
            super().connection_made(transport)
            tls = transport.get_extra_info("ssl_object")
            der = tls.getpeercert(binary_form=True) if tls is not None else None
            if not der:
                transport.abort()
                return
            self._serial = serial_text(x509.load_der_x509_certificate(der).serial_number)
            connections.add(self._serial, transport)
            self.app: Any = _WithPeer(self.app, der)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._serial is not None:
                connections.remove(self._serial, self.transport)
            super().connection_lost(exc)

    return NodeProtocol


class Listening:
    """The TLS contexts of both listeners, with a certificate of our own `server` issuer that is renewed in place."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self.agents = _context()
        self.nodes = _context()
        self.nodes.verify_mode = ssl.CERT_REQUIRED
        self._roots: set[str] = set()

    def refresh(self, authority: Authority, now: Micros) -> None:
        """A fresh certificate for new connections, and every root that is trusted now. Raises Unavailable."""
        key = ec.generate_private_key(ec.SECP256R1())
        serial = new_serial(authority.entropy(SERIAL_BYTES))
        issued = issue_server_certificate(
            authority.issuer(_SERVER), key.public_key(), self._names, now, SERVER_DAYS, serial
        )
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        for context in (self.agents, self.nodes):
            _load(context, issued.chain.encode(), pem)
        for root in authority.roots:
            if root not in self._roots:
                self.nodes.load_verify_locations(cadata=root)
                self._roots.add(root)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would bring back a certificate without asking for it again.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def _load(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Python reads a key from files only: this one lies in memory, under no name."""
    handle = os.memfd_create("bcmetal", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(chain + key)
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
