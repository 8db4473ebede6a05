"""Two baselines of a BMC: what is explained is no difference, and what is one has its sentence and its mend."""

from __future__ import annotations

from typing import Any

import pytest

from bcmetal.comparing.baselines import Mend, Ours, changes
from bcmetal.workflows.service import amended

OURS = Ours(username="bcmetal", certificate_checked=True, disks_erased=True, firmware={"BIOS": "2.15"})
NIC = {"mac": "aa:bb:cc:00:00:01", "hostname": "bmc1", "ipv4": [], "ipv6": [], "given": ["DHCP"], "vlan": None}
ADMIN = {"slot": "1", "username": "admin", "role": "Administrator", "enabled": True}
OWN = {"slot": "2", "username": "bcmetal", "role": "Administrator", "enabled": True}


def mends(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[Mend | None, str]]:
    return [(one.mend, one.name) for one in changes(before, after, OURS)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"accounts": [ADMIN]}, {"accounts": [ADMIN, OWN]}),  # made by us since
        ({"certificate": "aa"}, {"certificate": "bb"}),  # checked by its pin or CA
        ({"firmware": {"BIOS": "2.14"}}, {"firmware": {"BIOS": "2.15"}}),  # we brought it
        ({"boot": {"device": "none", "once": False}}, {"boot": {"device": "cd", "once": True}}),  # IPMI's override
        ({"directories": {"LDAP": {"enabled": False, "addresses": []}}},
         {"directories": {"LDAP": {"enabled": False, "addresses": ["ldap://x"]}}}),
        ({"network": [[NIC]]}, {"network": [[dict(NIC)]]}),
        ({"network": {"ip": "10.0.0.7", "ipSource": "02"}}, {"network": {"ip": "10.0.0.9", "ipSource": "02"}}),
        ({"channels": {"1": {"ip": "10.0.0.7", "ipSource": "02"}}}, {"channels": {"1": {"ip": "10.0.0.9", "ipSource": "02"}}}),
        ({"boot": {"mode": "uefi", "order": ["A", "B"], "options": {"A": "PXE", "B": "HD(1)"}}},
         {"boot": {"mode": "uefi", "order": ["C", "A", "B"], "options": {"A": "PXE", "B": "HD(1)", "C": "HD(1,GPT)/debian"}}}),
        ({}, {"bios": {"A": 1}}),  # was not recorded
        ({"protocols": [{}]}, {"protocols": [{"New.ProtocolEnabled": False}]}),
        ({"accountSettings": {"2": {"Keys": ["a"]}}}, {"accountSettings": {"3": {"Keys": ["b"]}}}),  # told as an account
        ({"secureBoot": True, "sections": {"x": "ok"}}, {"secureBoot": True, "sections": {"x": "slow"}}),
    ],
)  # fmt: skip
def test_what_is_explained_is_no_difference(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert changes(before, after, OURS) == ()


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ({"accounts": [ADMIN]}, {"accounts": [ADMIN, {**ADMIN, "slot": "3", "username": "mallory"}]},
         [(Mend.DELETE_ACCOUNT, "3")]),
        ({"accounts": [{**ADMIN, "enabled": False}]}, {"accounts": [ADMIN]}, [(Mend.ENABLE_ACCOUNT, "1")]),
        ({"channels": {"1": {"authTypes": "00"}}}, {"channels": {"1": {"authTypes": "04"}, "2": {"access": "02"}}},
         [(None, ""), (None, "")]),
        ({"accounts": [{**ADMIN, "role": "ReadOnly"}]}, {"accounts": [ADMIN]}, [(None, "")]),
        ({"accounts": [ADMIN, OWN]}, {"accounts": [OWN]}, [(None, "")]),
        # twice our name: neither is known to be ours
        ({"accounts": [OWN]}, {"accounts": [OWN, {**OWN, "slot": "5"}]}, [(Mend.DELETE_ACCOUNT, "5")]),
        ({"directories": {}}, {"directories": {"LDAP": {"enabled": True, "addresses": ["ldap://x"]}}},
         [(Mend.DIRECTORY, "LDAP")]),
        ({"subscriptions": []}, {"subscriptions": ["https://x"]}, [(Mend.SUBSCRIPTION, "https://x")]),
        ({"subscriptions": ["https://ours"]}, {"subscriptions": []}, [(None, "")]),
        ({"services": [{"SSH": False}]}, {"services": [{"SSH": True}]}, [(Mend.SERVICE, "SSH")]),
        ({"network": [[NIC]]}, {"network": [[{**NIC, "ipv4": ["192.0.2.9"]}]]}, [(None, "")]),
        ({"network": {"ip": "10.0.0.7", "ipSource": "01"}}, {"network": {"ip": "10.0.0.9", "ipSource": "01"}}, [(None, "")]),
        ({"firmware": {"BIOS": "2.14"}}, {"firmware": {"BIOS": "2.13"}}, [(Mend.FIRMWARE, "BIOS")]),
        ({"bmc": [{"model": "x", "firmware": "1"}]}, {"bmc": [{"model": "x", "firmware": "1b"}]}, [(Mend.FIRMWARE, "")]),
        ({"boot": {"mode": "uefi", "order": ["A", "B"], "options": {}}},
         {"boot": {"mode": "legacy", "order": ["B", "A"], "options": {"C": "PciRoot(0x0)/MAC(aa)/Uri(http://x)"}}},
         [(Mend.BOOT_MODE, ""), (None, ""), (Mend.BOOT_ORDER, "")]),
        ({"bios": {"A": "on"}, "biosPending": {}}, {"bios": {"A": "off"}, "biosPending": {"B": 1}},
         [(Mend.BIOS, "A"), (Mend.BIOS, "B")]),
        ({"secureBoot": True}, {"secureBoot": False}, [(Mend.SECURE_BOOT, "")]),
        ({"secureBootKeys": {"mode": "UserMode", "db": [3, 0]}}, {"secureBootKeys": {"mode": "UserMode", "db": [4, 0]}},
         [(Mend.SECURE_BOOT_KEYS, "")]),
        ({"accounts": [ADMIN]}, {"accounts": None}, [(None, "")]),
    ],
)  # fmt: skip
def test_a_difference_has_its_mend(
    before: dict[str, Any], after: dict[str, Any], wanted: list[tuple[Mend | None, str]]
) -> None:
    assert mends(before, after) == wanted


