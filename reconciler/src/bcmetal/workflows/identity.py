"""Who a machine is: identifiers made comparable, placeholders told apart, and a changed machine noticed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bcmetal.store.values import Identifier
from bcmetal_drivers.capabilities import Identity

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
    return (
        not "0123456789".startswith(normal) and not "123456789".startswith(normal) and normal != "01234567890123456789"
    )


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


def _clean(text: str) -> str:
    return "".join(c for c in text if c.isprintable())[:TEXT_LIMIT]


def identifiers_of(identity: Identity, source: str) -> tuple[Identifier, ...]:
    """Everything that may tell this machine from another, each with whether it is usable; in a stable order, no value twice."""
    found: dict[tuple[str, str], Identifier] = {}

    def add(kind: str, normal: str | None, raw: str, usable: bool) -> None:
        if normal:
            found.setdefault((kind, normal), Identifier(kind, normal, _clean(raw), source, usable))

    if identity.product_uuid:
        normal = normal_uuid(identity.product_uuid)
        add("uuid", normal, identity.product_uuid, normal is not None and usable_uuid(normal))
    for kind, text in (("serial", identity.serial), ("sku", identity.sku)):
        if text:
            serial = normal_serial(_clean(text))
            add(kind, serial, text, usable_serial(serial))
    for raw in identity.macs:
        mac = normal_mac(raw)
        add("mac", mac, raw, mac is not None and usable_mac(mac))
    return tuple(found.values())


def changed_identity(known: Iterable[Identifier], seen: Identity) -> str | None:
    """A sentence when the machine behind the BMC is not the known one; None when it is, or when nothing tells.

    A usable UUID decides; where both sides have none, the serials do. MACs do not: a replaced NIC is no other machine.
    """
    now = identifiers_of(seen, "bmc")
    for kind in ("uuid", "serial"):
        before = {i.value_norm for i in known if i.kind == kind and i.usable}
        after = {i.value_norm for i in now if i.kind == kind and i.usable}
        if before and after:
            if before & after:
                return None
            old, new = sorted(before)[0], sorted(after)[0]
            return f"the BMC shows another machine: its {kind} was {old}, and is now {new}"
    return None
