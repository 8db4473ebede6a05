"""OpenSSL judges the chains: what it takes, and what it refuses whatever a stolen key may sign."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID
from pydantic import SecretStr

from bcmetal.clock import SystemClock
from bcmetal.join.ca import Issued, Issuer, IssuerKind, make_root, pem_of
from bcmetal.join.root_file import export_root
from join.authority import NODE, TRUST, Site, a_key, a_serial, a_site

NOW = SystemClock().now()


@pytest.fixture(scope="module")
def site() -> Site:
    return a_site(NOW)


def openssl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["openssl", *words], capture_output=True, text=True, timeout=60, check=False)


def verify(
    tmp_path: Path, root: x509.Certificate, issuer: x509.Certificate, leaf: x509.Certificate, *words: str
) -> subprocess.CompletedProcess[str]:
    files = {}
    for name, certificate in (("root", root), ("issuer", issuer), ("leaf", leaf)):
        files[name] = tmp_path / f"{name}.pem"
        files[name].write_text(pem_of([certificate]))
    chain = ("-CAfile", str(files["root"]), "-untrusted", str(files["issuer"]))
    return openssl("verify", "-x509_strict", "-no-CApath", *chain, *words, str(files["leaf"]))


def text_of(tmp_path: Path, certificate: x509.Certificate) -> str:
    path = tmp_path / "shown.pem"
    path.write_text(pem_of([certificate]))
    return openssl("x509", "-in", str(path), "-noout", "-text").stdout


@pytest.mark.parametrize("kind", [IssuerKind.NODE, IssuerKind.NODE_TENANT])
@pytest.mark.parametrize("purpose", ["sslclient", "sslserver"])
def test_a_nodes_chain_verifies(site: Site, tmp_path: Path, kind: IssuerKind, purpose: str) -> None:
    leaf = site.node(kind, now=NOW).certificate
    done = verify(tmp_path, site.root.certificate, site.issuers[kind].certificate, leaf, "-purpose", purpose)
    assert done.returncode == 0, done.stderr


def test_a_servers_chain_verifies_for_its_names_and_no_others(site: Site, tmp_path: Path) -> None:
    leaf = site.server("join.site", "10.30.0.5", now=NOW).certificate
    above = (site.root.certificate, site.issuers[IssuerKind.SERVER].certificate)
    for good in (("-verify_hostname", "join.site"), ("-verify_ip", "10.30.0.5")):
        assert verify(tmp_path, *above, leaf, "-purpose", "sslserver", *good).returncode == 0
    for bad in (("-verify_hostname", "api.site"), ("-verify_ip", "10.30.0.6")):
        assert verify(tmp_path, *above, leaf, "-purpose", "sslserver", *bad).returncode != 0
    assert verify(tmp_path, *above, leaf, "-purpose", "sslclient").returncode != 0


def test_openssl_shows_what_a_nodes_certificate_says(site: Site, tmp_path: Path) -> None:
    shown = text_of(tmp_path, site.node(now=NOW).certificate)
    lines = [line.strip() for line in shown.splitlines()]
    assert lines[lines.index("X509v3 Subject Alternative Name: critical") + 1] == f"URI:spiffe://{TRUST}/node/{NODE}"
    assert lines[lines.index("X509v3 Basic Constraints: critical") + 1] == "CA:FALSE"
    assert lines[lines.index("X509v3 Key Usage: critical") + 1] == "Digital Signature"
    usages = lines[lines.index("X509v3 Extended Key Usage:") + 1]
    assert usages == "TLS Web Client Authentication, TLS Web Server Authentication"
    assert "Subject:" in lines


def test_openssl_shows_what_issuers_and_roots_say(site: Site, tmp_path: Path) -> None:
    root = text_of(tmp_path, site.root.certificate)
    assert "CA:TRUE, pathlen:1" in root
    for kind, issuer in site.issuers.items():
        shown = text_of(tmp_path, issuer.certificate)
        assert "CA:TRUE, pathlen:0" in shown
        assert "Certificate Sign, CRL Sign" in shown
        assert f"OU = bcmetal {kind}" in shown
        assert ("Name Constraints: critical" in shown) == (kind is not IssuerKind.SERVER)
        assert ("Client Authentication" in shown) == (kind is not IssuerKind.SERVER)


def signed_by(
    issuer: Issuer, name: x509.GeneralName, *, ca: bool = False
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """What whoever stole an issuer's key would sign."""
    key = a_key()
    above = issuer.certificate
    ski = above.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    usage = x509.KeyUsage(not ca, False, False, False, False, ca, ca, False, False)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "api.site")]))
        .issuer_name(above.subject)
        .public_key(key.public_key())
        .serial_number(a_serial())
        .not_valid_before(above.not_valid_before_utc)
        .not_valid_after(above.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.BasicConstraints(ca, None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ski), critical=False)
        .sign(issuer.key, hashes.SHA256())
    ), key


