from __future__ import annotations

import json
from typing import Any

import pytest

from bcmetal.boot.network_data import network_config, network_data
from bcmetal.errors import InvalidInput

A, B, C = (f"52:54:00:00:00:0{n}" for n in "abc")
WHOLE: dict[str, Any] = {
    "interfaces": [
        {
            "mac": A.upper(),
            "name": "up0",
            "addresses": ["192.0.2.7/24", "2001:DB8::7/64"],
            "gateways": ["192.0.2.1", "fe80::1"],
            "dns": ["192.0.2.53"],
            "mtu": 9000,
        }
    ],
    "bonds": [{"name": "bond0", "of": [B, C], "mode": "802.3ad", "dhcp4": True, "dhcp6": True}],
    "vlans": [{"id": 42, "on": "bond0", "addresses": ["198.51.100.7/31"]}, {"id": 7, "on": A, "dhcp4": True}],
}


def test_cloud_inits_version_2_says_all_of_it() -> None:
    doc = json.loads(network_config(json.dumps(WHOLE)))
    assert doc["version"] == 2
    assert doc["ethernets"]["up0"] == {
        "match": {"macaddress": A},
        "set-name": "up0",
        "dhcp4": False,
        "dhcp6": False,
        "addresses": ["192.0.2.7/24", "2001:db8::7/64"],
        "routes": [{"to": "0.0.0.0/0", "via": "192.0.2.1"}, {"to": "::/0", "via": "fe80::1"}],
        "nameservers": {"addresses": ["192.0.2.53"]},
        "mtu": 9000,
    }
    assert doc["ethernets"]["nic1"] == {"match": {"macaddress": B}}
    assert doc["bonds"]["bond0"] == {
        "interfaces": ["nic1", "nic2"],
        "parameters": {"mode": "802.3ad", "mii-monitor-interval": 100},
        "dhcp4": True,
        "dhcp6": True,
    }
    assert doc["vlans"]["bond0.42"] == {
        "id": 42,
        "link": "bond0",
        "dhcp4": False,
        "dhcp6": False,
        "addresses": ["198.51.100.7/31"],
    }
    assert doc["vlans"]["up0.7"]["link"] == "up0"


def test_openstacks_network_data_say_all_of_it() -> None:
    doc = json.loads(network_data(json.dumps(WHOLE)))
    links = {link["id"]: link for link in doc["links"]}
    assert links["up0"] == {"id": "up0", "type": "phy", "ethernet_mac_address": A, "mtu": 9000}
    assert links["bond0"]["bond_links"] == ["nic1", "nic2"]
    assert links["bond0"]["bond_mode"] == "802.3ad"
    assert links["bond0.42"]["vlan_mac_address"] == B
    assert (links["up0.7"]["vlan_link"], links["up0.7"]["vlan_id"]) == ("up0", 7)
    found = {(one["link"], one["type"]): one for one in doc["networks"]}
    four = found["up0", "ipv4"]
    assert (four["ip_address"], four["netmask"]) == ("192.0.2.7", "255.255.255.0")
    assert four["routes"] == [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.0.2.1"}]
    assert found["up0", "ipv6"]["netmask"] == "ffff:ffff:ffff:ffff::"
    assert {("bond0", "ipv4_dhcp"), ("bond0", "ipv6_dhcp"), ("up0.7", "ipv4_dhcp")} <= set(found)
    assert doc["services"] == [{"type": "dns", "address": "192.0.2.53"}]
    assert len({one["id"] for one in doc["networks"]}) == len(doc["networks"])


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\nconfig: []\n",
        "network:\n  version: 2\n  ethernets: {}\n",
        '{"version": 2}',
        '{"network": {"version": 2}}',
    ],
)
def test_cloud_inits_own_configuration_is_passed_on(text: str) -> None:
    assert network_config(text) == text
    assert network_data('{"links": [], "networks": []}') == '{"links": [], "networks": []}'


def nic(**more: Any) -> dict[str, Any]:
    return {"interfaces": [{"mac": A, **more}]}


@pytest.mark.parametrize(
    ("doc", "path"),
    [
        (nic(mac="52:54"), "interfaces.0.mac"),
        (nic(name='x"; rm'), "interfaces.0.name"),
        (nic(name="a\nb"), "interfaces.0.name"),
        (nic(addresses=["192.0.2.7"]), "interfaces.0.addresses.0"),
        (nic(addresses=["192.0.2.7/33"]), "interfaces.0.addresses.0"),
        (nic(addresses=["192.0.2.7/24\n"]), "interfaces.0.addresses.0"),
        (nic(gateways=["192.0.2.1"]), "interfaces.0"),
        (nic(addresses=["192.0.2.7/24"], gateways=["192.0.2.1", "192.0.2.2"]), "interfaces.0"),
        (nic(dns=["dns.example"]), "interfaces.0.dns.0"),
        (nic(mtu=1), "interfaces.0.mtu"),
        (nic(macaddress=A), "interfaces.0.macaddress"),
        ({"interfaces": []}, ""),
        ({"interfaces": [{"mac": A}, {"mac": A.upper()}]}, ""),
        ({"bonds": [{"name": "b0", "of": [A]}, {"name": "b1", "of": [A]}]}, ""),
        ({"bonds": [{"name": "b0", "of": [A], "mode": "fast"}]}, "bonds.0.mode"),
        ({"bonds": [{"name": "nic0", "of": [A]}]}, ""),
        ({**nic(), "vlans": [{"id": 4095, "on": A}]}, "vlans.0.id"),
        ({**nic(), "vlans": [{"id": 5, "on": "bond7"}]}, ""),
        ({**nic(), "vlans": [{"id": 5, "on": A}, {"id": 5, "on": A}]}, ""),
        ({**nic(name="a" * 15), "vlans": [{"id": 5, "on": A}]}, ""),
        ({"interfaces": "all"}, "interfaces"),
    ],
)
def test_what_is_wrong_is_told_by_its_place(doc: dict[str, Any], path: str) -> None:
    for render in (network_config, network_data):
        with pytest.raises(InvalidInput) as caught:
            render(json.dumps(doc))
        assert [fault.path for fault in caught.value.faults] == [".".join(("networkData", path)).rstrip(".")]


@pytest.mark.parametrize("text", ["[]", "ethernets: {}", '{"version": 3}', "", "[" * 100_000, '{"version": true}'])
def test_text_that_is_no_network_configuration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        network_config(text)
    with pytest.raises(InvalidInput):
        network_data(text)
