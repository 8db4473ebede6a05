"""TPM structures and EK certificates as anybody can write them: right, or wrong in one place."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier

from bcmetal.join.tpm_structures import Attribute

AK = (
    Attribute.FIXED_TPM
    | Attribute.FIXED_PARENT
    | Attribute.SENSITIVE_DATA_ORIGIN
    | Attribute.USER_WITH_AUTH
    | Attribute.RESTRICTED
    | Attribute.SIGN
)
EK = (
    Attribute.FIXED_TPM
    | Attribute.FIXED_PARENT
    | Attribute.SENSITIVE_DATA_ORIGIN
    | Attribute.ADMIN_WITH_POLICY
    | Attribute.RESTRICTED
    | Attribute.DECRYPT
)
NONE = bytes.fromhex("0010")
AES_128_CFB = bytes.fromhex("000600800043")
AES_256_CFB = bytes.fromhex("000601000043")
ECDSA = bytes.fromhex("0018000b")
RSAPSS = bytes.fromhex("0016000b")
NOW = datetime(2026, 6, 1, tzinfo=UTC)
EK_PURPOSE = ObjectIdentifier("2.23.133.8.1")

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def sized(raw: bytes) -> bytes:
    return len(raw).to_bytes(2, "big") + raw


def an_area(
    key: PrivateKey,
    attributes: int,
    symmetric: bytes,
    scheme: bytes,
    name_algorithm: int = 0x000B,
    policy: bytes = b"",
    exponent: int = 0,
    curve: int = 3,
) -> bytes:
    """A TPMT_PUBLIC."""
    number = key.public_key().public_numbers()
    if isinstance(number, rsa.RSAPublicNumbers):
        kind, bits = 1, number.n.bit_length()
        rest = bits.to_bytes(2, "big") + exponent.to_bytes(4, "big") + sized(number.n.to_bytes(bits // 8, "big"))
    else:
        size = (key.key_size + 7) // 8
        point = sized(number.x.to_bytes(size, "big")) + sized(number.y.to_bytes(size, "big"))
        kind, rest = 0x23, curve.to_bytes(2, "big") + NONE + point
    head = kind.to_bytes(2, "big") + name_algorithm.to_bytes(2, "big") + int(attributes).to_bytes(4, "big")
    return head + sized(policy) + symmetric + scheme + rest


def an_ak(key: PrivateKey | None = None, attributes: int = AK, symmetric: bytes = NONE, scheme: bytes = ECDSA) -> bytes:
    """A TPM2B_PUBLIC: P-256 where no key is given."""
    return sized(an_area(key or a_p256_key(), attributes, symmetric, scheme))


def an_ek(
    key: PrivateKey, attributes: int = EK, symmetric: bytes = AES_128_CFB, scheme: bytes = NONE, exponent: int = 0
) -> bytes:
    """A TPM2B_PUBLIC."""
    return sized(an_area(key, attributes, symmetric, scheme, policy=secrets.token_bytes(32), exponent=exponent))


def a_p256_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class Maker:
    """A CA of a TPM maker."""

    def __init__(
        self,
        name: str,
        above: Maker | None = None,
        ca: bool = True,
        path_length: int | None = None,
        until: datetime = NOW + timedelta(days=3650),
        key: ec.EllipticCurvePrivateKey | None = None,
        signs_certificates: bool = True,
        organisation: str = "",
    ) -> None:
        self.key = key or a_p256_key()
        named = ((NameOID.COMMON_NAME, name), (NameOID.ORGANIZATION_NAME, organisation))
        self.name = x509.Name([x509.NameAttribute(oid, value, _validate=False) for oid, value in named if value])
        builder = (
            _builder(self.name, above.name if above else self.name, self.key.public_key(), until)
            .add_extension(x509.BasicConstraints(ca, path_length if ca else None), critical=True)
            .add_extension(_usage(signs_certificates), critical=True)
        )
        self.certificate = builder.sign(above.key if above else self.key, hashes.SHA256())

    def certifies(
        self,
        key: PublicKey,
        until: datetime = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        purposes: Sequence[ObjectIdentifier] = (EK_PURPOSE,),
        ca: bool = False,
    ) -> bytes:
        """An EK certificate as the TCG's profile has it: nobody's name, and a critical alternative name that is a directory name."""
        of_the_tpm = x509.Name([x509.NameAttribute(ObjectIdentifier("2.23.133.2.1"), "id:00001014")])
        alternative = x509.SubjectAlternativeName([x509.DirectoryName(of_the_tpm)])
        builder = (
            _builder(x509.Name([]), self.name, key, until)
            .add_extension(alternative, critical=True)
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
        )
        if purposes:
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.DER)

    def certifies_for_oaep(self, key: rsa.RSAPublicKey) -> bytes:
        """The same with id-RSAES-OAEP as the key's algorithm."""
        plain, marked = bytes.fromhex("06092a864886f70d0101010500"), bytes.fromhex("06092a864886f70d0101073000")
        return self._signed(_body(self.certifies(key)), plain, marked, _ECDSA_SHA256, hashes.SHA256())

    def certifies_by_sha1(self, key: PublicKey) -> bytes:
        return self._signed(_body(self.certifies(key)), _ECDSA_SHA256, _ECDSA_SHA1, _ECDSA_SHA1, hashes.SHA1())  # noqa: S303  the point

    def _signed(self, body: bytes, old: bytes, new: bytes, algorithm: bytes, digest: hashes.HashAlgorithm) -> bytes:
        assert body.count(old) == 1
        tbs = _der(0x30, body.replace(old, new))
        signature = self.key.sign(tbs, ec.ECDSA(digest))
        return _der(0x30, tbs + algorithm + _der(0x03, b"\0" + signature))


_ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")
_ECDSA_SHA1 = bytes.fromhex("300906072a8648ce3d0401")


def _body(certificate: bytes) -> bytes:
    """What a TBSCertificate holds; it is longer than 255 bytes."""
    tbs = x509.load_der_x509_certificate(certificate).tbs_certificate_bytes
    assert tbs[1] == 0x82
    return tbs[4:]


def _builder(subject: x509.Name, issuer: x509.Name, key: PublicKey, until: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=3650))
        .not_valid_after(until)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content
