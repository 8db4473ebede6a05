"""Enrolling: where credentials may go, how a certificate is trusted, and what one transaction writes."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from sqlalchemy import Connection, text

from api.site import Site
from bcmetal.store import nodes, sealed
from bcmetal.vault import bmc_binding

FINGERPRINT = "ab" * 32


def _bmc(address: str = "redfish://10.20.3.17", **more: Any) -> dict[str, Any]:
    return {"address": address, "username": "root", "password": secrets.token_urlsafe(9), **more}


@pytest.mark.parametrize("prefix", ["", "SHA256:", "sha256 Fingerprint="])
def test_a_fingerprint_is_taken_as_tools_print_it(site: Site, prefix: str) -> None:
    shown = prefix + ":".join(["AB"] * 32)
    answer = site.metal("enroll", {"name": "r3u17", "bmc": _bmc(tls={"fingerprint": shown}), "inspect": False})
    assert answer.doc["bmc"]["tls"]["fingerprint"] == "ab" * 32


def test_an_inspect_follows_in_the_same_transaction(site: Site) -> None:
    answer = site.metal("enroll", {"name": "r3u17", "bmc": _bmc(tls={"fingerprint": FINGERPRINT})})
    assert answer.status == 200
    view = answer.doc
    assert view["state"] == "inspecting"
    assert view["operation"]["verb"] == "inspect"
    assert view["bmc"]["tls"] == {"verify": "fingerprint", "fingerprint": FINGERPRINT}
    assert view["bmc"]["credentialsSet"] is True
    assert site.woken == [view["nodeId"]]
    assert [event.type for event in site.events()] == ["metal.node.enrolled", "metal.state.changed"]


def test_without_an_inspect_the_node_waits_enrolled(site: Site) -> None:
    answer = site.metal("enroll", {"bmc": _bmc(), "inspect": False})
    view = answer.doc
    assert view["state"] == "enrolled"
    assert view["operation"] is None
    assert view["name"].startswith("node-")
    assert {"verb": "inspect"} in view["allowedVerbs"]
    assert [one["verb"] for one in site.operations(view["nodeId"])] == ["enroll"]


def test_the_password_is_sealed_to_its_address_and_trust(site: Site) -> None:
    bmc = _bmc(tls={"fingerprint": FINGERPRINT})
    node_id = site.metal("enroll", {"bmc": bmc, "inspect": False}).doc["nodeId"]
    row = site.read(nodes.get, node_id)
    assert row is not None
    assert row.bmc is not None
    stored = {one.field: one for one in site.read(sealed.get, "bmc", row.bmc.bmc_id)}
    binding = bmc_binding("10.20.3.17", "fingerprint", FINGERPRINT)
    assert site.vault.open(stored["password"], "bmc", binding).get_secret_value() == bmc["password"]
    assert site.vault.open(stored["username"], "bmc", binding).get_secret_value() == "root"


@pytest.mark.parametrize(
    ("bmc", "field"),
    [
        (_bmc("redfish://192.0.2.9"), "bmc.address"),
        (_bmc("redfish://elsewhere.example"), "bmc.address"),
        (_bmc("gopher://10.20.3.17"), "bmc.address"),
        (_bmc("redfish+http://10.20.3.17"), "bmc.address"),
        (_bmc(tls={"verify": False}), "bmc.tls.verify"),
        (_bmc(tls={"caPem": "no certificate"}), "bmc.tls.caPem"),
        (_bmc(tls={"fingerprint": "12"}), "bmc.tls.fingerprint"),
        (_bmc("ipmi://10.20.3.17", tls={"fingerprint": FINGERPRINT}), "bmc.tls"),
        (_bmc("ipmi://10.20.3.17", driver="redfish"), "bmc.driver"),
        (_bmc("ipmi://10.20.3.17", systemId="1"), "bmc.systemId"),
        (_bmc("redfish://10.20.3.17/redfish/v1/Systems/1", systemId="2"), "bmc.systemId"),
        (_bmc(systemId="../../x"), "bmc.systemId"),
        ({"address": "ipmi://10.20.3.17", "username": "u" * 17, "password": "p" * 8}, "bmc.username"),
        ({"address": "ipmi://10.20.3.17", "username": "u", "password": "p" * 21}, "bmc.password"),
        ({"address": "redfish://10.20.3.17", "username": "u"}, "bmc"),
        ({"address": "redfish://10.20.3.17"}, "bmc.credentialRef"),
        ({"address": "redfish://10.20.3.17", "credentialRef": "none"}, "bmc.credentialRef"),
        (_bmc(credentialRef="fleet"), "bmc"),
    ],
)
def test_a_bmc_that_may_not_be_enrolled_so_is_refused_by_field(site: Site, bmc: dict[str, Any], field: str) -> None:
    answer = site.metal("enroll", {"bmc": bmc})
    assert (answer.status, answer.code) == (400, "INVALID_INPUT")
    assert field in answer.fields
    assert site.metal("list").doc["nodes"] == []


def test_a_shared_credential_goes_only_to_its_networks_over_a_proven_certificate(site: Site) -> None:
    def asked(address: str, **more: Any) -> set[str]:
        answer = site.metal("enroll", {"bmc": {"address": address, "credentialRef": "fleet", **more}, "inspect": False})
        return set() if answer.status == 200 else answer.fields

    assert asked("redfish://10.20.3.17") == {"bmc.tls.fingerprint"}
    assert asked("redfish://10.30.3.17", tls={"fingerprint": FINGERPRINT}) == {"bmc.credentialRef"}
    assert asked("redfish://10.30.3.18") == {"bmc.credentialRef", "bmc.tls.fingerprint"}
    assert asked("redfish+http://10.30.3.18") == {"bmc.credentialRef", "bmc.tls.fingerprint"}
    assert asked("redfish://10.20.3.17", tls={"fingerprint": FINGERPRINT}) == set()
    assert asked("ipmi://10.20.3.18") == set()
    site.change(lambda doc: doc["credentials"].update(factory={"manifest": "/etc/labels.csv", "networks": ["bmc"]}))
    labelled = {
        "credentialRef": "factory"
    }  # good for one machine alone: it may be spent on the first certificate that is seen
    assert asked("redfish://10.20.3.20", **labelled) == set()
    assert asked("redfish://10.30.3.20", **labelled) == {"bmc.credentialRef"}
    assert asked("10.20.3.19") == set()  # to be probed: the first inspect refuses what is not pinned


def test_the_networks_permission_opens_the_unverified(site: Site) -> None:
    unverified = site.metal("enroll", {"bmc": _bmc("redfish://10.30.3.17", tls={"verify": False}), "inspect": False})
    plain = site.metal("enroll", {"bmc": _bmc("redfish+http://10.30.3.18"), "inspect": False})
    assert unverified.doc["bmc"]["tls"]["verify"] == "none"
    assert plain.doc["bmc"]["tls"]["verify"] == "none"


def test_a_network_that_pins_first_says_so_until_the_first_inspect(site: Site) -> None:
    assert site.view(site.enroll())["bmc"]["tls"] == {"verify": "pin-first", "fingerprint": None}


def test_a_host_name_is_enrolled_where_a_network_lists_it(site: Site) -> None:
    view = site.metal("enroll", {"bmc": _bmc("redfish://r3.bmc.example", driver="redfish", systemId="Self")}).doc
    assert view["bmc"]["address"] == "redfish://r3.bmc.example:443/redfish/v1/Systems/Self"
    assert view["bmc"]["network"] == "bmc"


def test_a_name_is_taken_once_in_its_pool(site: Site) -> None:
    site.enroll("r3u17")
    answer = site.metal("enroll", {"name": "r3u17", "bmc": _bmc("redfish://10.20.3.18")})
    assert (answer.status, answer.code) == (409, "CONFLICT")
    assert answer.error["details"]["field"] == "name"


def test_two_systems_behind_one_bmc_share_its_credentials(site: Site) -> None:
    bmc = _bmc("redfish://10.20.3.17/redfish/v1/Systems/1", tls={"fingerprint": FINGERPRINT})
    first = site.metal("enroll", {"bmc": bmc, "inspect": False})
    other = {"address": "redfish://10.20.3.17/redfish/v1/Systems/2"}
    second = site.metal("enroll", {"bmc": other, "inspect": False})
    assert (first.status, second.status) == (200, 200)
    assert second.doc["bmc"]["credentialsSet"] is True


def test_a_proven_bmc_keeps_its_credentials_against_an_enrolment(site: Site) -> None:
    bmc = _bmc("redfish://10.20.3.17/redfish/v1/Systems/1", tls={"fingerprint": FINGERPRINT})
    site.metal("enroll", {"bmc": bmc, "inspect": False})

    def prove(c: Connection) -> None:
        c.execute(text("UPDATE bmcs SET proven_at = 1"))

    site.write(prove)
    other = {**bmc, "address": "redfish://10.20.3.17/redfish/v1/Systems/2"}
    wrong = site.metal("enroll", {"bmc": {**other, "password": secrets.token_urlsafe(9)}, "inspect": False})
    assert (wrong.code, wrong.error["details"]["reason"]) == ("CONFLICT", "bmc-credentials-differ")
    assert site.metal("enroll", {"bmc": other, "inspect": False}).status == 200


def test_an_enrolment_with_a_known_key_answers_with_the_node_it_made(site: Site) -> None:
    body = {"name": "r3u17", "bmc": _bmc(), "idempotencyKey": "enroll-1"}
    first, again = site.metal("enroll", body), site.metal("enroll", body)
    assert first.doc["nodeId"] == again.doc["nodeId"]
    other = site.metal("enroll", {**body, "bmc": _bmc()})
    assert (other.code, other.error["details"]["reason"]) == ("CONFLICT", "idempotency-key")
    assert len(site.metal("list").doc["nodes"]) == 1


def test_a_bad_name_and_a_bad_address_are_told_at_once(site: Site) -> None:
    answer = site.metal("enroll", {"name": "Bad Name", "bmc": _bmc("gopher://10.20.3.17"), "bootMac": "no"})
    assert answer.code == "INVALID_INPUT"
    assert answer.fields == {"name", "bmc.address", "bootMac"}
