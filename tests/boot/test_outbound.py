from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import pytest

from bcmetal.boot.outbound import (
    AddressRefused,
    NoConnection,
    name_listed,
    parse_target,
    permitted,
    permitted_addresses,
)

SPECIAL = (
    "0.0.0.0",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "169.254.1.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:0:7f00:1::",
    "fd00:ec2::254",
    "fe80::1",
    "ff02::1",
)
PRIVATE = ("10.1.2.3", "100.64.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "198.18.0.1", "fd12::1")
PUBLIC = ("8.8.8.8", "172.32.0.1", "2600::1")


@pytest.mark.parametrize("text", SPECIAL)
def test_a_special_address_is_reached_neither_by_name_nor_by_a_network_that_is_wider_than_its_range(text: str) -> None:
    address = ipaddress.ip_address(text)
    assert not permitted(address, True, ("mirror.example",))
    assert not permitted(address, True, ("0.0.0.0/0", "::/0"))


@pytest.mark.parametrize("text", SPECIAL)
def test_a_special_address_is_reached_where_it_is_listed_itself(text: str) -> None:
    address = ipaddress.ip_address(text)
    assert permitted(address, False, (f"{text}/{address.max_prefixlen}",))


@pytest.mark.parametrize(
    ("text", "network"),
    [("169.254.169.254", "169.254.0.0/16"), ("100.100.100.200", "100.64.0.0/10"), ("fd00:ec2::254", "fd00::/8")],
)
def test_a_metadata_service_is_not_listed_by_the_range_round_it(text: str, network: str) -> None:
    assert not permitted(ipaddress.ip_address(text), False, (network,))


@pytest.mark.parametrize("text", PRIVATE)
def test_a_private_address_is_reached_by_a_listed_name_or_its_own_network_alone(text: str) -> None:
    address = ipaddress.ip_address(text)
    own = str(ipaddress.ip_network(f"{text}/{address.max_prefixlen - 8}", strict=False))
    assert permitted(address, True, ())
    assert permitted(address, False, (own,))
    assert not permitted(address, False, ("0.0.0.0/0", "::/0"))
    assert not permitted(address, False, ())


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_still_has_to_be_listed(text: str) -> None:
    address = ipaddress.ip_address(text)
    assert permitted(address, False, ("0.0.0.0/0", "::/0"))
    assert permitted(address, True, ())
    assert not permitted(address, False, ("mirror.example", "9.9.9.0/24"))


@pytest.mark.parametrize(
    ("host", "listed"),
    [
        ("mirror.example", True),
        ("a.images.example", True),
        ("a.b.images.example", True),
        ("images.example", False),
        ("notimages.example", False),
        ("mirror.example.evil.example", False),
        ("xmirror.example", False),
    ],
)
def test_names_are_listed_whole_or_by_suffix(host: str, listed: bool) -> None:
    assert name_listed(host, ("Mirror.Example", "*.images.example")) is listed


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mirror.example/x.iso",
        "//mirror.example/x.iso",
        "ftp://mirror.example/x.iso",
        "file:///etc/passwd",
        "gopher://127.0.0.1:25/",
        "http:///x.iso",
        "http://",
        "http://user@mirror.example/",
        "http://user:word@mirror.example/",
        "http://@mirror.example/",
        "http://mirror.example\\@127.0.0.1/",
        "http://mirror.example/a b",
        "http://mirror.example/a\r\nHost: x",
        "http://mirror.example/\x00",
        "http://mirrör.example/",
        "http://mirror.example:0/",
        "http://mirror.example:65536/",
        "http://mirror.example:x/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://017700000001/",
        "http://127.1/",
        "http://127.0.0.01/",
        "http://[::1%25lo]/",
        "http://[fe80::1%eth0]/",
        "http://[::1/",
        "http://-mirror.example/",
        "http://mirror..example/",
        "http://%6c%6f.example/",
        "http://mirror.example/" + "x" * 3000,
    ],
)
def test_an_address_that_is_no_plain_url_is_refused(url: str) -> None:
    with pytest.raises(AddressRefused):
        parse_target(url)


def test_a_plain_address_is_taken_apart() -> None:
    target = parse_target("HTTPS://Mirror.Example.:8443/a/b.iso?sig=1%2F2#part")
    assert (target.scheme, target.host, target.port, target.path) == (
        "https",
        "mirror.example",
        8443,
        "/a/b.iso?sig=1%2F2",
    )
    assert target.authority == "mirror.example:8443"
    assert parse_target("http://[2600::1]").authority == "[2600::1]"
    assert parse_target("http://h?x=1").path == "/?x=1"


def test_of_a_names_addresses_only_the_permitted_ones_are_tried() -> None:
    def resolver(host: str, port: int) -> Sequence[str]:
        return ("127.0.0.1", "8.8.8.8", "fe80::1%eth0", "::ffff:10.0.0.1")

    target = parse_target("http://mirror.example/")
    assert permitted_addresses(target, ("mirror.example",), resolver) == (ipaddress.ip_address("8.8.8.8"),)


def test_a_name_without_an_address_is_unreachable() -> None:
    def resolver(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    with pytest.raises(NoConnection):
        permitted_addresses(parse_target("http://mirror.example/"), ("mirror.example",), resolver)


def test_a_literal_is_never_listed_as_a_name() -> None:
    def resolver(host: str, port: int) -> Sequence[str]:
        raise AssertionError("a literal needs no resolver")

    with pytest.raises(AddressRefused):
        permitted_addresses(parse_target("http://10.0.0.1/"), ("*", "*.0.1", "mirror.example"), resolver)
