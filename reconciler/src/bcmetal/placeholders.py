"""Identifiers made comparable, and those told apart that many machines share. Pure.

A placeholder is what a maker left in place of an identity; a site adds its own in the configuration (`[joining.placeholders]`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

_HEX32 = re.compile(r"[0-9a-f]{32}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")

_UUID_PLACEHOLDERS = frozenset(
    {
        "03000200040005000006000700080009",
        "123456781234567890abcddeefaabbcc",
        "12345678123456781234567812345678",
        "1234567890abcdef1234567890abcdef",
        "112233445566778899aabbccddeeff00",
        "10000000000080000040000000000000",
        "4c4c4544000010108010c4c04f313233",
        "3139313835385a433135353130323750",
    }
)
_UUID_PLACEHOLDER_STARTS = ("0123456789abcdef", "deadbeefdead", "ffffff00ffff")
_SERIAL_PLACEHOLDERS = frozenset(
    {
        "",
        "tobefilledbyoem",
        "tobefilled",
        "defaultstring",
        "default",
        "systemserialnumber",
        "systemserialnumb",
        "chassisserialnumber",
        "baseboardserialnumber",
        "serialnumber",
        "systemserial",
        "sernum0",
        "none",
        "na",
        "nil",
        "null",
        "nullstring",
        "empty",
        "notspecified",
        "notapplicable",
        "notavailable",
        "notpresent",
        "notprovided",
        "notset",
        "notfound",
        "unknown",
        "undefined",
        "unspecified",
        "invalid",
        "oem",
        "enterserial",
        "tbd",
        "0123456789abcdef",
    }
)
_NO_WORD = re.compile(r"[\W_]+")
_MAC_PLACEHOLDER_STARTS = ("00:50:56:c0:", "0a:00:27:00:00:00", "02:00:4e:43:50:49", "00:a0:c6:00:00:00")
TEXT_LIMIT = 128


def swapped(uuid_hex: str) -> str:
    """The same UUID with its first three fields in the other byte order (SMBIOS against Redfish)."""
    raw = bytes.fromhex(uuid_hex)
    return (raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:]).hex()


def normal_uuid(text: str) -> str | None:
    """32 lower-case hex digits, the smaller of both byte orders; None when it is no UUID."""
    digits = text.strip().lower().replace("-", "")
    if not _HEX32.fullmatch(digits):
        return None
    return min(digits, swapped(digits))


def usable_uuid(normal: str) -> bool:
    """Whether a normal UUID can tell one machine from another."""
    for digits in (normal, swapped(normal)):
        if digits in _UUID_PLACEHOLDERS or digits.startswith(_UUID_PLACEHOLDER_STARTS):
            return False
        if _counts(int(one, 16) for one in digits) or _counts(bytes.fromhex(digits), 256):
            return False
        if digits.endswith("0" * 20):
            return False
    return True


def _counts(values: Iterable[int], modulus: int = 16) -> bool:
    """Whether each value is as far from the one before as the next: 00112233…, 0123…, all of one digit."""
    return len({(b - a) % modulus for a, b in pairwise(values)}) == 1


def normal_serial(text: str) -> str:
    return " ".join(text.split()).casefold()[:TEXT_LIMIT]


def usable_serial(normal: str) -> bool:
    bare = _NO_WORD.sub("", normal)  # makers differ in the blanks and dots of these words
    if bare in _SERIAL_PLACEHOLDERS or len(set(bare)) <= 1 or set(bare) <= {"0", "1"}:
        return False
    return not (normal.isdecimal() and all((int(b) - int(a)) % 10 == 1 for a, b in pairwise(normal)))


def normal_mac(text: str) -> str | None:
    mac = text.strip().lower().replace("-", ":")
    if not _MAC.fullmatch(mac):
        return None
    return mac


def usable_mac(mac: str) -> bool:
    first = int(mac[:2], 16)
    if first & 0b11 or mac in ("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"):  # multicast, or locally administered
        return False
    return not mac.startswith(_MAC_PLACEHOLDER_STARTS)


def clean(text: str) -> str:
    """Text from a machine: bounded, and printable."""
    return "".join(c for c in text if c.isprintable())[:TEXT_LIMIT]
