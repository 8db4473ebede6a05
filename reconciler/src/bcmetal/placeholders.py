"""Identifiers made comparable, and those told apart that many machines share. Pure.

A placeholder is what a maker left in place of an identity; a site adds its own in the configuration (`[joining.placeholders]`).
"""

from __future__ import annotations

import re
from itertools import pairwise

_HEX32 = re.compile(r"[0-9a-f]{32}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")

_UUID_PLACEHOLDERS = frozenset(
    {
        "03000200040005000006000700080009",
        "000102030405060708090a0b0c0d0e0f",
        "0102030405060708090a0b0c0d0e0f10",
        "123456781234567890abcddeefaabbcc",
        "12345678123456781234567812345678",
        "10000000000080000040000000000000",
        "4c4c4544000010108010c4c04f313233",
        "3139313835385a433135353130323750",
    }
)
_UUID_PLACEHOLDER_STARTS = ("0123456789abcdef", "deadbeefdead", "ffffff00ffff")
_SERIAL_PLACEHOLDERS = frozenset(
    {
        "",
        "to be filled by o.e.m.",
        "default string",
        "system serial number",
        "chassis serial number",
        "base board serial number",
        "none",
        "n/a",
        "not specified",
        "not applicable",
        "not available",
        "unknown",
        "invalid",
        "oem",
        "enter serial",
        "(null string)",
    }
)
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
        if len(set(digits)) == 1 or len({digits[i : i + 2] for i in range(0, 32, 2)}) == 1:
            return False
        if digits.endswith("0" * 20):
            return False
    return True


def normal_serial(text: str) -> str:
    return " ".join(text.split()).casefold()[:TEXT_LIMIT]


def usable_serial(normal: str) -> bool:
    if normal in _SERIAL_PLACEHOLDERS or len(set(normal)) <= 1 or set(normal) <= {"0", "1"}:
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
