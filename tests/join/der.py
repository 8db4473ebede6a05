"""DER by hand: for requests that no library would write."""

from __future__ import annotations

import base64


def tlv(tag: int, *parts: bytes) -> bytes:
    value = b"".join(parts)
    if len(value) < 128:
        return bytes([tag, len(value)]) + value
    length = len(value).to_bytes((len(value).bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(length)]) + length + value


def sequence(*parts: bytes) -> bytes:
    return tlv(0x30, *parts)


def integer(value: int) -> bytes:
    return tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1))


def bits(value: bytes) -> bytes:
    return tlv(0x03, b"\0", value)


def oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    out = bytes([first * 40 + second])
    for part in rest:
        groups = [part & 127]
        while part := part >> 7:
            groups.append(part & 127 | 128)
        out += bytes(reversed(groups))
    return tlv(0x06, out)


NULL = bytes([5, 0])
RSA = sequence(oid("1.2.840.113549.1.1.1"), NULL)
SHA256_RSA = sequence(oid("1.2.840.113549.1.1.11"), NULL)


def rsa_key(modulus: int, exponent: int) -> bytes:
    return sequence(RSA, bits(sequence(integer(modulus), integer(exponent))))


def extension_request(*extensions: tuple[str, bool, bytes], attribute: str = "1.2.840.113549.1.9.14") -> bytes:
    """One attribute (PKCS#9's by default); each extension is its OID, whether it is critical, and its value."""
    listed = [
        sequence(oid(name), *([tlv(0x01, b"\xff")] if critical else []), tlv(0x04, value))
        for name, critical, value in extensions
    ]
    return sequence(oid(attribute), tlv(0x31, sequence(*listed)))


def request_info(key: bytes, *attributes: bytes, version: int = 0) -> bytes:
    return sequence(integer(version), sequence(), key, tlv(0xA0, *attributes))


def request(info: bytes, signature: bytes, algorithm: bytes = SHA256_RSA) -> bytes:
    return sequence(info, algorithm, bits(signature))


def pem(der: bytes, label: str = "CERTIFICATE REQUEST") -> str:
    text = base64.b64encode(der).decode("ascii")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))
