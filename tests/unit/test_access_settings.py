"""What gets somebody into a BMC beside an account's name and role: each that a tenant could leave there is a difference in its sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from secrets import token_hex
from typing import Any

import pytest

from bcmetal.comparing.baselines import Mend, Ours, changes
from bcmetal_drivers.connection import BmcAddress, Trust, TrustKind
from bcmetal_drivers.redfish import RedfishBmc
from raw_bmc import LIMITS, ROOT, SESSIONS, SYSTEM, RawBmc, a_credential, a_raw_bmc, documents

ACCOUNTS, MANAGER = "/redfish/v1/AccountService", "/redfish/v1/Managers/1"
ACCOUNT = f"{ACCOUNTS}/Accounts/2"
SECURE = f"{SYSTEM}/SecureBoot"
COMMUNITY = token_hex(8)


def to(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def listed(*paths: str) -> dict[str, Any]:
    return {"Members": [to(path) for path in paths], "Members@odata.count": len(paths)}


TREE: Mapping[str, Any] = {
    ROOT: {"RedfishVersion": "1.6.0", "Links": {"Sessions": to(SESSIONS)}, "AccountService": to(ACCOUNTS),
           "Systems": to("/redfish/v1/Systems"), "EventService": to("/redfish/v1/EventService")},
    "/redfish/v1/Systems": listed(SYSTEM),
    SYSTEM: {"Id": "1", "Boot": {"BootOrder": []}, "SecureBoot": to(SECURE), "Links": {"ManagedBy": [to(MANAGER)]}},
    SECURE: {"SecureBootEnable": True, "SecureBootDatabases": to(f"{SECURE}/Databases")},
    f"{SECURE}/Databases": listed(f"{SECURE}/db"),
    f"{SECURE}/db": {"DatabaseId": "db", "Certificates": to(f"{SECURE}/db/C")},
    f"{SECURE}/db/C": listed(f"{SECURE}/db/C/1"),
    f"{SECURE}/db/C/1": {"Id": "1", "CertificateString": "the maker's"},
    ACCOUNTS: {"Accounts": to(f"{ACCOUNTS}/Accounts"), "Roles": to(f"{ACCOUNTS}/Roles"), "LocalAccountAuth": "Enabled",
               "LDAP": {"ServiceEnabled": True, "ServiceAddresses": ["ldap://192.0.2.1"], "RemoteRoleMapping":
                        [{"RemoteGroup": "ops", "LocalRole": "ReadOnly"}, {"RemoteGroup": "", "LocalRole": "None"}]}},
    f"{ACCOUNTS}/Accounts": listed(ACCOUNT),
    ACCOUNT: {"Id": "2", "UserName": "bcmetal", "RoleId": "Administrator", "Enabled": True, "AccountTypes": ["Redfish"],
              "Keys": to(f"{ACCOUNT}/Keys"), "Oem": {"Maker": {"SSHPublicKey": [None], "LastLogin": "10:00"}}},
    f"{ACCOUNT}/Keys": listed(),
    f"{ACCOUNTS}/Roles": listed(f"{ACCOUNTS}/Roles/Guest"),
    f"{ACCOUNTS}/Roles/Guest": {"RoleId": "Guest", "AssignedPrivileges": ["Login"]},
    "/redfish/v1/EventService": {"SMTP": {"ServiceEnabled": False}},
    MANAGER: {"Id": "1", "NetworkProtocol": to(f"{MANAGER}/Net"), "HostInterfaces": to(f"{MANAGER}/HI"),
              "EthernetInterfaces": to(f"{MANAGER}/E"), "Certificates": to(f"{MANAGER}/C")},
    f"{MANAGER}/C": listed(),
    f"{MANAGER}/E": listed(f"{MANAGER}/E/1"),
    f"{MANAGER}/E/1": {"Id": "1", "MACAddress": "02:00:00:00:00:01", "StaticNameServers": ["0.0.0.0"]},
    f"{MANAGER}/HI": listed(f"{MANAGER}/HI/1"),
    f"{MANAGER}/HI/1": {"Id": "1", "ExternallyAccessible": False},
    f"{MANAGER}/Net": {"SSH": {"ProtocolEnabled": True, "Port": 22}, "NTP": {"NTPServers": []},
                       "SNMP": {"CommunityStrings": []}, "Oem": {"Maker": {"RemoteSyslogServer": "", "Uptime": 7}}},
}  # fmt: skip

PLANTED: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "an SSH key of our own account": (f"{ACCOUNT}/Keys", {f"{ACCOUNT}/Keys/1": {"KeyString": "ssh-ed25519 x"}}, "account in slot 2 Keys was None"),
    "a maker's SSH key": (ACCOUNT, {"Oem": {"Maker": {"SSHPublicKey": ["ssh-rsa x"], "LastLogin": "11:00"}}}, "SSHPublicKey was None"),
    "another kind of login": (ACCOUNT, {"AccountTypes": ["Redfish", "SNMP"]}, "AccountTypes was ['Redfish'], and is"),
    "more rights of a role": (f"{ACCOUNTS}/Roles/Guest", {"AssignedPrivileges": ["Login", "ConfigureUsers"]}, "role Guest was ['Login']"),
    "a role of its own": (f"{ACCOUNTS}/Roles", {f"{ACCOUNTS}/Roles/X": {"RoleId": "X", "AssignedPrivileges": ["Login"]}}, "role X was None"),
    "a group of the directory": (ACCOUNTS, {"LDAP": {"ServiceEnabled": True, "ServiceAddresses": ["ldap://192.0.2.1"],
        "RemoteRoleMapping": [{"RemoteGroup": "all", "LocalRole": "Administrator"}]}}, "directory LDAP RemoteRoleMapping was"),
    "local accounts off": (ACCOUNTS, {"LocalAccountAuth": "Disabled"}, "LocalAccountAuth was Enabled"),
    "certificates that log in": (f"{MANAGER}/C", {f"{MANAGER}/C/1": {"CertificateString": "x"}}, "setting of the BMC: Certificates was None"),
    "a host without a password": (f"{MANAGER}/HI/1", {"AuthNoneRoleId": "Administrator"}, "AuthNoneRoleId was None"),
    "another name server": (f"{MANAGER}/E/1", {"StaticNameServers": ["192.0.2.66"]}, "StaticNameServers was None, and is ['192.0.2.66']"),
    "another time": (f"{MANAGER}/Net", {"NTP": {"NTPServers": ["192.0.2.66"]}}, "NTP.NTPServers was None"),
    "another port": (f"{MANAGER}/Net", {"SSH": {"ProtocolEnabled": True, "Port": 2222}}, "SSH.Port was 22, and is 2222"),
    "a community": (f"{MANAGER}/Net", {"SNMP": {"CommunityStrings": [{"CommunityString": COMMUNITY}]}}, "SNMP.CommunityStrings was None"),
    "a maker's log server": (f"{MANAGER}/Net", {"Oem": {"Maker": {"RemoteSyslogServer": "192.0.2.66"}}}, "RemoteSyslogServer was None"),
    "mail": ("/redfish/v1/EventService", {"SMTP": {"ServiceEnabled": False, "ServerAddress": "192.0.2.66"}}, "SMTP.ServerAddress was None"),
    "a URL to boot": (SYSTEM, {"Boot": {"BootOrder": [], "HttpBootUri": "http://192.0.2.66/x.efi"}}, "boot setting HttpBootUri was None"),
    "another key in its place": (f"{SECURE}/db/C/1", {"CertificateString": "mallory's"}, "db holds other certificates"),
}  # fmt: skip


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[RawBmc, dict[str, Any]]]:
    docs: dict[str, Any] = {}
    with a_raw_bmc(documents(docs)) as bmc:
        yield bmc, docs


def baseline(
    served: tuple[RawBmc, dict[str, Any]], at: str = "", planted: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    bmc, docs = served
    docs.clear()
    docs |= deepcopy(dict(TREE))
    for name, value in (planted or {}).items():
        if name.startswith("/"):  # a member of the collection
            docs[name] = value
            docs[at] = listed(*(one["@odata.id"] for one in docs[at]["Members"]), name)
        else:
            docs[at][name] = value
    address = BmcAddress("redfish+http", "127.0.0.1", bmc.port)
    opened = RedfishBmc(address, a_credential(), Trust(TrustKind.NONE), LIMITS)
    try:
        return opened.baseline()
    finally:
        opened.close()


def test_a_truth_that_is_written_as_a_word_is_the_same_truth(served: tuple[RawBmc, dict[str, Any]]) -> None:
    before = baseline(served)
    for at, planted in (
        (f"{MANAGER}/Net", {"SSH": {"ProtocolEnabled": "True", "Port": 22}}),
        (ACCOUNTS, {"LDAP": {**TREE[ACCOUNTS]["LDAP"], "ServiceEnabled": "true"}}),
        (ACCOUNT, {"Enabled": "True"}),
    ):
        assert changes(before, baseline(served, at, planted), Ours("bcmetal")) == ()
    off = baseline(served, ACCOUNT, {"Enabled": "False"})
    assert [account["enabled"] for account in off["accounts"]] == [False]


@pytest.mark.parametrize("what", PLANTED)
def test_what_a_tenant_leaves_at_a_bmc_is_a_difference_that_says_what_it_is(
    what: str, served: tuple[RawBmc, dict[str, Any]]
) -> None:
    at, planted, sentence = PLANTED[what]
    before = baseline(served)
    found = changes(before, baseline(served, at, planted), Ours("bcmetal"))
    assert len(found) == 1, found
    assert sentence in found[0].why
    assert COMMUNITY not in found[0].why
    assert found[0].mend is (Mend.SECURE_BOOT_KEYS if "other certificates" in sentence else None)
    assert changes(before, baseline(served), Ours("bcmetal")) == ()
