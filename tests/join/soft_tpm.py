"""What an attacker can do without a TPM: an EK whose private half lies in memory, with which challenges are opened by hand."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from join.tpm_bytes import a_p256_key, an_ak, an_ek, text


def _new_rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@dataclass
class SoftTpm:
    """Indistinguishable from a real one but for its EK, which no maker certified and no list names. `certificate`: DER."""

    key: rsa.RSAPrivateKey = field(default_factory=_new_rsa)
    ak: bytes = field(default_factory=lambda: an_ak(a_p256_key()))
    certificate: bytes | None = None

    def __post_init__(self) -> None:
        self.ek = an_ek(self.key)

    @property
    def ek_sha256(self) -> str:
        spki = self.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return hashlib.sha256(spki).hexdigest()

    def says(self, **over: bytes) -> dict[str, Any]:
        """The field `tpm` of the join call."""
        shown = {"ekPublic": self.ek, "akPublic": self.ak} | over
        if self.certificate is not None:
            shown.setdefault("ekCertificate", self.certificate)
        return {name: text(value) for name, value in shown.items()}

    def opens(self, challenge: dict[str, Any]) -> bytes:
        """TPM2_ActivateCredential (TPM 2.0 Library, Part 1, section 24). Raises ValueError where it is for another EK."""
        blob = base64.b64decode(challenge["credentialBlob"])
        wrapped = base64.b64decode(challenge["encryptedSecret"])
        oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), label=b"IDENTITY\0")
        seed = self.key.decrypt(wrapped[2:], oaep)
        name = bytes.fromhex("000b") + hashlib.sha256(self.ak[2:]).digest()
        key = _kdf(seed, b"STORAGE\0" + name, 128)[:16]
        return _cfb(key, blob[2 + 2 + 32 :])[2:]

    def proves(self, challenge: dict[str, Any], csr: str, secret: bytes | None = None) -> dict[str, str]:
        """The field `challenge` of the next call."""
        return proof_for(challenge, csr, self.opens(challenge) if secret is None else secret)


def proof_for(challenge: dict[str, Any], csr: str, secret: bytes) -> dict[str, str]:
    der = x509.load_pem_x509_csr(csr.encode()).public_bytes(serialization.Encoding.DER)
    id_ = challenge["challengeId"]
    message = id_.encode() + hashlib.sha256(der).digest()
    return {"challengeId": id_, "proof": text(hmac.digest(secret, message, "sha256"))}


def _kdf(seed: bytes, label_and_context: bytes, bits: int) -> bytes:
    message = b"\0\0\0\x01" + label_and_context + bits.to_bytes(4, "big")
    return hmac.digest(seed, message, "sha256")


def _cfb(key: bytes, sealed: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305  CFB is made of it
    opened, before = b"", bytes(16)
    for at in range(0, len(sealed), 16):
        block = sealed[at : at + 16]
        opened += bytes(a ^ b for a, b in zip(block, encryptor.update(before), strict=False))
        before = block
    return opened
