"""The baseline of a Redfish BMC, and what of it can be put back: what must be the same when a tenant hands the machine back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bcmetal_drivers import redfish_access
from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import MaybeSent, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.redfish_accounts import accounts, service
from bcmetal_drivers.redfish_bios import bios, offered, registry
from bcmetal_drivers.redfish_boot import mode_of, secure_boot_of
from bcmetal_drivers.redfish_document import Doc, dig, flag, link, number, printable, text
from bcmetal_drivers.redfish_firmware import firmware
from bcmetal_drivers.redfish_nics import mac_of
from bcmetal_drivers.redfish_sections import Sections
from bcmetal_drivers.redfish_settings import named_settings
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import Account, BiosValue

SERVICES: Final = ("HTTP", "HTTPS", "IPMI", "SSH", "SNMP", "Telnet", "KVMIP", "VirtualMedia", "SSDP", "RFB", "RDP")
GIVEN: Final = ("DHCP", "BOOTP", "SLAAC", "DHCPv6", "LinkLocal", "IPv4LinkLocal")  # an address that nobody chose here
OPTIONS_LIMIT: Final = 60
DATABASES_LIMIT: Final = 12
TRIES: Final = 3


def baseline(tree: Tree) -> Mapping[str, object]:
    """Plain JSON. A section that could not be read is None, and `sections` says why.

    What fails now may be there a moment later, and "shows it no more" would be a difference: it is raised, at most so many times in a row.
    """
    with tree.reading():
        return _baseline(tree)


def _baseline(tree: Tree) -> Mapping[str, object]:
    system = tree.system()
    sections = Sections(tree)
    managers = sections.read("managers", lambda: [doc for doc in map(tree.find, tree.manager_paths()) if doc]) or []
    found: dict[str, object] = {
        "accounts": sections.read("accounts", lambda: [_kept(account) for account in accounts(tree)]),
        "directories": sections.read("directories", lambda: _directories(tree)),
        "network": sections.read("network", lambda: [_network(tree, doc) for doc in managers]),
        "services": sections.read("services", lambda: [_services(tree, doc) for doc in managers]),
        "subscriptions": sections.read("subscriptions", lambda: [where for _, where in _subscriptions(tree)]),
        "firmware": sections.read(
            "firmware", lambda: {part.name: part.version for part in firmware(tree) if part.version}
        ),
        "bmc": [{"model": text(doc, "Model"), "firmware": text(doc, "FirmwareVersion")} for doc in managers],
        "boot": sections.read("boot", lambda: _boot(tree, system)),
        "secureBoot": sections.read("secureBoot", lambda: secure_boot_of(tree.find(link(system, "SecureBoot")))),
        "secureBootKeys": sections.read("secureBootKeys", lambda: _keys(tree, system)),
        "certificate": tree.door.certificate_fp,
        **_access(tree, sections, managers, system),
    }
    if offered(system):
        found |= sections.read("bios", lambda: _bios(tree, system)) or {"bios": None}
    tries = tree.learned.pop("baseline tries", 0)
    if sections.passing is not None and tries < TRIES:
        tree.learned["baseline tries"] = tries + 1
        raise sections.passing
    return {**found, "sections": sections.status}


def _access(tree: Tree, sections: Sections, managers: Sequence[Doc], system: Doc) -> dict[str, object]:
    access = redfish_access
    return {
        "accountSettings": sections.read("accountSettings", lambda: access.of_accounts(tree)),
        "accountRules": sections.read("accountRules", lambda: access.of_the_service(tree)),
        "roles": sections.read("roles", lambda: access.of_roles(tree)),
        "directorySettings": sections.read("directorySettings", lambda: access.of_directories(tree)),
        "networkSettings": sections.read("networkSettings", lambda: [access.of_the_network(tree, d) for d in managers]),
        "protocols": sections.read("protocols", lambda: [access.of_protocols(tree, doc) for doc in managers]),
        "managerSettings": sections.read("managerSettings", lambda: [access.of_the_manager(tree, d) for d in managers]),
        "eventSettings": sections.read("eventSettings", lambda: access.of_events(tree)),
        "bootSettings": sections.read("bootSettings", lambda: access.of_the_boot(system)),
        "secureBootCertificates": sections.read("secureBootCertificates", lambda: access.of_keys(tree, system)),
    }


def _kept(account: Account) -> Mapping[str, object]:
    """What must be the same: not whether it is locked now, nor when its password ends."""
    return {name: getattr(account, name) for name in ("slot", "username", "role", "enabled")}


def _directories(tree: Tree) -> Mapping[str, object]:
    _, doc = service(tree)
    return {name: _directory(doc, name) for name in redfish_access.DIRECTORIES if isinstance(dig(doc, name), dict)}


def _directory(doc: Doc, name: str) -> dict[str, object]:
    addresses = dig(doc, name, "ServiceAddresses")
    listed = [printable(str(address)[:256]) for address in addresses[:20]] if isinstance(addresses, list) else []
    return {"enabled": flag(doc, name, "ServiceEnabled") is True, "addresses": listed}


def _network(tree: Tree, manager: Doc) -> list[dict[str, Any]]:
    """Addresses that the network gives are told by their origin alone: a lease may be another one tomorrow."""
    return [
        {
            "mac": mac_of(text(doc, "PermanentMACAddress") or text(doc, "MACAddress")),
            "hostname": text(doc, "HostName"),
            "ipv4": _addresses(doc, "IPv4Addresses"),
            "ipv6": _addresses(doc, "IPv6Addresses"),
            "given": _origins(doc),
            "vlan": number(doc, "VLAN", "VLANId") if dig(doc, "VLAN", "VLANEnable") is True else None,
        }
        for _, doc in tree.documents(link(manager, "EthernetInterfaces"))
    ]


def _entries(doc: Doc, key: str) -> list[Any]:
    listed = dig(doc, key)
    return listed[:32] if isinstance(listed, list) else []


def _addresses(doc: Doc, key: str) -> list[str]:
    found = (text(entry, "Address") for entry in _entries(doc, key) if text(entry, "AddressOrigin") not in GIVEN)
    return [address for address in found if address and address not in ("0.0.0.0", "::")]  # noqa: S104  # not bound: empty slots


def _origins(doc: Doc) -> list[str]:
    entries = (*_entries(doc, "IPv4Addresses"), *_entries(doc, "IPv6Addresses"))
    found = {text(entry, "AddressOrigin") for entry in entries if text(entry, "Address") not in (None, "0.0.0.0", "::")}  # noqa: S104  # as above
    return sorted(origin for origin in found if origin in GIVEN)


def _services(tree: Tree, manager: Doc) -> Mapping[str, object]:
    protocol = tree.find(link(manager, "NetworkProtocol"))
    return {name: _switch(dig(protocol, name)) for name in SERVICES if isinstance(dig(protocol, name), dict)}


def _switch(protocol: Doc) -> bool | str | None:
    """Whether it is on; in the BMC's word where that is neither true nor false."""
    shown = flag(protocol, "ProtocolEnabled")
    return text(protocol, "ProtocolEnabled") if shown is None else shown


