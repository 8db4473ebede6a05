"""The listener over real HTTP and TLS: both of uvicorn's protocols, client certificates, and what the handshake refuses."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from api.site import POOL, TENANT, Site
from bcmetal.api.tls import CertifiedH11, CertifiedHttpTools, api_server, bound
from bcmetal.errors import StartRefused
from bcmetal.settings import Daemon

READY_WITHIN_S = 10


@dataclass(frozen=True, slots=True)
class Ca:
    """An authority, and certificates of its making, in PEM files."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        _write(self.folder / self.name, key, _certificate(self.name, key, self.name, key, ca=True))

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.crt"

    def sign(self, common_name: str) -> Path:
        """Certificate and key, beside each other; where the certificate is."""
        authority = serialization.load_pem_private_key((self.folder / f"{self.name}.key").read_bytes(), None)
        assert isinstance(authority, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        stem = self.folder / f"{self.name}-{common_name}"
        _write(stem, key, _certificate(common_name, key, self.name, authority, ca=False))
        return stem.with_suffix(".crt")


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, by: ec.EllipticCurvePrivateKey, ca: bool
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(by, hashes.SHA256())
    )


def _write(stem: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    stem.with_suffix(".crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    stem.with_suffix(".key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


@dataclass(slots=True)
class Listener:
    port: int
    server_ca: Ca
    clients: Ca

    def ask(
        self, who: Path | None = None, headers: dict[str, str] | None = None, minimum: ssl.TLSVersion | None = None
    ) -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=str(self.server_ca.file))
        if who is not None:
            context.load_cert_chain(who, who.with_suffix(".key"))
        if minimum is not None:
            context.maximum_version = minimum
        line = http.client.HTTPSConnection("localhost", self.port, context=context, timeout=10)
        try:
            body = json.dumps({"tenantId": TENANT, "poolId": POOL})
            line.request(
                "POST", "/api/compute/metal/list", body, {"Content-Type": "application/json", **(headers or {})}
            )
            with line.getresponse() as response:
                return response.status, json.loads(response.read())
        finally:
            line.close()


@contextlib.contextmanager
def _listening(site: Site, daemon: Daemon, protocol: type[asyncio.Protocol]) -> Iterator[int]:
    """The site's loop, in a thread, serves the API."""
    server, sockets = api_server(site.app, daemon, protocol)
    thread = threading.Thread(target=lambda: site.run(server.serve(sockets=sockets)))
    thread.start()
    try:
        ends = time.monotonic() + READY_WITHIN_S
        while not server.started and time.monotonic() < ends:
            time.sleep(0.01)
        assert server.started
        yield int(sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        for one in sockets:
            one.close()


@pytest.fixture(params=[CertifiedH11, CertifiedHttpTools], ids=["h11", "httptools"])
def listener(request: pytest.FixtureRequest, site: Site, tmp_path: Path) -> Iterator[Listener]:
    folder = tmp_path / "pki"
    folder.mkdir()
    server_ca, clients = Ca(folder, "server"), Ca(folder, "clients")
    certificate = server_ca.sign("localhost")
    daemon = Daemon(
        api_listen="127.0.0.1:0",
        tls_cert=certificate,
        tls_key=f"file:{certificate.with_suffix('.key')}",
        client_ca=clients.file,
    )
    with _listening(site, daemon, request.param) as port:
        yield Listener(port, server_ca, clients)


def test_a_key_is_taken_over_tls(site: Site, listener: Listener) -> None:
    status, answer = listener.ask(headers={"Authorization": f"Bearer {site.keys['reader']}"})
    assert (status, answer["nodes"]) == (200, [])
    assert listener.ask()[0] == 401


def test_a_certificate_of_the_admins_ca_is_an_identity(listener: Listener) -> None:
    assert listener.ask(listener.clients.sign("admin"))[0] == 200
    assert listener.ask(listener.clients.sign("stranger"))[0] == 404
    assert listener.ask(listener.clients.sign("nobody-listed"))[0] == 401


def test_no_header_stands_for_a_certificate(listener: Listener) -> None:
    named = {"X-Client-Cert": "admin", "X-SSL-Client-CN": "admin", "bcmetal.client_common_name": "admin"}
    assert listener.ask(headers=named)[0] == 401


def test_a_certificate_of_another_ca_ends_the_handshake(listener: Listener) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
        listener.ask(listener.server_ca.sign("admin"))


def test_a_tls_that_is_too_old_is_refused(listener: Listener) -> None:
    with pytest.warns(DeprecationWarning, match="TLSv1_1"), pytest.raises((ssl.SSLError, ConnectionError)):
        listener.ask(minimum=ssl.TLSVersion.TLSv1_1)


def test_what_cannot_be_served_is_refused_at_the_start(site: Site, tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="tls_cert"):
        api_server(site.app, Daemon(api_listen="127.0.0.1:0"))
    missing = Daemon(api_listen="127.0.0.1:0", tls_cert=tmp_path / "no.crt", tls_key=f"file:{tmp_path / 'no.key'}")
    with pytest.raises(StartRefused, match="certificate"):
        api_server(site.app, missing)
    taken = bound("127.0.0.1:0")
    taken.listen()
    try:
        with pytest.raises(StartRefused, match="cannot be listened at"):
            bound(f"127.0.0.1:{taken.getsockname()[1]}")
    finally:
        taken.close()
