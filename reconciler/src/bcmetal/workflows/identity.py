"""Who a machine is, by what its BMC says, and a changed machine noticed. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bcmetal.placeholders import (
    clean,
    normal_mac,
    normal_serial,
    normal_uuid,
    usable_mac,
    usable_serial,
    usable_uuid,
)
from bcmetal.store.values import Identifier
from bcmetal_drivers.resources import Identity


def identifiers_of(identity: Identity, source: str) -> tuple[Identifier, ...]:
    """Everything that may tell this machine from another, each with whether it is usable; in a stable order, no value twice."""
    found: dict[tuple[str, str], Identifier] = {}

    def add(kind: str, normal: str | None, raw: str, usable: bool) -> None:
        if normal:
            found.setdefault((kind, normal), Identifier(kind, normal, clean(raw), source, usable))

    if identity.product_uuid:
        normal = normal_uuid(identity.product_uuid)
        add("uuid", normal, identity.product_uuid, normal is not None and usable_uuid(normal))
    for kind, text in (("serial", identity.serial), ("sku", identity.sku)):
        if text:
            serial = normal_serial(clean(text))
            add(kind, serial, text, usable_serial(serial))
    for raw in identity.macs:
        mac = normal_mac(raw)
        add("mac", mac, raw, mac is not None and usable_mac(mac))
    return tuple(found.values())


def identities_shown(identifiers: Iterable[Identifier]) -> dict[str, list[str]]:
    """By kind, as the machine spells them."""
    found: dict[str, list[str]] = {}
    for one in identifiers:
        found.setdefault(one.kind, []).append(one.raw)
    return found


def changed_identity(known: Iterable[Identifier], seen: Identity) -> str | None:
    """A sentence when the machine behind the BMC is not the known one; None when it is, or when nothing tells.

    A usable UUID decides; where both sides have none, the serials do. MACs do not: a replaced NIC is no other machine. Nor does a UUID that
    firmware makes of a NIC's MAC (Supermicro X10 to X13), as long as there are serials.
    """
    known, now = tuple(known), identifiers_of(seen, "bmc")
    differ: dict[str, str] = {}
    for kind in ("uuid", "serial"):
        before = {i.value_norm: i.raw for i in known if i.kind == kind and i.usable}
        after = {i.value_norm: i.raw for i in now if i.kind == kind and i.usable}
        if before and after:
            if before.keys() & after.keys():
                return None
            old, new = before[min(before)], after[min(after)]  # as the machine spells it
            differ[kind] = f"the BMC shows another machine: its {kind} was {old}, and is now {new}"
            if not any(_is_made_of_a_mac(one, (*known, *now)) for one in (*known, *now)):
                break
    return next(iter(differ.values()), None)


def _is_made_of_a_mac(one: Identifier, beside: Iterable[Identifier]) -> bool:
    """Nothing but a MAC behind zeros, or the MAC of one of its NICs in the place of the node (RFC 9562)."""
    if one.kind != "uuid":
        return False
    macs = {i.value_norm.replace(":", "") for i in beside if i.kind == "mac"}
    return one.value_norm.startswith("0" * 20) or one.value_norm[20:] in macs
