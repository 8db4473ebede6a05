"""How a deployed machine's network is described to its cloud-init: a small description of our own, rendered for both kinds of config drive.

    {"interfaces": [{"mac": "52:54:00:00:00:01", "addresses": ["192.0.2.7/24"], "gateways": ["192.0.2.1"], "dns": ["192.0.2.53"]}],
     "bonds": [{"name": "bond0", "of": ["52:54:00:00:00:02", "52:54:00:00:00:03"], "mode": "802.3ad", "dhcp4": true}],
     "vlans": [{"id": 42, "on": "bond0", "addresses": ["2001:db8::7/64"]}]}

cloud-init's own network configuration (version 1 or 2) is passed on as it is on a NoCloud drive, OpenStack's network_data.json on a config-2
drive. What is rendered is JSON, which every reader of YAML reads.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from bcmetal.errors import Fault, InvalidInput

FIELD: Final = "networkData"
NAME_LIMIT: Final = 15  # of an interface, Linux's IFNAMSIZ
_VERSION: Final = re.compile(r"^ *version: *[12] *(?:#.*)?$", re.MULTILINE)
_WORDS: Final = {
    "extra_forbidden": "is not known here",
    "missing": "is missing",
    "string_pattern_mismatch": "is not of the form that it must have",
}
FAULT_LIMIT: Final = 20
PATH_LIMIT: Final = 120  # a key is the caller's text
_ANYWHERE: Final = {4: "0.0.0.0/0", 6: "::/0"}


def _interface(value: str) -> str:
    if "/" not in value:
        raise ValueError("needs its prefix length, as in 192.0.2.7/24")
    return str(ip_interface(value))


def _address(value: str) -> str:
    return str(ipaddress.ip_address(value))


Mac = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}$", to_lower=True)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.-]{0,14}$")]
Interface = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f:./]{3,64}$"), AfterValidator(_interface)]
Address = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f:.]{2,64}$"), AfterValidator(_address)]
Mode = Literal["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class _Link(_Part):
    """`gateways`: at most one of IPv4 and one of IPv6."""

    dhcp4: bool = False
    dhcp6: bool = False
    addresses: Annotated[tuple[Interface, ...], Field(max_length=32)] = ()
    gateways: Annotated[tuple[Address, ...], Field(max_length=2)] = ()
    dns: Annotated[tuple[Address, ...], Field(max_length=8)] = ()
    mtu: int | None = Field(None, ge=576, le=65_535)

    @model_validator(mode="after")
    def _gateways(self) -> _Link:
        versions = [ipaddress.ip_address(one).version for one in self.gateways]
        if len(set(versions)) != len(versions):
            raise ValueError("two gateways of one version of IP")
        if not set(versions) <= {one.version for one in self.parsed()}:
            raise ValueError("a gateway needs an address of its version of IP")
        return self

    def parsed(self) -> list[IPv4Interface | IPv6Interface]:
        return [ip_interface(one) for one in self.addresses]

    def gateway(self, version: int) -> str | None:
        return next((one for one in self.gateways if ipaddress.ip_address(one).version == version), None)


class Nic(_Link):
    """`name`: what the interface is to be called."""

    mac: Mac
    name: Name | None = None


class Bond(_Link):
    """`of`: MAC addresses of interfaces, which need not be listed as such."""

    name: Name
    of: Annotated[tuple[Mac, ...], Field(min_length=1, max_length=16)]
    mode: Mode = "active-backup"


class Vlan(_Link):
    """`on`: a bond's name or an interface's MAC address."""

    id: int = Field(ge=1, le=4094)
    on: Annotated[str, StringConstraints(max_length=17)]


class Network(_Part):
    interfaces: Annotated[tuple[Nic, ...], Field(max_length=64)] = ()
    bonds: Annotated[tuple[Bond, ...], Field(max_length=16)] = ()
    vlans: Annotated[tuple[Vlan, ...], Field(max_length=128)] = ()

    @model_validator(mode="after")
    def _whole(self) -> Network:
        macs = [nic.mac for nic in self.interfaces]
        if len(set(macs)) != len(macs):
            raise ValueError("one MAC address is there twice")
        members = [mac for bond in self.bonds for mac in bond.of]
        if len(set(members)) != len(members):
            raise ValueError("one MAC address is in two bonds")
        if not macs and not members:
            raise ValueError("there is no interface")
        ids = list(self.ids().values()) + [bond.name for bond in self.bonds]
        if len(set(ids)) != len(ids):
            raise ValueError("one name is there twice")
        for vlan in self.vlans:
            if vlan.on.lower() not in self.ids() and vlan.on not in ids:
                raise ValueError(f"VLAN {vlan.id} is on none of the interfaces and bonds")
        vlans = [self.vlan_name(vlan) for vlan in self.vlans]
        if len(set(vlans)) != len(vlans):
            raise ValueError("one VLAN is there twice")
        if any(len(name) > NAME_LIMIT for name in vlans):
            raise ValueError(
                f"the name of a VLAN's link has more than {NAME_LIMIT} characters: shorten the interface's"
            )
        return self

    def ids(self) -> dict[str, str]:
        """MAC → what the interface is called within the description."""
        names = {nic.mac: nic.name for nic in self.interfaces}
        macs = dict.fromkeys((*names, *(mac for bond in self.bonds for mac in bond.of)))
        return {mac: names.get(mac) or f"nic{n}" for n, mac in enumerate(macs)}

    def parent(self, vlan: Vlan) -> str:
        return self.ids().get(vlan.on.lower(), vlan.on)

    def vlan_name(self, vlan: Vlan) -> str:
        return f"{self.parent(vlan)}.{vlan.id}"


# ---------------------------------------------------------------- what was given


def network_config(text: str) -> str:
    """The file network-config of a NoCloud drive. Raises InvalidInput."""
    doc = _read(text)
    if isinstance(doc, Network):
        return _json(version_2(doc))
    if doc is None:
        if _VERSION.search(text) is None:
            raise _fault("is neither JSON nor YAML of cloud-init's network configuration (`version: 2`)")
        return text
    inner = doc.get("network", doc)
    if not isinstance(inner, dict) or str(inner.get("version")) not in ("1", "2"):
        raise _fault("has neither `interfaces` nor the `version` (1 or 2) of cloud-init's network configuration")
    return text


def network_data(text: str) -> str:
    """The file network_data.json of a config-2 drive. Raises InvalidInput."""
    doc = _read(text)
    if isinstance(doc, Network):
        return _json(openstack(doc))
    if doc is None or not isinstance(doc.get("links"), list) or not isinstance(doc.get("networks"), list):
        raise _fault("must be JSON for a config-2 drive: with `interfaces`, or OpenStack's `links` and `networks`")
    return text


def _read(text: str) -> Network | dict[str, Any] | None:
    """None: no JSON."""
    try:
        doc = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(doc, dict):
        raise _fault("is no JSON object")
    if "interfaces" not in doc and "bonds" not in doc:
        return doc
    try:
        return Network.model_validate_json(text)
    except ValidationError as error:
        raise InvalidInput(_faults(error)) from None


def _faults(error: ValidationError) -> list[Fault]:
    found: dict[str, Fault] = {}
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        path = ".".join((FIELD, *map(str, detail["loc"])))
        words = _WORDS.get(detail["type"], detail["msg"].removeprefix("Value error, "))
        found.setdefault(path, Fault(path[:PATH_LIMIT], words[:1].lower() + words[1:]))
    return list(found.values())[:FAULT_LIMIT]


def _fault(message: str) -> InvalidInput:
    return InvalidInput([Fault(FIELD, message)])


def _json(doc: dict[str, Any]) -> str:
    return json.dumps(doc, indent=1) + "\n"


# ---------------------------------------------------------------- cloud-init, version 2


def version_2(network: Network) -> dict[str, Any]:
    """https://cloudinit.readthedocs.io/en/latest/reference/network-config-format-v2.html; default routes as old versions read them, too."""
    ids = network.ids()
    by_mac = {nic.mac: nic for nic in network.interfaces}
    ethernets: dict[str, Any] = {}
    for mac, name in ids.items():
        nic = by_mac.get(mac)
        ethernets[name] = {"match": {"macaddress": mac}}
        if nic is not None:
            ethernets[name] |= ({"set-name": nic.name} if nic.name else {}) | _addressing_2(nic)
    doc: dict[str, Any] = {"version": 2, "ethernets": ethernets}
    if network.bonds:
        doc["bonds"] = {
            bond.name: {
                "interfaces": [ids[mac] for mac in bond.of],
                "parameters": {"mode": bond.mode, "mii-monitor-interval": 100},
                **_addressing_2(bond),
            }
            for bond in network.bonds
        }
    if network.vlans:
        doc["vlans"] = {
            network.vlan_name(vlan): {"id": vlan.id, "link": network.parent(vlan), **_addressing_2(vlan)}
            for vlan in network.vlans
        }
    return doc


