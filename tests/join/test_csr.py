"""Certificate requests from machines: only the key is used, and whatever asks for more, or is not exactly a request, is refused."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bcmetal.errors import InvalidInput
from bcmetal.join.csr import CSR_LIMIT, CsrRefused, csr_der, read_csr
from join import der

P256 = ec.generate_private_key(ec.SECP256R1())
TOO_SHORT = 1024
RSA_2048 = rsa.generate_private_key(65537, 2048)

Keys = CertificateIssuerPrivateKeyTypes
Extension = tuple[x509.ExtensionType, bool]


def a_request(key: Keys = P256, *extensions: Extension) -> str:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    for value, critical in extensions:
        builder = builder.add_extension(value, critical)
    edwards = isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)
    signed = builder.sign(key, None if edwards else hashes.SHA256())
    return signed.public_bytes(Encoding.PEM).decode()


def by_hand(*attributes: bytes, key: rsa.RSAPrivateKey = RSA_2048, version: int = 0) -> str:
    """A request that is truly signed, with whatever stands in it."""
    spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    info = der.request_info(spki, *attributes, version=version)
    return der.pem(der.request(info, key.sign(info, padding.PKCS1v15(), hashes.SHA256())))


def why(pem: str) -> str:
    with pytest.raises(CsrRefused) as refused:
        read_csr(pem)
    assert refused.value.sentence
    return refused.value.reason


# ---------------------------------------------------------------- what is taken


@pytest.mark.parametrize(
    "make",
    [
        lambda: ec.generate_private_key(ec.SECP256R1()),
        lambda: ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate,
        lambda: rsa.generate_private_key(65537, 2048),
        lambda: rsa.generate_private_key(65537, 3072),
    ],
    ids=["p-256", "p-384", "ed25519", "rsa-2048", "rsa-3072"],
)
def test_a_key_of_the_policy_is_taken(make: Callable[[], Keys]) -> None:
    key = make()
    pem = a_request(key)
    read = read_csr(pem)
    assert read.public_key == key.public_key()
    body = x509.load_pem_x509_csr(pem.encode()).public_bytes(Encoding.DER)
    spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert read.der == body
    assert read.sha256 == hashlib.sha256(body).hexdigest()
    assert read.key_sha256 == hashlib.sha256(spki).hexdigest()


def test_a_request_by_openssl_is_taken(tmp_path: Path) -> None:
    new = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x"]
    made = subprocess.run(
        [*new, "-keyout", str(tmp_path / "key")], capture_output=True, text=True, check=True, timeout=60
    )
    assert isinstance(read_csr(made.stdout).public_key, ec.EllipticCurvePublicKey)


def test_line_ends_do_not_change_who_a_request_is() -> None:
    pem = a_request()
    body = "".join(pem.splitlines()[1:-1])
    lines = [body[at : at + 76] for at in range(0, len(body), 76)]
    wide = "\r\n".join(("-----BEGIN CERTIFICATE REQUEST-----", *lines, "-----END CERTIFICATE REQUEST-----"))
    assert read_csr(wide).sha256 == read_csr(pem).sha256
    assert csr_der(wide) == csr_der(pem)


def test_a_subject_and_harmless_extensions_change_nothing() -> None:
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    pem = a_request(
        P256,
        (x509.BasicConstraints(False, None), True),
        (usage, True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), True),
        (x509.SubjectKeyIdentifier.from_public_key(P256.public_key()), False),
        (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\5\0"), False),
    )
    assert read_csr(pem).public_key == P256.public_key()


def test_a_compressed_point_is_the_same_key() -> None:
    point = P256.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    curve = der.sequence(der.oid("1.2.840.10045.2.1"), der.oid("1.2.840.10045.3.1.7"))
    info = der.request_info(der.sequence(curve, der.bits(point)))
    signature = P256.sign(info, ec.ECDSA(hashes.SHA256()))
    pem = der.pem(der.request(info, signature, der.sequence(der.oid("1.2.840.10045.4.3.2"))))
    assert read_csr(pem).key_sha256 == read_csr(a_request()).key_sha256
    assert read_csr(pem).sha256 != read_csr(a_request()).sha256


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize(
    "make",
    [
        lambda: ec.generate_private_key(ec.SECP521R1()),
        lambda: ec.generate_private_key(ec.SECP256K1()),
        ed448.Ed448PrivateKey.generate,
        lambda: rsa.generate_private_key(65537, TOO_SHORT),
        lambda: rsa.generate_private_key(3, 2048),
        lambda: dsa.generate_private_key(2048),
    ],
    ids=["p-521", "secp256k1", "ed448", "rsa-1024", "e-3", "dsa"],
)
def test_a_key_outside_of_the_policy_is_refused(make: Callable[[], Keys]) -> None:
    assert why(a_request(make())) == "key"


@pytest.mark.parametrize(
    ("bits", "exponent_bits"),
    [(16384, 17), (16384, 16384), (8192, 17), (4104, 17), (2048, 2048), (2040, 17)],
)
def test_a_huge_key_is_refused_before_anything_is_computed_with_it(bits: int, exponent_bits: int) -> None:
    modulus = 1 << bits - 1 | secrets.randbits(bits - 1) | 1
    info = der.request_info(der.rsa_key(modulus, 1 << exponent_bits - 1 | 1))
    pem = der.pem(der.request(info, secrets.token_bytes(bits // 8)))
    if len(pem) > CSR_LIMIT:
        assert why(pem) == "size"
    else:
        assert why(pem) in ("key", "malformed")  # not `signature`: that one is nonsense too, and was not looked at


def test_an_even_modulus_is_refused() -> None:
    info = der.request_info(der.rsa_key(1 << 2047 | secrets.randbits(2046) << 1, 65537))
    assert why(der.pem(der.request(info, secrets.token_bytes(256)))) in ("malformed", "signature")


def test_a_point_off_the_curve_is_refused() -> None:
    point = bytearray(P256.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))
    point[-1] ^= 1
    curve = der.sequence(der.oid("1.2.840.10045.2.1"), der.oid("1.2.840.10045.3.1.7"))
    info = der.request_info(der.sequence(curve, der.bits(bytes(point))))
    assert why(der.pem(der.request(info, b"", der.sequence(der.oid("1.2.840.10045.4.3.2"))))) == "malformed"


# ---------------------------------------------------------------- signatures


def test_a_changed_signature_is_refused() -> None:
    body = bytearray(csr_der(a_request(RSA_2048)))
    body[-1] ^= 1
    assert why(der.pem(bytes(body))) == "signature"


def test_a_request_signed_by_another_key_is_refused() -> None:
    spki = RSA_2048.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    info = der.request_info(spki)
    other = rsa.generate_private_key(65537, 2048)
    assert why(der.pem(der.request(info, other.sign(info, padding.PKCS1v15(), hashes.SHA256())))) == "signature"


def test_bits_beside_the_signature_are_refused() -> None:
    body = bytearray(csr_der(a_request(RSA_2048)))
    body[-257] = 1
    assert why(der.pem(bytes(body))) == "malformed"


def test_the_twin_of_a_signature_is_another_request_of_the_same_key() -> None:
    pem = a_request()
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256 (FIPS 186-4, D.1.2.3)
    request = x509.load_pem_x509_csr(pem.encode())
    r, s = decode_dss_signature(request.signature)
    twin = der.request(
        request.tbs_certrequest_bytes,
        encode_dss_signature(r, order - s),
        der.sequence(der.oid("1.2.840.10045.4.3.2")),
    )
    one, other = read_csr(pem), read_csr(der.pem(twin))
    assert one.sha256 != other.sha256
    assert one.key_sha256 == other.key_sha256


@pytest.mark.parametrize("digest", ["sha1", "sha224"])
def test_a_weak_digest_is_refused(digest: str, tmp_path: Path) -> None:
    new = ["openssl", "req", "-new", f"-{digest}", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    made = subprocess.run(
        [*new, "-keyout", str(tmp_path / "key")], capture_output=True, text=True, check=True, timeout=60
    )
    assert why(made.stdout) == "signature"


# ---------------------------------------------------------------- what it may not ask for


@pytest.mark.parametrize("critical", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        x509.DNSName("api.site"),
        x509.IPAddress(ipaddress.ip_address("10.30.0.5")),
        x509.UniformResourceIdentifier("spiffe://bcmetal/node/nd_0"),
        x509.RFC822Name("root@site"),
        x509.DirectoryName(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])),
        x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
        x509.OtherName(x509.ObjectIdentifier("1.2.3"), b"\5\0"),
    ],
    ids=lambda name: type(name).__name__,
)
def test_a_request_for_a_name_of_any_kind_is_refused(name: x509.GeneralName, critical: bool) -> None:
    assert why(a_request(P256, (x509.SubjectAlternativeName([name]), critical))) == "names"


def test_a_name_of_a_kind_that_no_library_reads_is_refused() -> None:
    x400 = der.sequence(der.tlv(0xA3, der.sequence()))
    assert why(by_hand(der.extension_request(("2.5.29.17", False, x400)))) in ("names", "malformed")


@pytest.mark.parametrize(
    "asked",
    [
        x509.BasicConstraints(True, None),
        x509.BasicConstraints(True, 0),
        x509.KeyUsage(True, False, False, False, False, True, False, False, False),
        x509.KeyUsage(True, False, False, False, False, False, True, False, False),
    ],
    ids=["ca", "ca-pathlen-0", "keyCertSign", "cRLSign"],
)
def test_a_request_to_be_an_authority_is_refused(asked: x509.ExtensionType) -> None:
    assert why(a_request(P256, (asked, False))) == "authority"


@pytest.mark.parametrize("name", ["1.3.6.1.4.1.55555.1", "2.5.29.30", "2.5.29.36", "1.3.6.1.5.5.7.1.24"])
def test_a_critical_extension_that_is_not_known_is_refused(name: str) -> None:
    assert why(by_hand(der.extension_request((name, True, der.sequence())))) in ("extension", "malformed")


def test_extensions_hidden_in_a_second_attribute_are_refused() -> None:
    san = der.sequence(der.tlv(0x82, b"api.site"))
    first = der.extension_request(("2.5.29.14", False, der.tlv(0x04, bytes(20))))
    second = ("2.5.29.17", False, san)
    assert why(by_hand(first, der.extension_request(second))) == "malformed"
    assert why(by_hand(first, der.extension_request(second, attribute="1.3.6.1.4.1.311.2.1.14"))) == "malformed"


def test_one_extension_twice_is_refused() -> None:
    false = der.sequence()
    true = der.sequence(der.tlv(0x01, b"\xff"))
    twice = der.extension_request(("2.5.29.19", True, false), ("2.5.29.19", True, true))
    assert why(by_hand(twice)) in ("malformed", "authority")


def test_another_version_is_refused() -> None:
    assert why(by_hand(version=3)) == "malformed"


# ---------------------------------------------------------------- the text


def test_exactly_one_block_is_taken() -> None:
    pem = a_request()
    certificate = pem.replace("CERTIFICATE REQUEST", "CERTIFICATE")
    lines = pem.splitlines(keepends=True)
    for text in (
        "",
        "x",
        pem + pem,
        pem + certificate,
        certificate,
        "text before\n" + pem,
        pem + "text behind",
        " " + pem,
        pem.replace("-----BEGIN", "----BEGIN"),
        pem.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
        lines[0] + pem + lines[-1],
        lines[0] + lines[1] + pem + "".join(lines[2:]),
        lines[0] + "Proc-Type: 4,ENCRYPTED\n" + "".join(lines[1:]),
        pem.replace("\n", "\u2028"),
        pem.replace("\n", "\v"),
        lines[0] + lines[-1],
        "".join(lines[:-1]),
    ):
        assert why(text) == "pem", text


def test_a_block_that_is_a_pem_within_base64_is_no_request() -> None:
    assert why(der.pem(a_request().encode())) == "malformed"


def test_base64_with_something_left_over_is_refused() -> None:
    body = csr_der(a_request())
    while len(body) % 3 != 1:
        body += b"\0"
    pem = der.pem(body)
    at = pem.index("==")
    assert why(pem[: at - 1] + ("B" if pem[at - 1] != "B" else "C") + pem[at:]) in ("pem", "malformed")
    assert why(der.pem(csr_der(a_request()) + b"\0")) == "malformed"
    assert why(pem.replace("==", "=\n=")) == "pem"


def test_the_longest_text_is_measured_before_it_is_read() -> None:
    assert why("-----BEGIN CERTIFICATE REQUEST-----\n" + "A" * CSR_LIMIT) == "size"


def test_a_refusal_is_an_input_fault_that_repeats_nothing_of_the_request() -> None:
    marker = secrets.token_hex(16)
    with pytest.raises(InvalidInput) as refused:
        read_csr(f"-----BEGIN {marker}-----")
    assert refused.value.faults[0].path == "csr"
    assert marker not in str(refused.value)


GOOD = csr_der(a_request())


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=400) | st.binary(max_size=400).map(der.pem))
@example("-----BEGIN CERTIFICATE REQUEST-----\n\n-----END CERTIFICATE REQUEST-----")
@example("-----BEGIN CERTIFICATE REQUEST-----\n====\n-----END CERTIFICATE REQUEST-----")
def test_whatever_the_text_is_it_is_refused_in_one_way(text: str) -> None:
    assert why(text) in ("pem", "malformed", "size")


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@settings(max_examples=600, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_request_with_changed_bytes_is_refused_or_is_the_same_key(changes: list[tuple[int, int]]) -> None:
    body = bytearray(GOOD)
    for at, change in changes:
        body[at] ^= change
    try:
        read = read_csr(der.pem(bytes(body)))
    except CsrRefused:
        return
    assert read.der == bytes(body)
    assert bytes(body) == GOOD, "its own signature covers all that is not the signature"


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(GOOD)), st.binary(max_size=40))
def test_a_request_cut_or_grown_is_refused(at: int, more: bytes) -> None:
    body = GOOD[:at] + more + GOOD[at:] if more else GOOD[:at]
    if body != GOOD:
        assert why(der.pem(body)) in ("pem", "malformed", "key", "signature", "names", "extension", "authority")
