"""Certificate requests abused through the join call: refused by name, at no cost, and only to whoever proved a token."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bcmetal.join.bearers import parse_bearer
from bcmetal.store import join_tokens
from join import der
from join.conftest import copied, opened
from join.site import Box, JoinSite, a_box, new_csr

TOO_SHORT = 1024


def with_extensions(*extensions: tuple[x509.ExtensionType, bool]) -> str:
    def build(builder: Any) -> Any:
        for value, critical in extensions:
            builder = builder.add_extension(value, critical)
        return builder

    return new_csr(build=build)[1]


def names(*found: x509.GeneralName) -> str:
    return with_extensions((x509.SubjectAlternativeName(found), False))


def by_hand(bits: int, exponent: int) -> str:
    """An RSA key of any size, whose signature nobody will come to check."""
    modulus = secrets.randbits(bits) | 1 << bits - 1 | 1
    return der.pem(der.request(der.request_info(der.rsa_key(modulus, exponent)), secrets.token_bytes(bits // 8)))


def with_e_3() -> str:
    """Truly signed: only its exponent is wrong."""
    key = rsa.generate_private_key(3, 2048)
    spki = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    info = der.request_info(spki)
    return der.pem(der.request(info, key.sign(info, padding.PKCS1v15(), hashes.SHA256())))


def with_a_bad_signature() -> str:
    raw = bytearray(x509.load_pem_x509_csr(new_csr()[1].encode()).public_bytes(serialization.Encoding.DER))
    raw[-1] ^= 1
    return der.pem(bytes(raw))


def of_another_key() -> str:
    """The key of somebody else, which the sender does not hold."""
    spki = (
        ec.generate_private_key(ec.SECP256R1())
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    info = der.request_info(spki)
    signature = ec.generate_private_key(ec.SECP256R1()).sign(info, ec.ECDSA(hashes.SHA256()))
    return der.pem(der.request(info, signature, der.sequence(der.oid("1.2.840.10045.4.3.2"))))


def usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(True, False, False, False, False, signs, signs, False, False)


ABUSES: dict[str, Callable[[], str]] = {
    "a host name": lambda: names(x509.DNSName("bcmetal.example")),
    "an address": lambda: names(x509.IPAddress(ip_address("192.0.2.1"))),
    "another node's SPIFFE id": lambda: names(x509.UniformResourceIdentifier("spiffe://bcmetal/node/nd_" + "0" * 26)),
    "CA:TRUE": lambda: with_extensions((x509.BasicConstraints(True, None), True)),
    "CA:TRUE, by the way": lambda: with_extensions((x509.BasicConstraints(True, 0), False)),
    "to sign certificates": lambda: with_extensions((usage(True), True)),
    "an unknown critical extension": lambda: with_extensions(
        (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\5\0"), True)
    ),
    "RSA-1024": lambda: new_csr(rsa.generate_private_key(65537, TOO_SHORT))[1],
    "e = 3": with_e_3,
    "16,384 bits": lambda: by_hand(16_384, 65537),
    "a huge exponent": lambda: by_hand(4096, 1 << 4000 | 1),
    "P-521": lambda: new_csr(ec.generate_private_key(ec.SECP521R1()))[1],
    "a bad signature": with_a_bad_signature,
    "another's key": of_another_key,
    "a PEM in a PEM": lambda: der.pem(new_csr()[1].encode()),
    "two of them": lambda: new_csr()[1] + new_csr()[1],
    "a certificate before it": lambda: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n" + new_csr()[1],
    "a private key": lambda: der.pem(b"x", "EC PRIVATE KEY"),
    "text around it": lambda: "# mine\n" + new_csr()[1],
    "an encapsulated header": lambda: new_csr()[1].replace("-----\n", "-----\nProc-Type: 4,ENCRYPTED\n\n", 1),
    "nothing": lambda: "",
    "an empty block": lambda: der.pem(b""),
    "garbage": lambda: der.pem(secrets.token_bytes(300)),
    "too much": lambda: der.pem(secrets.token_bytes(6200)),
    "a NUL": lambda: new_csr()[1] + "\0",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[JoinSite]:
    yield from opened(copied(sqlite_template, tmp_path_factory.mktemp("csr")))


@pytest.mark.parametrize("abuse", ABUSES)
def test_a_request_that_asks_for_more_or_is_none_costs_nothing(shared: JoinSite, abuse: str) -> None:
    number = [*ABUSES].index(abuse)
    box, address = a_box(number), f"198.51.100.{number}"
    bearer, csr = shared.token(), ABUSES[abuse]()
    answer = shared.join(bearer, box, address, csr=csr)
    assert (answer.code, answer.fields) == ("INVALID_INPUT", {"csr"})
    parsed = parse_bearer(bearer)
    assert parsed is not None
    row = shared.read(join_tokens.get, parsed.token_id)
    assert row is not None
    assert (row.uses, row.reserved) == (0, 0)
    assert shared.join(None, box, address, csr=csr).status == 401, "nobody else is told"
    assert shared.join(bearer, box, address).status == 200


def test_of_a_request_the_key_alone_is_used(one_site: JoinSite) -> None:
    key = ec.generate_private_key(ec.SECP256R1())

    def build(builder: Any) -> Any:
        return builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False)

    _, csr = new_csr(key, subject="bcmetald", build=build)
    box = Box(a_box().uuid, key=key, csr=csr)
    member = one_site.admitted(box)
    assert len(member.leaf.subject) == 0
    assert not member.leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    usages = member.leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert ExtendedKeyUsageOID.CODE_SIGNING not in usages
    assert member.leaf.public_key() == key.public_key()


def test_a_refusal_repeats_nothing_of_the_request(one_site: JoinSite) -> None:
    csr = names(x509.DNSName("secret-name.example"))
    answer = one_site.join(one_site.token(), a_box(), csr=csr)
    text = answer.raw.decode()
    for hidden in ("secret-name", base64.b64encode(b"secret-name").decode()[:8], csr.splitlines()[1][:20]):
        assert hidden not in text


def test_renewals_are_asked_for_by_the_same_rules(one_site: JoinSite) -> None:
    member = one_site.admitted(a_box())
    for abuse in ("CA:TRUE", "another node's SPIFFE id", "RSA-1024", "a bad signature"):
        csr = ABUSES[abuse]()
        answer = one_site.renew(member, Box(None, csr=csr))
        assert (answer.status, answer.fields) == (400, {"csr"})
        assert one_site.as_node(member, "/api/compute/nodes/renew", csr=csr, nodeId="nd_" + "0" * 26).status == 400
    assert one_site.renew(member, a_box().rekeyed()).status == 200