def _subscriptions(tree: Tree) -> Iterator[tuple[str, str]]:
    """Path and destination; what has none is a line that its client holds open."""
    events = tree.find(link(tree.root(), "EventService"))
    for path, doc in tree.documents(link(events, "Subscriptions")):
        destination = text(doc, "Destination", limit=1024)
        if destination:
            yield path, destination


def _boot(tree: Tree, system: Doc) -> Mapping[str, object]:
    mode = mode_of(system)
    return {"mode": mode.value if mode else None, "order": _order(system), "options": _options(tree, system)}


def _order(system: Doc) -> list[str] | None:
    order = dig(system, "Boot", "BootOrder")
    return [printable(str(entry)[:256]) for entry in order[:100]] if isinstance(order, list) else None


def _options(tree: Tree, system: Doc) -> dict[str, str] | None:
    """UEFI device path of each boot entry, by its reference."""
    collection = link(system, "Boot", "BootOptions")
    if collection is None:
        return None
    found: dict[str, str] = {}
    for path, doc in tree.documents(collection):
        reference = text(doc, "BootOptionReference") or path.rpartition("/")[2]
        found[reference] = text(doc, "UefiDevicePath", limit=512) or text(doc, "DisplayName") or ""
        if len(found) >= OPTIONS_LIMIT:
            break
    return found


