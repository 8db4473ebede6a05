"""Addresses of BMCs: every form that people write, and what is refused without repeating it."""

from __future__ import annotations

import ipaddress
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmetal_drivers.address import parse
from bcmetal_drivers.connection import BmcAddress
from bcmetal_drivers.errors import BadAddress

SYSTEM = "/redfish/v1/Systems/1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redfish://bmc.example.org", BmcAddress("redfish", "bmc.example.org", 443)),
        ("redfish://BMC.Example.org./", BmcAddress("redfish", "bmc.example.org", 443)),
        ("redfish+https://10.0.0.1:8443", BmcAddress("redfish", "10.0.0.1", 8443)),
        ("redfish+http://10.0.0.1", BmcAddress("redfish+http", "10.0.0.1", 80)),
        (f"redfish://10.0.0.1{SYSTEM}", BmcAddress("redfish", "10.0.0.1", 443, SYSTEM)),
        (f"redfish://10.0.0.1/{SYSTEM}/", BmcAddress("redfish", "10.0.0.1", 443, SYSTEM)),
        ("redfish://10.0.0.1/redfish/v1/", BmcAddress("redfish", "10.0.0.1", 443)),
        (f"redfish-virtualmedia://10.0.0.1{SYSTEM}", BmcAddress("redfish", "10.0.0.1", 443, SYSTEM)),
        ("redfish-virtualmedia+http://10.0.0.1", BmcAddress("redfish+http", "10.0.0.1", 80)),
        (
            "idrac-virtualmedia+https://10.0.0.1/redfish/v1/Systems/System.Embedded.1",
            BmcAddress("redfish", "10.0.0.1", 443, "/redfish/v1/Systems/System.Embedded.1", "idrac"),
        ),
        ("idrac-redfish://10.0.0.1", BmcAddress("redfish", "10.0.0.1", 443, None, "idrac")),
        ("ilo5-virtualmedia://10.0.0.1", BmcAddress("redfish", "10.0.0.1", 443, None, "ilo5")),
        ("ILO5-Redfish://10.0.0.1", BmcAddress("redfish", "10.0.0.1", 443, None, "ilo5")),
        ("ipmi://10.0.0.1", BmcAddress("ipmi", "10.0.0.1", 623)),
        ("ipmi://10.0.0.1:6230/", BmcAddress("ipmi", "10.0.0.1", 6230)),
        ("redfish://[2001:DB8::0001]:8443", BmcAddress("redfish", "2001:db8::1", 8443)),
        ("ipmi://[::1]", BmcAddress("ipmi", "::1", 623)),
        ("bmc", BmcAddress("", "bmc", 0)),
        ("bmc:8443", BmcAddress("", "bmc", 8443)),
        ("2001:db8::1", BmcAddress("", "2001:db8::1", 0)),
        ("[2001:db8::1]:443", BmcAddress("", "2001:db8::1", 443)),
        ("  10.0.0.1\n", BmcAddress("", "10.0.0.1", 0)),
    ],
)
def test_each_form_is_understood(text: str, expected: BmcAddress) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "redfish://",
        "https://10.0.0.1",
        "libvirt://10.0.0.1",
        "redfish:///redfish/v1/Systems/1",
        "redfish://10.0.0.1:0",
        "redfish://10.0.0.1:65536",
        "redfish://10.0.0.1:+80",
        "redfish://10.0.0.1:",
        "redfish://10.0.0.1:٤٤٣",
        "redfish://10.0.0",
        "redfish://10.0.0.256",
        "redfish://10.0.0.01",
        "redfish://2001:db8::1",
        "redfish://[2001:db8::1",
        "redfish://[2001:db8::1]8443",
        "redfish://[fe80::1%eth0]",
        "fe80::1%eth0",
        "redfish://[10.0.0.1]",
        "redfish://-bmc",
        "redfish://bmc..org",
        "redfish://10.0.0.1/redfish/v1/Managers/1",
        "redfish://10.0.0.1/redfish/v1/Systems/1/Bios",
        "redfish://10.0.0.1/redfish/v1/Systems/..",
        "redfish://10.0.0.1/redfish/v1/Systems/%2e%2e",
        "redfish://10.0.0.1/redfish/v1/Systems/a%2Fb",
        "redfish://10.0.0.1/redfish/v1/Systems/1?x=1",
        "redfish://10.0.0.1#x",
        "ipmi://10.0.0.1/redfish/v1/Systems/1",
        "10.0.0.1/redfish/v1/Systems/1",
        "redfish://10.0.0.1 x",
        "redfish://10.0.0.1\nredfish://10.0.0.2",
        "redfish://bmc\x00",
        "x" * 5000,
    ],
)
def test_what_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        parse(text)


@pytest.mark.parametrize(
    "form",
    ["redfish://admin:{}@10.0.0.1", "redfish://{}@h", "admin:{}@h", "redfish://h:{}", "{}://h", "redfish://h?p={}"],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(form: str) -> None:
    secret = f"{secrets.token_hex(8)}!"
    with pytest.raises(BadAddress) as refused:
        parse(form.format(secret))
    assert secret not in str(refused.value)
    assert refused.value.__cause__ is None


labels = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
hosts = st.one_of(
    st.lists(labels, min_size=1, max_size=4).map(".".join),
    st.ip_addresses().filter(lambda ip: not (ip.version == 6 and ip.scope_id)).map(str),
)
ports = st.integers(1, 65535)
systems = st.none() | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._~:-]{0,30}", fullmatch=True).map(
    lambda name: f"/redfish/v1/Systems/{name}"
)


@given(scheme=st.sampled_from(["redfish", "redfish+http"]), host=hosts, port=ports, system=systems)
def test_a_redfish_address_survives_being_written_and_read(
    scheme: str, host: str, port: int, system: str | None
) -> None:
    address = BmcAddress(scheme, host, port, system)
    assert parse(str(address)) == address


@given(scheme=st.sampled_from(["ipmi", ""]), host=hosts, port=ports)
def test_an_address_without_a_path_survives_being_written_and_read(scheme: str, host: str, port: int) -> None:
    address = BmcAddress(scheme, host, port)
    assert parse(str(address)) == address


@given(host=hosts)
def test_a_bare_host_survives_being_written_and_read(host: str) -> None:
    assert parse(str(parse(str(BmcAddress("", host, 0))))) == BmcAddress("", host, 0)


@given(text=st.text(max_size=80) | st.text("redfishipm:/[]@%?#.0123456789abc", max_size=60))
def test_any_text_is_an_address_or_refused_as_one(text: str) -> None:
    try:
        address = parse(text)
    except BadAddress:
        return
    assert parse(str(address)) == BmcAddress(address.scheme, address.host, address.port, address.system_path)
    if ":" in address.host:
        assert str(ipaddress.IPv6Address(address.host)) == address.host
