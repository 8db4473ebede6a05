"""Whether a key lives in the TPM whose endorsement key (EK) a site knows: the daemon's side of credential activation.

1. `read_claim` parses ekPublic, akPublic and the EK's certificate, and checks what they say of themselves.
2. `make_credential` wraps a fresh secret so that only the TPM with that EK opens it, and only if it holds that very attestation key (AK).
3. The machine answers with `proof`: it has the secret, for this challenge, for this CSR.

Until 3, nothing that was claimed is proven: whoever sends an EK's public half may have read it elsewhere. After 3, the AK's attributes
are the TPM's word (the Name covers them), and the EK is what the pool's allow-list is asked for, by `ek_sha256`.

TCG TPM 2.0 Library, Part 1, section 24 and annexes B and C; TCG EK Credential Profile, annex B (templates L-1 and L-2).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from bcmetal.join.tpm_certificates import CERTIFICATE_LIMIT, certified_spki
from bcmetal.join.tpm_structures import P256_BYTES, Attribute, Public, TpmRefused, from_base64, public_from_wire

SECRET_BYTES: Final = 32
_SEED_BYTES: Final = 32
_AES_BITS: Final = 128
_BLOCK: Final = 16

_AK_HAS: Final = (
    Attribute.FIXED_TPM,
    Attribute.FIXED_PARENT,
    Attribute.SENSITIVE_DATA_ORIGIN,
    Attribute.RESTRICTED,
    Attribute.SIGN,
)
_EK_HAS: Final = (Attribute.FIXED_TPM, Attribute.FIXED_PARENT, Attribute.RESTRICTED, Attribute.DECRYPT)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a machine says of its TPM, consistent in itself and not yet proven. `ek_certificate` is DER that holds the key of `ek`."""

    ek: Public
    ak: Public
    ek_certificate: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Credential:
    """Both whole, with their sizes in front: a TPM2B_ID_OBJECT and a TPM2B_ENCRYPTED_SECRET."""

    id_object: bytes
    encrypted_secret: bytes


def read_claim(ek_public: str, ak_public: str, ek_certificate: str | None) -> Claim:
    """The three values of the join call, in base64. Raises TpmRefused at the first check that fails."""
    ek, ak = public_from_wire(ek_public), public_from_wire(ak_public)
    check_ak(ak)
    check_ek(ek)
    certificate = None if ek_certificate is None else from_base64(ek_certificate, CERTIFICATE_LIMIT)
    if certificate is not None:
        check_ek_certificate(ek, certificate)
    return Claim(ek, ak, certificate)


def check_ak(ak: Public) -> None:
    """Made in a TPM, never to leave it, and signing only what that TPM itself says. Raises TpmRefused."""
    _check_attributes("AK", ak, _AK_HAS, Attribute.DECRYPT)
    if ak.scheme is None or ak.aes_cfb_bits is not None:
        raise TpmRefused("ak-scheme", "The AK names no signature scheme, or wraps other keys.")


def check_ek(ek: Public) -> None:
    """A storage key as in the default templates. Raises TpmRefused."""
    _check_attributes("EK", ek, _EK_HAS, Attribute.SIGN)
    if ek.scheme is not None or ek.aes_cfb_bits != _AES_BITS:
        raise TpmRefused("ek-scheme", "The EK is not a storage key with AES-128.")


def check_ek_certificate(ek: Public, certificate: bytes) -> None:
    """The certificate is about this very EK; who signed it is `vendor_of`'s question. Raises TpmRefused."""
    if not hmac.compare_digest(certified_spki(certificate), ek.spki):
        raise TpmRefused("ek-certificate", "The EK certificate is about another key.")


def _check_attributes(what: str, key: Public, has: tuple[Attribute, ...], has_not: Attribute) -> None:
    for one in has:
        if one not in key.attributes:
            raise TpmRefused(f"{what.lower()}-attributes", f"The {what} is not {_word(one)}.")
    if has_not in key.attributes:
        raise TpmRefused(f"{what.lower()}-attributes", f"The {what} is also {_word(has_not)}.")


def _word(attribute: Attribute) -> str:
    return str(attribute.name).lower()


def ek_sha256(public: Public) -> str:
    """What an allow-list holds: hex SHA-256 of the EK's SubjectPublicKeyInfo (DER, rsaEncryption or P-256 by name)."""
    return hashlib.sha256(public.spki).hexdigest()


def make_credential(ek_public: Public, ak_name: bytes, secret: bytes) -> Credential:
    """TPM2_MakeCredential for a fresh `secret` of SECRET_BYTES. Raises TpmRefused if `ek_public` is no EK."""
    check_ek(ek_public)
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"the secret must have {SECRET_BYTES} bytes")
    seed, encrypted = _wrapped_seed(ek_public)
    identity = _aes_cfb(_kdf_a(seed, b"STORAGE", ak_name, _AES_BITS), _sized(secret))
    integrity = hmac.digest(_kdf_a(seed, b"INTEGRITY", b"", 256), identity + ak_name, "sha256")
    return Credential(_sized(_sized(integrity) + identity), _sized(encrypted))


def _wrapped_seed(ek: Public) -> tuple[bytes, bytes]:
    """A seed, and what the EK's TPM finds it from (Part 1, B.10.4 for RSA and C.6.4 for ECC)."""
    if isinstance(ek.key, RSAPublicKey):
        seed = secrets.token_bytes(_SEED_BYTES)
        oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), label=b"IDENTITY\0")
        return seed, ek.key.encrypt(seed, oaep)
    ephemeral = ec.generate_private_key(ec.SECP256R1())
    point, peer = ephemeral.public_key().public_numbers(), ek.key.public_numbers()
    x, y = _coordinate(point.x), _coordinate(point.y)
    shared = ephemeral.exchange(ec.ECDH(), ek.key)
    return _kdf_e(shared, b"IDENTITY", x, _coordinate(peer.x)), _sized(x) + _sized(y)


def _kdf_a(key: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    """KDFa with SHA-256, for at most one digest (Part 1, 11.4.10.2): HMAC over counter, label, 0, context, bits."""
    message = (1).to_bytes(4, "big") + label + b"\0" + context + bits.to_bytes(4, "big")
    return hmac.digest(key, message, "sha256")[: bits // 8]


def _kdf_e(shared: bytes, label: bytes, party_u: bytes, party_v: bytes) -> bytes:
    """KDFe with SHA-256, for one digest (Part 1, 11.4.10.3)."""
    return hashlib.sha256((1).to_bytes(4, "big") + shared + label + b"\0" + party_u + party_v).digest()


def _aes_cfb(key: bytes, plain: bytes) -> bytes:
    """AES-CFB with a zero IV. Each block is CTR begun at the block before: `cryptography` moves its own CFB from release to release."""
    done, previous = b"", bytes(_BLOCK)
    for at in range(0, len(plain), _BLOCK):
        previous = Cipher(algorithms.AES(key), modes.CTR(previous)).encryptor().update(plain[at : at + _BLOCK])
        done += previous
    return done


def _sized(raw: bytes) -> bytes:
    return len(raw).to_bytes(2, "big") + raw


def _coordinate(value: int) -> bytes:
    return value.to_bytes(P256_BYTES, "big")


def proof(secret: bytes, challenge_id: str, csr_der: bytes) -> bytes:
    """HMAC-SHA256(secret, challengeId as UTF-8 ‖ SHA-256 of the CSR's DER)."""
    return hmac.digest(secret, challenge_id.encode() + hashlib.sha256(csr_der).digest(), "sha256")