def _keys(tree: Tree, system: Doc) -> Mapping[str, object] | None:
    """How many certificates and signatures each database of UEFI keys has, and the mode that they leave the firmware in."""
    doc = tree.find(link(system, "SecureBoot"))
    if doc is None:
        return None
    found: dict[str, object] = {"mode": text(doc, "SecureBootMode")}
    for n, (path, database) in enumerate(tree.documents(link(doc, "SecureBootDatabases"))):
        if n >= DATABASES_LIMIT:
            break
        name = text(database, "DatabaseId") or text(database, "Id") or path.rpartition("/")[2]
        found[name] = [_count(tree, link(database, kind)) for kind in ("Certificates", "Signatures")]
    return found


def _count(tree: Tree, path: str | None) -> int | None:
    doc = tree.find(path)
    count = number(doc, "Members@odata.count")
    return int(count) if count is not None else None


def _bios(tree: Tree, system: Doc) -> dict[str, object]:
    """What can be written: what the firmware only tells (its own version, the memory that it counts) is no setting."""
    state = bios(tree)
    entries = registry(tree, tree.find(link(system, "Bios")) or {})
    settings: dict[str, BiosValue] = {
        name: value for name, value in state.attributes.items() if dig(entries.get(name), "ReadOnly") is not True
    }
    return {"bios": settings, "biosPending": dict(state.pending)}


# ---------------------------------------------------------------- put back


def set_directory(tree: Tree, name: str, enabled: bool, addresses: tuple[str, ...]) -> None:
    path, doc = service(tree)
    if not isinstance(dig(doc, name), dict):
        raise Unsupported(f"{tree.address}: the BMC shows no directory {name}")

    def as_asked(shown: Doc) -> bool:
        now = _directory(shown, name)
        return now["enabled"] is enabled and (not enabled or now["addresses"] == list(addresses))

    if as_asked(doc):
        return
    body: dict[str, object] = {"ServiceEnabled": enabled}
    if enabled:
        body["ServiceAddresses"] = list(addresses)
    with tolerated(MaybeSent):
        tree.patch(path, {name: body})
    if not as_asked(service(tree)[1]):
        raise NotAsAsked(f"{tree.door.origin}{path}: directory {name} is not as asked")


def remove_subscription(tree: Tree, destination: str) -> None:
    for path, where in list(_subscriptions(tree)):
        if where == destination:
            with tolerated(MaybeSent, Refused):
                tree.door.delete(path)
    if any(where == destination for _, where in _subscriptions(tree)):
        raise NotAsAsked(f"{tree.address}: an event subscription is still there after its removal")


def set_service(tree: Tree, name: str, on: bool) -> None:
    """On each manager that has it."""
    found = False
    for manager in map(tree.find, tree.manager_paths()):
        path = link(manager, "NetworkProtocol")
        doc = tree.find(path)
        if path is None or not isinstance(dig(doc, name), dict):
            continue
        found = True
        if flag(doc, name, "ProtocolEnabled") is on:
            continue
        with tolerated(MaybeSent):
            tree.patch(path, {name: {"ProtocolEnabled": on}})
        if flag(tree.find(path), name, "ProtocolEnabled") is not on:
            raise NotAsAsked(f"{tree.door.origin}{path}: {name} is not {'on' if on else 'off'}")
    if not found:
        raise Unsupported(f"{tree.address}: the BMC shows no protocol {name}")


def set_boot_order(tree: Tree, order: tuple[str, ...]) -> None:
    """Some show it from the next boot on alone; then it stands in the system's Settings resource."""
    path = tree.system_path()
    if _order(tree.system()) is None:
        raise Unsupported(f"{tree.address}: the BMC shows no boot order")
    if _order(tree.system()) == list(order):
        return
    with tolerated(MaybeSent):
        tree.patch(path, {"Boot": {"BootOrder": list(order)}})
    system = tree.system()
    ahead = tree.find(named_settings(system))
    if list(order) not in (_order(system), _order(ahead or {})):
        raise NotAsAsked(f"{tree.door.origin}{path}: the boot order is not as asked")
