"""The vault's key under a code that a person keeps: without it, or the key itself, no sealed password is ever read again.

The code is random, 160 bits, and shown once. The file is worth nothing without it, and may lie beside backups, which never hold the key.
Recovery counts as exercised once that file and that code gave back the key that seals now, and it opened what is sealed.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import SecretStr

from bcmetal.errors import VaultError
from bcmetal.vault import KEY_BYTES, NONCE_BYTES, VaultKey

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no I, L, O, U
CODE_LENGTH: Final = 32
GROUP: Final = 4
VERSION: Final = 1
_LOOKS_LIKE: Final = str.maketrans("ILO", "110")


def new_code() -> SecretStr:
    """In groups of four, to be written down."""
    text = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
    return SecretStr("-".join(text[n : n + GROUP] for n in range(0, CODE_LENGTH, GROUP)))


def recovery_file(key: VaultKey, code: SecretStr) -> str:
    nonce = os.urandom(NONCE_BYTES)
    blob = AESGCM(_wrapping(code)).encrypt(nonce, key.exported(), _about(key.key_id))
    doc = {"bcmetalVaultRecovery": VERSION, "keyId": key.key_id, "nonce": nonce.hex(), "key": blob.hex()}
    return json.dumps(doc, indent=2) + "\n"


def recovered(text: str, code: SecretStr) -> VaultKey:
    """Raises VaultError: no such file, or not with this code."""
    try:
        doc = json.loads(text)
        if doc["bcmetalVaultRecovery"] != VERSION:
            raise VaultError("the recovery file is of another version of bcmetal")
        key_id, nonce, blob = str(doc["keyId"]), bytes.fromhex(doc["nonce"]), bytes.fromhex(doc["key"])
    except (ValueError, KeyError, TypeError) as error:
        raise VaultError("this is no recovery file of the vault") from error
    try:
        key = VaultKey(AESGCM(_wrapping(code)).decrypt(nonce, blob, _about(key_id)))
    except (InvalidTag, ValueError) as error:
        raise VaultError("the recovery file does not open with this code") from error
    if key.key_id != key_id:
        raise VaultError("the recovery file names another key than it holds")
    return key


def _wrapping(code: SecretStr) -> bytes:
    """Case, dashes and what looks alike do not count. The code is random, so that no slow hash is needed."""
    text = code.get_secret_value().upper().replace("-", "").replace(" ", "").translate(_LOOKS_LIKE)
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"bcmetal vault recovery").derive(text.encode())


def _about(key_id: str) -> bytes:
    return f"bcmetal vault recovery\0{VERSION}\0{key_id}".encode()
