"""The BMC itself: its restart, its network, and the ways to the serial console that it offers."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import sushy.exceptions

from bcmetal_drivers.errors import Refused, Unsupported
from bcmetal_drivers.redfish_actions import action
from bcmetal_drivers.redfish_around import managers
from bcmetal_drivers.redfish_document import Doc, dig, link, number, objects, text
from bcmetal_drivers.redfish_nics import mac_of
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.refusals import refusal
from bcmetal_drivers.resources import BmcInterface, ConsoleAccess

RESET: Final = "#Manager.Reset"
SOFT, HARD = "GracefulRestart", "ForceRestart"
ADDRESSES: Final = 32
PORTS: Final = {"SSH": 22, "IPMI": 623, "Telnet": 23}
KINDS: Final = {"SSH": "ssh", "IPMI": "ipmi-sol", "Telnet": "telnet"}


# ---------------------------------------------------------------- restart


def reset(tree: Tree, hard: bool) -> None:
    """Sent once. A BMC that offers one kind of restart only does that one: both restart it."""
    for _, manager in managers(tree):
        found = action(manager, RESET)
        if found is None:
            continue
        offered = found.allowed(tree, "ResetType")
        words = (HARD, SOFT) if hard else (SOFT, HARD)
        fitting = [word for word in words if offered is None or word in offered]
        if not fitting:
            raise Unsupported(f"{tree.address}: the BMC offers no restart of itself, it offers {offered}")
        for word in fitting if offered is None else fitting[:1]:
            try:
                tree.act(found.target, {"ResetType": word})
                return
            except sushy.exceptions.BadRequestError as error:
                if offered is not None or not isinstance(refusal(error.answer), Refused):
                    raise
        raise Unsupported(f"{tree.address}: the BMC takes neither {SOFT} nor {HARD} for a restart of itself")
    raise Unsupported(f"{tree.address}: the BMC offers no restart of itself")


# ---------------------------------------------------------------- network


def network(tree: Tree) -> tuple[BmcInterface, ...]:
    """Of all managers of the system. Raises Unsupported where none shows an interface."""
    found: dict[str, BmcInterface] = {}
    for _, manager in managers(tree):
        for path, doc in tree.documents(link(manager, "EthernetInterfaces")):
            found[path] = _interface(path, doc)
    if not found:
        raise Unsupported(f"{tree.address}: the BMC shows no network settings")
    return tuple(found.values())


def _interface(path: str, doc: Doc) -> BmcInterface:
    dhcp = dig(doc, "DHCPv4", "DHCPEnabled")
    origins = {text(one, "AddressOrigin") for one in objects(doc, "IPv4Addresses", limit=ADDRESSES)} - {None}
    vlan = number(doc, "VLAN", "VLANId") if dig(doc, "VLAN", "VLANEnable") is True else None
    gateways = (_address(text(one, "Gateway")) for one in objects(doc, "IPv4Addresses", limit=ADDRESSES))
    return BmcInterface(
        name=text(doc, "Id") or path.rpartition("/")[2],
        mac=mac_of(text(doc, "PermanentMACAddress")) or mac_of(text(doc, "MACAddress")),
        ipv4=tuple(
            _with_prefix(one, text(one, "SubnetMask"))
            for one in objects(doc, "IPv4Addresses", limit=ADDRESSES)
            if _told(one)
        ),
        ipv6=tuple(
            _with_prefix(one, number(one, "PrefixLength"))
            for one in objects(doc, "IPv6Addresses", limit=ADDRESSES)
            if _told(one)
        ),
        gateway=next((gateway for gateway in gateways if gateway), None),
        dhcp=dhcp if isinstance(dhcp, bool) else ("DHCP" in origins if origins else None),
        vlan=int(vlan) if vlan is not None and 0 < vlan < 4095 else None,
        hostname=text(doc, "HostName") or text(doc, "FQDN"),
    )


def _told(entry: Doc) -> bool:
    return _address(text(entry, "Address")) is not None


def _address(said: str | None) -> str | None:
    """None for what is no address, and for the unset one."""
    with suppress(ValueError):
        found = ipaddress.ip_address(said or "")
        return None if found.is_unspecified else str(found)
    return None


def _with_prefix(entry: Doc, prefix: str | float | None) -> str:
    address = _address(text(entry, "Address")) or ""
    if prefix is not None:
        with suppress(ValueError):
            written = f"{prefix:g}" if isinstance(prefix, float) else prefix
            return str(ipaddress.ip_interface(f"{address}/{written}"))
    return address


# ---------------------------------------------------------------- serial console


def consoles(tree: Tree, typed_at_ssh: str = "") -> tuple[ConsoleAccess, ...]:
    """`typed_at_ssh`: what this maker's shell wants, where the BMC does not say it itself."""
    system = tree.system()
    seen: dict[str, ConsoleAccess] = {}
    for _, manager in managers(tree):
        protocol = tree.find(link(manager, "NetworkProtocol"))
        for way in (*_of_system(tree, system, protocol), *_of_manager(tree, manager, protocol, typed_at_ssh)):
            known = seen.get(way.kind)
            if known is None or (way.how and not known.how):
                seen[way.kind] = way
        if dig(manager, "GraphicalConsole", "ServiceEnabled") is True:
            seen.setdefault("web", ConsoleAccess("web", tree.address.host, tree.address.port))
    return tuple(seen[kind] for kind in ("ssh", "ipmi-sol", "telnet", "web") if kind in seen)


def _of_system(tree: Tree, system: Doc, protocol: Doc | None) -> Iterator[ConsoleAccess]:
    """ComputerSystem v1.13 and later: each way with its port and what to type there."""
    for name, kind in KINDS.items():
        way = dig(system, "SerialConsole", name)
        if dig(way, "ServiceEnabled") is True and dig(protocol, name, "ProtocolEnabled") is not False:
            typed = text(way, "ConsoleEntryCommand")
            leave = text(way, "HotKeySequenceDisplay")
            how = " · ".join(part for part in (typed and f"type: {typed}", leave) if part)
            yield ConsoleAccess(kind, tree.address.host, _port(way, protocol, name), how)


def _of_manager(tree: Tree, manager: Doc, protocol: Doc | None, typed: str) -> Iterator[ConsoleAccess]:
    """Where the shell is the only thing that SSH reaches, it counts when it is known what leads on from there."""
    console, shell = dig(manager, "SerialConsole"), dig(manager, "CommandShell")
    for name, kind in KINDS.items():
        if dig(protocol, name, "ProtocolEnabled") is False:
            continue
        how = f"type: {typed}" if name == "SSH" and typed else ""
        direct = dig(console, "ServiceEnabled") is True and name in _words(console)
        by_shell = name == "SSH" and typed and dig(shell, "ServiceEnabled") is True and name in _words(shell)
        if direct or by_shell:
            yield ConsoleAccess(kind, tree.address.host, _port(None, protocol, name), how)


def _words(console: Any) -> list[Any]:
    listed = dig(console, "ConnectTypesSupported")
    return listed if isinstance(listed, list) else []


def _port(way: Any, protocol: Doc | None, name: str) -> int:
    for port in (number(way, "Port"), number(protocol, name, "Port")):
        if port is not None and 0 < port < 65536:
            return int(port)
    return PORTS[name]