def test_a_certificate_that_nothing_checks_is_a_difference() -> None:
    assert len(changes({"certificate": "aa"}, {"certificate": "bb"}, Ours())) == 1


def test_a_community_that_was_changed_is_told_without_its_name() -> None:
    before, after = ({"channels": {"1": {"communityString": word.encode().hex()}}} for word in ("public", "elsewhere"))
    (found,) = changes(before, after, OURS)
    assert found.why == "LAN channel 1.communityString is another than it was"


@pytest.mark.parametrize(
    "path", ["PciRoot(0x0)/MAC(aa)/Uri(http://x/HD(1,GPT)/a.efi)", "PciRoot(0x0)/USB(0x1)/HD(1)", "UHD(1)"]
)
def test_a_boot_entry_that_only_looks_like_an_erased_disks_is_named(path: str) -> None:
    before: dict[str, Any] = {"boot": {"options": {}}}
    assert len(changes(before, {"boot": {"options": {"A": path}}}, OURS)) == 1


def test_sentences_show_neither_control_characters_nor_whole_documents() -> None:
    (found,) = changes({"subscriptions": []}, {"subscriptions": ["https://x/\x1b[2J" + "y" * 900]}, OURS)
    assert "\x1b" not in found.why
    assert len(found.why) < 300


def test_keys_that_a_service_reset_belong_to_the_baseline_with_their_certificates() -> None:
    before = {"secureBootKeys": {"db": [1, 0]}, "secureBootCertificates": {"db": ["a"]}, "secureBoot": True}
    after = {"secureBootKeys": {"db": [2, 0]}, "secureBootCertificates": {"db": ["b"]}, "secureBoot": False}
    doc = amended(before, after, ["secureBootKeys"], {}, frozenset())
    assert doc == {**after, "secureBoot": True}
