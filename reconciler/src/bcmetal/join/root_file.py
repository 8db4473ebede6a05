"""The root as people keep it: one PEM file with its certificate and its key, encrypted under a passphrase.

PKCS#8 with PBES2 (RFC 8018), scrypt (RFC 7914) and AES-256-CBC. `cryptography` writes PBKDF2 with 2,048 rounds only, too few for a
passphrase that a person chose and a key that is worth a site, so the few bytes of ASN.1 are written here. OpenSSL, and
`cryptography`, read it. OpenSSL takes at most 32 MiB for scrypt unless told otherwise: hence N = 2^14, and p = 8 for the work.
"""

from __future__ import annotations

import base64
import os
import re
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from pydantic import SecretStr

from bcmetal.errors import Fault, InvalidInput
from bcmetal.join.ca import IssuerKey, Root, pem_of

PASSPHRASE_LEAST: Final = 12  # characters
_N, _R, _P = 1 << 14, 8, 8
_KEY_BYTES: Final = 32
_PBES2: Final = "06092a864886f70d01050d"
_SCRYPT: Final = "06092b06010401da47040b"
_AES_256_CBC: Final = "060960864801650304012a"
_LABEL: Final = "ENCRYPTED PRIVATE KEY"
_KEY: Final = re.compile("-----BEGIN [A-Z ]*PRIVATE KEY-----")


def export_root(root: Root, passphrase: SecretStr) -> str:
    """Raises InvalidInput: the passphrase is too short."""
    if len(passphrase.get_secret_value()) < PASSPHRASE_LEAST:
        raise InvalidInput([Fault("passphrase", f"needs at least {PASSPHRASE_LEAST} characters")])
    return pem_of([root.certificate]) + _encrypted(root.key, passphrase)


def read_root(text: str, passphrase: SecretStr | None) -> Root:
    """None: the key is not encrypted, such as an operator's own on a protected medium. Raises InvalidInput."""
    try:
        certificates = x509.load_pem_x509_certificates(text.encode())
    except ValueError as error:
        raise InvalidInput([Fault("root", "holds no certificate in PEM form")]) from error
    key = read_key(text, passphrase, "root")
    if len(certificates) != 1 or certificates[0].public_key() != key.public_key():
        raise InvalidInput([Fault("root", "must hold one certificate and the key of that certificate")])
    return Root(certificates[0], key)


def is_encrypted(text: str) -> bool:
    return "ENCRYPTED" in text


def read_key(text: str, passphrase: SecretStr | None, path: str) -> IssuerKey:
    """A private key in PEM form, which may stand beside certificates. `path` is whose, for the fault. Raises InvalidInput."""
    block = _KEY.search(text)
    if block is None:
        raise InvalidInput([Fault(path, "holds no private key in PEM form")])
    secret = None if passphrase is None else passphrase.get_secret_value().encode()
    try:
        key = load_pem_private_key(text[block.start() :].encode(), secret)
    except TypeError:
        fault = "its key is encrypted, and no passphrase was given" if secret is None else "its key is not encrypted"
        raise InvalidInput([Fault(path, fault)]) from None
    except (ValueError, UnsupportedAlgorithm):  # not as the cause: it may speak of the key
        raise InvalidInput([Fault(path, "its key does not open: another passphrase, or a damaged file")]) from None
    if not isinstance(key, EllipticCurvePrivateKey | Ed25519PrivateKey | RSAPrivateKey):
        raise InvalidInput([Fault(path, "its key is of a kind that signs no certificates here")])
    return key


def _encrypted(key: IssuerKey, passphrase: SecretStr) -> str:
    salt, iv = os.urandom(16), os.urandom(16)
    derived = Scrypt(salt=salt, length=_KEY_BYTES, n=_N, r=_R, p=_P).derive(passphrase.get_secret_value().encode())
    padder = PKCS7(AES256.block_size).padder()
    plain = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    cipher = Cipher(AES256(derived), CBC(iv)).encryptor()
    blob = cipher.update(padder.update(plain) + padder.finalize()) + cipher.finalize()
    scrypt = _sequence(bytes.fromhex(_SCRYPT), _sequence(_octets(salt), _integer(_N), _integer(_R), _integer(_P)))
    aes = _sequence(bytes.fromhex(_AES_256_CBC), _octets(iv))
    scheme = _sequence(bytes.fromhex(_PBES2), _sequence(scrypt, aes))
    return _pem(_sequence(scheme, _octets(blob)))


def _pem(der: bytes) -> str:
    text = base64.b64encode(der).decode("ascii")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join((f"-----BEGIN {_LABEL}-----", *lines, f"-----END {_LABEL}-----", ""))


def _tlv(tag: int, value: bytes) -> bytes:
    if len(value) < 128:
        return bytes([tag, len(value)]) + value
    length = len(value).to_bytes((len(value).bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(length)]) + length + value


def _sequence(*parts: bytes) -> bytes:
    return _tlv(0x30, b"".join(parts))


def _octets(value: bytes) -> bytes:
    return _tlv(0x04, value)


def _integer(value: int) -> bytes:
    return _tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1))