@pytest.mark.parametrize("kind", [IssuerKind.NODE, IssuerKind.NODE_TENANT])
@pytest.mark.parametrize("name", ["dns", "ipv4", "ipv6"])
def test_no_issuer_of_nodes_can_vouch_for_a_host(site: Site, tmp_path: Path, kind: IssuerKind, name: str) -> None:
    names: dict[str, x509.GeneralName] = {
        "dns": x509.DNSName("api.site"),
        "ipv4": x509.IPAddress(ipaddress.ip_address("10.30.0.5")),
        "ipv6": x509.IPAddress(ipaddress.ip_address("fd00::5")),
    }
    leaf, _ = signed_by(site.issuers[kind], names[name])
    refused = verify(tmp_path, site.root.certificate, site.issuers[kind].certificate, leaf)
    assert refused.returncode != 0
    assert "excluded subtree violation" in refused.stderr
    taken, _ = signed_by(site.issuers[IssuerKind.SERVER], names[name])
    assert verify(tmp_path, site.root.certificate, site.issuers[IssuerKind.SERVER].certificate, taken).returncode == 0


def test_nothing_below_an_issuer_can_issue(site: Site, tmp_path: Path) -> None:
    issuer = site.issuers[IssuerKind.SERVER]
    below, key = signed_by(issuer, x509.DNSName("x.site"), ca=True)
    leaf, _ = signed_by(Issuer(IssuerKind.SERVER, below, (issuer.certificate,), key), x509.DNSName("api.site"))
    (tmp_path / "both.pem").write_text(pem_of([below]))
    refused = verify(
        tmp_path, site.root.certificate, issuer.certificate, leaf, "-untrusted", str(tmp_path / "both.pem")
    )
    assert refused.returncode != 0
    assert "path length constraint exceeded" in refused.stderr


def test_a_chain_of_another_root_of_the_same_name_does_not_verify(site: Site, tmp_path: Path) -> None:
    other = make_root("lab", NOW)
    leaf = site.node(now=NOW).certificate
    assert verify(tmp_path, other.certificate, site.issuers[IssuerKind.NODE].certificate, leaf).returncode != 0


def test_openssl_opens_the_root_with_its_passphrase_only(site: Site, tmp_path: Path) -> None:
    passphrase = SecretStr(f"{a_serial():x}")
    file, word = tmp_path / "root.pem", tmp_path / "word"
    file.write_text(export_root(site.root, passphrase))
    word.write_text(passphrase.get_secret_value())
    opened = openssl("pkey", "-in", str(file), "-passin", f"file:{word}", "-pubout")
    assert opened.returncode == 0, opened.stderr
    of_certificate = openssl("x509", "-in", str(file), "-noout", "-pubkey")
    assert opened.stdout == of_certificate.stdout
    word.write_text(passphrase.get_secret_value() + "x")
    assert openssl("pkey", "-in", str(file), "-passin", f"file:{word}", "-pubout").returncode != 0
    key = tmp_path / "key.pem"
    key.write_text(file.read_text()[file.read_text().index("-----BEGIN ENCRYPTED") :])
    shown = openssl("asn1parse", "-in", str(key)).stdout
    assert ":scrypt" in shown
    assert ":aes-256-cbc" in shown


# ---------------------------------------------------------------- over TLS


def context(
    site: Site, tmp_path: Path, issued: Issued, key: ec.EllipticCurvePrivateKey, *, server: bool
) -> ssl.SSLContext:
    name = "server" if server else "client"
    (tmp_path / f"{name}.pem").write_text(issued.chain)
    (tmp_path / f"{name}.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_cert_chain(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
    made.load_verify_locations(cadata=pem_of([site.root.certificate]))
    return made


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> bytes:
    """What the server sees of the client's certificate; raises what the client's side raises."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)
    seen: list[bytes] = []

    def serve() -> None:
        raw, _ = listener.accept()
        raw.settimeout(20)
        try:
            with server.wrap_socket(raw, server_side=True) as tls:
                seen.append(tls.getpeercert(binary_form=True) or b"")
                tls.sendall(b"x")
        except (ssl.SSLError, ConnectionError):
            raw.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with (
            socket.create_connection(listener.getsockname(), timeout=20) as raw,
            client.wrap_socket(raw, server_hostname=host) as tls,
        ):
            assert tls.recv(1) == b"x"
    finally:
        thread.join(20)
        listener.close()
    return seen[0]


def test_a_node_and_a_server_meet_over_tls(site: Site, tmp_path: Path) -> None:
    keys = a_key(), a_key()
    node = site.node(now=NOW, key=keys[0].public_key())
    server = site.server("localhost", now=NOW, key=keys[1].public_key())
    seen = handshake(
        context(site, tmp_path, server, keys[1], server=True),
        context(site, tmp_path, node, keys[0], server=False),
        "localhost",
    )
    assert seen == node.certificate.public_bytes(Encoding.DER)


def test_a_node_that_plays_the_control_plane_is_refused(site: Site, tmp_path: Path) -> None:
    keys = a_key(), a_key()
    false = site.node(now=NOW, key=keys[1].public_key(), node_id="nd_" + "0" * 26)
    client = context(site, tmp_path, site.node(now=NOW, key=keys[0].public_key()), keys[0], server=False)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(context(site, tmp_path, false, keys[1], server=True), client, "localhost")
