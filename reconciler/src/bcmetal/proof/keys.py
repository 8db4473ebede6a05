"""The key that signs erasure records: made when it is first needed, sealed by the vault, rotated by a person."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from pydantic import SecretStr

from bcmetal.decisions import Micros
from bcmetal.errors import VaultError
from bcmetal.store import proof_keys
from bcmetal.store.proof_keys import FIELD, OWNER, ProofKeyRow
from bcmetal.store.values import Sealed, Store
from bcmetal.vault import Vault

ALGORITHM: Final = "ECDSA P-256, SHA-256"
_ECDSA: Final = ec.ECDSA(SHA256())


@dataclass(frozen=True, slots=True)
class SigningKey:
    key_id: str
    _private: ec.EllipticCurvePrivateKey = field(repr=False)

    def sign(self, raw: bytes) -> bytes:
        """DER, as `openssl dgst` takes it."""
        return self._private.sign(raw, _ECDSA)


@dataclass(frozen=True, slots=True)
class New:
    """A key that is not stored yet."""

    row: ProofKeyRow
    sealed: Sealed = field(repr=False)


def fresh(vault: Vault, now: Micros) -> New:
    private = ec.generate_private_key(ec.SECP256R1())
    key_id = _id_of(private.public_key())
    text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")
    return New(ProofKeyRow(key_id, public, now), vault.seal(OWNER, OWNER, key_id, FIELD, SecretStr(text)))


async def current(store: Store, vault: Vault, now: Micros) -> SigningKey:
    """The key that signs now; a site's first one is made here. Raises VaultError: it does not open, or is not its public half's."""
    there = await store.read(proof_keys.current)
    if there is None:
        new = fresh(vault, now)
        there = await store.write(proof_keys.begin, new.row, new.sealed)
    if there.key is None:
        raise VaultError("the sealed key of erasure records is missing: `bcmetal erasure rotate-key` makes another one")
    try:
        private = load_pem_private_key(vault.open(there.key, OWNER).get_secret_value().encode(), None)
    except ValueError:
        raise VaultError("what is sealed as the key of erasure records is none") from None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or _id_of(private.public_key()) != there.row.key_id:
        raise VaultError("the key of erasure records is another one's")
    return SigningKey(there.row.key_id, private)


def verifies(public_key: str, raw: bytes, signature: bytes) -> bool:
    """What `openssl dgst -sha256 -verify` answers. Raises ValueError for what is no PEM of such a key."""
    public = load_pem_public_key(public_key.encode())
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise ValueError("no ECDSA key")
    try:
        public.verify(signature, raw, _ECDSA)
    except InvalidSignature:
        return False
    return True


def _id_of(public: ec.EllipticCurvePublicKey) -> str:
    return hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
