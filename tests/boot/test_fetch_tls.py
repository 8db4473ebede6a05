"""TLS: the certificate is checked for the name, whatever address the name led to."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bcmetal.boot.fetch import FetchPolicy, ImageFault, ImageSource, fetch
from boot.origin import Origin, a_file, an_origin, redirect, sha256

BODY = os.urandom(100_000)


def a_certificate(folder: Path, *names: str, days: int = 1) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a self-signed certificate, and the file to trust it by."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "origin")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=10))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([_general(text) for text in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    stem = names[0].replace("*", "any")
    shown = folder / f"{stem}.crt"
    shown.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    kept = folder / f"{stem}.key"
    kept.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown, kept)
    return context, shown


def _general(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def get(url: str, folder: Path, ca_file: Path | None) -> bytes:
    def resolver(host: str, port: int) -> Sequence[str]:
        return ("127.0.0.1",)

    policy = FetchPolicy(("127.0.0.1/32",), 10**7, ca_file, resolver=resolver)
    dest = folder / "image.iso"
    fetch(ImageSource(url, sha256(BODY)), dest, policy, lambda done, total: None, lambda: False)
    return dest.read_bytes()


def refusal(url: str, folder: Path, ca_file: Path | None) -> str:
    with pytest.raises(ImageFault) as caught:
        get(url, folder, ca_file)
    assert caught.value.code == "image-refused"
    return str(caught.value)


def a_tls_page(origin: Origin) -> None:
    origin.pages["/a.iso"] = a_file(BODY)


def test_a_certificate_for_the_name_is_taken_wherever_the_name_leads(tmp_path: Path) -> None:
    context, shown = a_certificate(tmp_path, "mirror.example")
    with an_origin(context=context) as origin:
        a_tls_page(origin)
        assert get(origin.url("/a.iso", "mirror.example"), tmp_path, shown) == BODY


def test_a_certificate_for_the_address_is_taken(tmp_path: Path) -> None:
    context, shown = a_certificate(tmp_path, "127.0.0.1")
    with an_origin(context=context) as origin:
        a_tls_page(origin)
        assert get(origin.url("/a.iso"), tmp_path, shown) == BODY


def test_a_certificate_for_another_name_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    context, shown = a_certificate(tmp_path, "mirror.example")
    with an_origin(context=context) as origin:
        a_tls_page(origin)
        assert (
            refusal(origin.url("/a.iso", "other.example"), tmp_path, shown)
            == "the server's certificate is for another name"
        )
        assert refusal(origin.url("/a.iso"), tmp_path, shown) == "the server's certificate is for another name"
        assert origin.asked == []


def test_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    context, _ = a_certificate(tmp_path, "mirror.example")
    _, stranger = a_certificate(tmp_path, "stranger.example")
    with an_origin(context=context) as origin:
        a_tls_page(origin)
        for ca_file in (None, stranger):
            text = refusal(origin.url("/a.iso", "mirror.example"), tmp_path, ca_file)
            assert text == "the server's certificate is not trusted"
        assert origin.asked == []


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    context, shown = a_certificate(tmp_path, "mirror.example", days=-1)
    with an_origin(context=context) as origin:
        a_tls_page(origin)
        assert (
            refusal(origin.url("/a.iso", "mirror.example"), tmp_path, shown) == "the server's certificate has expired"
        )


def test_a_redirect_to_https_is_checked_for_its_own_name(tmp_path: Path) -> None:
    context, shown = a_certificate(tmp_path, "mirror.example")
    with an_origin(context=context) as origin, an_origin() as plain:
        a_tls_page(origin)
        plain.pages["/good"] = redirect(origin.url("/a.iso", "mirror.example"))
        plain.pages["/bad"] = redirect(origin.url("/a.iso", "other.example"))
        assert get(plain.url("/good"), tmp_path, shown) == BODY
        assert "another name" in refusal(plain.url("/bad"), tmp_path, shown)


def test_a_server_without_tls_is_unreachable_by_https(tmp_path: Path) -> None:
    with an_origin() as plain:
        with pytest.raises(ImageFault) as caught:
            get(plain.url("/a.iso").replace("http:", "https:"), tmp_path, None)
        assert caught.value.code == "image-unreachable"


def test_a_missing_file_of_authorities_is_told(tmp_path: Path) -> None:
    context, _ = a_certificate(tmp_path, "mirror.example")
    with an_origin(context=context) as origin:
        with pytest.raises(ImageFault) as caught:
            get(origin.url("/a.iso", "mirror.example"), tmp_path, tmp_path / "gone.crt")
        assert "authorities" in str(caught.value)
