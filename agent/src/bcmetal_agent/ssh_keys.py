"""What may stand in a rescue account: public keys and a password's hash, in strict forms. None of it is ever shown.

Shared with the daemon, which refuses at once what the agent would.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

_RSA_BITS: Final = range(2048, 16385)
# No options before the type: `command=`, `from=` and their like would be somebody's wishes, and dropbear knows them.
_LINE: Final = re.compile(r"(?P<kind>[a-z0-9@.-]{1,64}) (?P<blob>[A-Za-z0-9+/]{32,4000}={0,2})(?: [^\x00-\x1f\x7f]*)?")
_KINDS: Final = frozenset({"ssh-ed25519", "ssh-rsa", *(f"ecdsa-sha2-nistp{bits}" for bits in (256, 384, 521))})
_FIELDS: Final = {"sk-ssh-ed25519@openssh.com": 3, "sk-ecdsa-sha2-nistp256@openssh.com": 4}  # OpenSSH's PROTOCOL.u2f
# crypt(5): yescrypt, gost-yescrypt, scrypt, bcrypt, SHA-512, SHA-256. Neither DES nor MD5.
_HASH: Final = re.compile(r"\$(?:(?:y|gy|7|6|5)\$[./A-Za-z0-9$=,]{20,400}|2[aby]\$\d\d\$[./A-Za-z0-9]{53})")


def key_line(text: str) -> str:
    """Type and key of one line as in authorized_keys; the comment is dropped. Raises ValueError."""
    found = _LINE.fullmatch(text.strip(" \n"))
    if found is None:
        raise ValueError("a key is its type, a space and base64; options before it are not taken")
    kind, blob = found.group("kind"), found.group("blob")
    try:
        raw = base64.b64decode(blob, validate=True)
    except binascii.Error:
        raise ValueError("a key is not base64") from None
    if kind in _FIELDS:
        fields = _fields(raw)
        if len(fields) != _FIELDS[kind] or fields[0] != kind.encode():
            raise ValueError(f"a key is no {kind}")
    elif kind in _KINDS:
        try:
            key = load_ssh_public_key(f"{kind} {blob}".encode())
        except (ValueError, UnsupportedAlgorithm):
            raise ValueError(f"a key is no {kind}") from None
        if isinstance(key, RSAPublicKey) and key.key_size not in _RSA_BITS:
            raise ValueError("an RSA key has fewer than 2048 bits, or more than 16384")
    else:
        raise ValueError("a key is of a type that is not taken: ssh-ed25519, ecdsa-sha2-nistp*, ssh-rsa and sk-* are")
    return f"{kind} {blob}"


def password_hash(text: str) -> str:
    """Raises ValueError."""
    if not _HASH.fullmatch(text):
        raise ValueError(
            "the password's hash is not in a form of crypt(5) that is taken: yescrypt, scrypt, bcrypt, SHA-512, SHA-256"
        )
    return text


def fingerprint(line: str) -> str:
    """As ssh shows it."""
    digest = hashlib.sha256(base64.b64decode(line.split(" ")[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _fields(raw: bytes) -> list[bytes]:
    """RFC 4251, section 5: strings with their length before them; nothing where that does not come out even."""
    found, at = [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "big")
        if at + 4 + size > len(raw):
            return []
        found.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    return found