def _addressing_2(link: _Link) -> dict[str, Any]:
    found: dict[str, Any] = {"dhcp4": link.dhcp4, "dhcp6": link.dhcp6}
    if link.addresses:
        found["addresses"] = list(link.addresses)
    routes = [{"to": to, "via": via} for version, to in _ANYWHERE.items() if (via := link.gateway(version))]
    if routes:
        found["routes"] = routes
    if link.dns:
        found["nameservers"] = {"addresses": list(link.dns)}
    if link.mtu is not None:
        found["mtu"] = link.mtu
    return found


# ---------------------------------------------------------------- OpenStack


def openstack(network: Network) -> dict[str, Any]:
    """network_data.json, by OpenStack's schema (nova, doc/api_schemas/network_data.json)."""
    ids = network.ids()
    by_mac = {nic.mac: nic for nic in network.interfaces}
    links: list[dict[str, Any]] = []
    networks: list[dict[str, Any]] = []
    macs: dict[str, str] = {}

    def add(name: str, mac: str, link: _Link | None, doc: dict[str, Any]) -> None:
        macs[name] = mac
        mtu = {"mtu": link.mtu} if link is not None and link.mtu is not None else {}
        links.append({"id": name, **doc, **mtu})
        for one in _addressing_openstack(link) if link is not None else ():
            networks.append({"id": f"network{len(networks)}", "link": name, **one})

    for mac, name in ids.items():
        add(name, mac, by_mac.get(mac), {"type": "phy", "ethernet_mac_address": mac})
    for bond in network.bonds:
        of = {"type": "bond", "bond_links": [ids[mac] for mac in bond.of], "bond_mode": bond.mode, "bond_miimon": 100}
        add(bond.name, bond.of[0], bond, {**of, "ethernet_mac_address": bond.of[0]})
    for vlan in network.vlans:
        parent = network.parent(vlan)
        on = {"type": "vlan", "vlan_link": parent, "vlan_id": vlan.id, "vlan_mac_address": macs[parent]}
        add(network.vlan_name(vlan), macs[parent], vlan, on)
    servers = dict.fromkeys(one for link in (*network.interfaces, *network.bonds, *network.vlans) for one in link.dns)
    return {"links": links, "networks": networks, "services": [{"type": "dns", "address": one} for one in servers]}


def _addressing_openstack(link: _Link) -> Iterator[dict[str, Any]]:
    if link.dhcp4:
        yield {"type": "ipv4_dhcp"}
    if link.dhcp6:
        yield {"type": "ipv6_dhcp"}
    told: set[int] = set()
    for one in link.parsed():
        gateway = link.gateway(one.version) if one.version not in told else None
        told.add(one.version)
        zero = "0.0.0.0" if one.version == 4 else "::"  # noqa: S104 - the default route's network
        routes = [{"network": zero, "netmask": zero, "gateway": gateway}] if gateway else []
        where = {"ip_address": str(one.ip), "netmask": str(one.netmask), "routes": routes}
        yield {"type": f"ipv{one.version}", **where}
