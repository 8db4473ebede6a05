"""The vault: secrets are sealed before they reach the store, and opened only where they are used.

AES-256-GCM under a subkey of the vault's key for each purpose (HKDF-SHA256), a fresh random 96-bit nonce each time. The associated data
binds a row to what it is for: version, key id, purpose, owner and field, and for a BMC's password also the address and the trust that
it may be sent to. So a row that was moved, or an address that was changed, by SQL does not open.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import SecretStr

from bcmetal.errors import StartRefused, VaultError
from bcmetal.store.values import Sealed

VERSION: Final = "1"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12


def bmc_binding(host: str, trust_kind: str, trust_value: str) -> str:
    """Where a BMC's password may go: its address and how its certificate is trusted."""
    return _joined(host.casefold(), trust_kind, trust_value)


class VaultKey:
    """A key of the vault. Nothing prints it."""

    __slots__ = ("_bytes", "key_id")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise VaultError(f"a vault key is {KEY_BYTES} bytes")
        self._bytes = key
        self.key_id = hashlib.sha256(b"bcmetal vault key id\0" + key).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"VaultKey({self.key_id})"

    def __reduce__(self) -> str:
        raise TypeError("a vault key is not to be copied out of the process")

    def exported(self) -> bytes:
        """For the recovery file alone, which encrypts it."""
        return self._bytes

    def subkey(self, purpose: str) -> bytes:
        return HKDF(SHA256(), KEY_BYTES, salt=None, info=_joined("bcmetal", VERSION, purpose).encode()).derive(
            self._bytes
        )


class Vault:
    """The first key seals; every key opens what it sealed."""

    def __init__(self, keys: Sequence[VaultKey]) -> None:
        if not keys:
            raise VaultError("the vault has no key")
        self._keys = {key.key_id: key for key in keys}
        self._first = keys[0]
        self._subkeys: dict[tuple[str, str], bytes] = {}

    @property
    def key_id(self) -> str:
        """Of the key that seals."""
        return self._first.key_id

    def seal(
        self,
        purpose: str,
        owner_kind: str,
        owner_id: str,
        field: str,
        secret: SecretStr,
        *,
        bind: str = "",
        slot: str = "current",
    ) -> Sealed:
        """`purpose` is bmc, operation, credential or issuer; `bind` is `bmc_binding` for a BMC's. The slot is not bound: candidates become current."""
        key = self._first
        nonce = os.urandom(NONCE_BYTES)
        about = _about(key.key_id, purpose, owner_kind, owner_id, field, bind)
        blob = AESGCM(self._subkey(key, purpose)).encrypt(nonce, secret.get_secret_value().encode(), about)
        return Sealed(owner_kind, owner_id, field, slot, key.key_id, nonce, blob)

    def open(self, sealed: Sealed, purpose: str, bind: str = "") -> SecretStr:
        """Raises VaultError: another key, another row, or another address than it was sealed for."""
        key = self._keys.get(sealed.key_id)
        if key is None:
            raise VaultError(
                f"the {sealed.field} of {sealed.owner_kind} {sealed.owner_id} was sealed by another vault key"
            )
        about = _about(sealed.key_id, purpose, sealed.owner_kind, sealed.owner_id, sealed.field, bind)
        try:
            opened = AESGCM(self._subkey(key, purpose)).decrypt(sealed.nonce, sealed.blob, about)
        except (InvalidTag, ValueError) as error:
            raise VaultError(
                f"the {sealed.field} of {sealed.owner_kind} {sealed.owner_id} does not open: "
                "it was changed, moved, or sealed for another address"
            ) from error
        return SecretStr(opened.decode())

    def digest(self, purpose: str, text: str) -> str:
        """An HMAC: equal for equal texts, and telling nobody without the key what the text was."""
        return hmac.new(self._subkey(self._first, f"digest:{purpose}"), text.encode(), hashlib.sha256).hexdigest()

    def _subkey(self, key: VaultKey, purpose: str) -> bytes:
        known = self._subkeys.get((key.key_id, purpose))
        if known is None:
            known = self._subkeys[key.key_id, purpose] = key.subkey(purpose)
        return known


def _joined(*parts: str) -> str:
    """Unambiguous whatever the parts hold."""
    return "".join(f"{len(part)}:{part}" for part in parts)


def _about(key_id: str, purpose: str, owner_kind: str, owner_id: str, field: str, bind: str) -> bytes:
    return _joined(VERSION, key_id, purpose, owner_kind, owner_id, field, bind).encode()


# ---------------------------------------------------------------- keys


def new_key(path: Path) -> None:
    """Write a new random key to a file of its own, readable by its owner only. Raises FileExistsError."""
    write_key(path, VaultKey(os.urandom(KEY_BYTES)))


def write_key(path: Path, key: VaultKey) -> None:
    """To a file of its own, readable by its owner only. Raises FileExistsError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(key.exported().hex() + "\n")
        file.flush()
        os.fsync(file.fileno())


def load_key(spec: str) -> VaultKey:
    """`file:PATH`, readable by its owner only, or `credential:NAME`, from systemd. Raises StartRefused."""
    kind, _, where = spec.partition(":")
    if kind == "file" and where:
        path = Path(where)
    elif kind == "credential" and where and "/" not in where:
        folder = os.environ.get("CREDENTIALS_DIRECTORY")
        if not folder:
            raise StartRefused(f"the vault key is {spec}, and systemd gave no credentials (LoadCredential={where}:…)")
        path = Path(folder) / where
    else:
        raise StartRefused("the vault key is named as file:PATH or credential:NAME")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if kind == "file" and mode & 0o077:
                raise StartRefused(f"the vault key {path} is readable by others (mode {mode:04o}): chmod 600 it")
            text = file.read(4 * KEY_BYTES)
    except OSError as error:
        raise StartRefused(f"the vault key {path} (daemon.vault_key) cannot be read: {error.strerror}") from error
    try:
        return VaultKey(bytes.fromhex(text.decode("ascii").strip()))
    except (ValueError, VaultError) as error:
        raise StartRefused(f"the vault key {path} is not {KEY_BYTES} bytes in hexadecimal") from error
