"""Machines that claim to be others, nodes that should be gone, keys in two hands: what a node's id is worth."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bcmetal.join.ca import IssuerKind, issue_node_certificate, new_serial
from bcmetal.join.leaving import leave
from bcmetal.store import certificates, members
from bcmetal_agent.wire import RENEW_PATH, renewal_statement
from join.awaited import a_deploying_node
from join.minted import minted_for
from join.site import Box, JoinSite, Member, a_box, new_csr

ONE_401 = "The node's certificate is not valid here."
ONE_403 = "The join is refused."
DAY = 86_400


def renewed(site: JoinSite, member: Member, box: Box) -> Member:
    new = box.rekeyed()
    answer = site.renew(member, new)
    assert answer.status == 200, answer.raw
    return Member(member.node_id, answer.doc["certificate"], new.key)


def state(site: JoinSite, member: Member) -> str:
    row = site.read(members.get, member.node_id)
    assert row is not None
    return row.state


def swapped(uuid: str) -> str:
    """The first three fields in the other byte order, as SMBIOS and Redfish differ."""
    a, b, c, rest = uuid.split("-", 3)
    flip = "".join(a[i : i + 2] for i in (6, 4, 2, 0))
    return f"{flip}-{b[2:]}{b[:2]}-{c[2:]}{c[:2]}-{rest}"


# ---------------------------------------------------------------- gone is gone


@pytest.mark.parametrize("with_bmc", [False, True])
def test_a_retired_id_is_never_reborn(site: JoinSite, with_bmc: bool) -> None:
    box = a_box()
    if with_bmc:
        site.enrolled(box)
    member = site.admitted(box)
    site.write(leave, member.node_id, "retired", "scrapped", site.now())
    if with_bmc:
        site.set_state(member.node_id, "retired")
    for again in (box, box.rekeyed()):
        answer = site.join(site.token(allowReclaim=True, expect={"serial": box.serial}), again)
        if answer.status == 200:
            assert answer.doc["nodeId"] != member.node_id
        else:  # the very same CSR, whose answer might have been lost
            assert (again, answer.status) == (box, 403)
    assert state(site, member) == "retired"
    assert site.secrets_for(member).status == 401


def test_a_deploys_token_of_a_retired_node_admits_nobody(one_site: JoinSite) -> None:
    box = a_box()
    node_id = one_site.enrolled(box)
    bearer = minted_for(one_site, node_id)
    one_site.set_state(node_id, "retired")
    assert one_site.join(bearer, box).error["message"] == ONE_403


@pytest.mark.parametrize("end", ["retired", "released", "evicted"])
def test_a_certificate_of_a_node_that_left_opens_nothing(one_site: JoinSite, end: str) -> None:
    box = a_box()
    member = one_site.admitted(box)
    one_site.write(leave, member.node_id, end, "over", one_site.now())
    new = box.rekeyed()
    for answer in (one_site.secrets_for(member), one_site.renew(member, new), one_site.renew_late(member, new)):
        assert answer.status == 401
    one_site.skip(40 * DAY)
    assert one_site.renew_late(member, new).status == 401, "nor does it queue for a person"
    assert one_site.call("joinRequests/list", includeInactive=True).doc["requests"] == []


# ---------------------------------------------------------------- who is who


def test_the_uuid_in_the_other_byte_order_makes_no_second_node(one_site: JoinSite) -> None:
    box = a_box()
    first = one_site.admitted(box)
    assert box.uuid is not None
    turned = Box(swapped(box.uuid), box.serial, box.macs)
    assert one_site.join(one_site.token(), turned).status == 403
    assert one_site.reasons() == ["reclaim"]
    pinned = one_site.token(allowReclaim=True, expect={"productUuid": box.uuid})
    assert one_site.admitted_by(pinned, turned.rekeyed()).node_id == first.node_id


def test_a_duplicate_uuid_takes_nothing_from_its_twin(site: JoinSite) -> None:
    first = site.admitted(a_box())
    twin = Box(a_box().uuid, "OTHER77", ("3c:ec:ef:99:00:01",))
    bearer = site.token(allowReclaim=True)
    request_id = site.join(bearer, twin).doc["requestId"]
    site.call("joinRequests/approve", requestId=request_id)
    second = site.admitted_by(bearer, twin)
    assert second.node_id != first.node_id
    assert [site.secrets_for(one).status for one in (first, second)] == [200, 200]


def test_another_tenants_machine_is_not_taken_whatever_speaks_for_it(site: JoinSite) -> None:
    theirs = site.admitted(a_box(), "tenant", "tenants")
    pin = {"productUuid": a_box().uuid, "serial": a_box().serial, "mac": a_box().macs[0]}
    for token in ({}, {"allowReclaim": True}, {"allowReclaim": True, "expect": pin}):
        answer = site.join(site.token(**token), a_box())
        assert (answer.status, answer.error["message"], answer.error["details"]) == (403, ONE_403, {})
    assert site.reasons() == ["foreign-identity"] * 3
    assert site.call("joinRequests/list", includeInactive=True).doc["requests"] == []
    assert state(site, theirs) == "live"


def test_a_token_takes_no_running_node(one_site: JoinSite) -> None:
    """Neither without leave, nor with leave but no pin, nor by a MAC that anybody reads off the wire."""
    site, box = one_site, a_box()
    site.enrolled(box)
    member = site.admitted(box)
    for token, claim in (
        ({}, box.rekeyed()),
        ({"allowReclaim": True}, box.rekeyed()),
        ({"allowReclaim": True, "expect": {"mac": box.macs[0]}}, Box(None, None, box.macs)),
        ({"allowReclaim": True, "expect": {"serial": box.serial}}, Box(None, box.serial)),
    ):
        assert site.join(site.token(**token), claim).status == 403
    assert site.reasons() == ["reclaim", "running", "reclaim", "reclaim"]
    assert site.secrets_for(member).status == 200
    site.skip(601)
    assert site.admitted(box.rekeyed(), allowReclaim=True).node_id == member.node_id
    assert site.secrets_for(member).status == 401


def test_two_machines_at_once_do_not_both_become_one_node(site: JoinSite) -> None:
    box = a_box()
    node_id = site.enrolled(box)
    bearer = site.token(maxUses=8)

    async def race() -> list[Any]:
        return await asyncio.gather(*(site.joining(bearer, box.rekeyed()) for _ in range(6)))

    answers = site.run(race())
    assert sorted(one.status for one in answers) == [200] + [403] * 5
    assert len(site.read(certificates.of_node, node_id)) == 1


def test_control_characters_in_identifiers_are_refused_and_repeated_nowhere(
    one_site: JoinSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    site = one_site
    bearer = site.token()
    for name, value in (
        ("serial", "SN\x1b[2J\x1b]0;owned\x07"),
        ("serial", "SN\x00X"),
        ("serial", "SN\r\nadmitted"),
        ("serial", "SN\u202e\u2066X"),
        ("serial", "SN\u2028X"),
        ("productUuid", "8f3c1a52\n"),
        ("productUuid", "\x7f"),
        ("macs", ["3c:ec:ef:10:00:\n1"]),
        ("macs", ["\x00" * 17]),
        ("gpuUuids", ["GPU-8f3c1a52\x1b"]),
    ):
        answer = site.join(bearer, a_box(), identifiers={name: value})
        assert answer.code == "INVALID_INPUT"
        (field,) = answer.fields
        assert field in (f"identifiers.{name}", f"identifiers.{name}[0]")
        assert all(char.isprintable() for char in json.dumps(answer.doc, ensure_ascii=False))
        assert "owned" not in answer.raw.decode()
    assert all(char.isprintable() or char == "\n" for char in caplog.text.replace("\t", ""))
    assert site.admitted_by(bearer, a_box()).node_id


def test_names_that_are_not_known_are_shown_without_what_a_terminal_obeys(one_site: JoinSite) -> None:
    unknown: dict[str, Any] = {"x\x1b[2J" + "y" * 200: 1}
    answer = one_site.join(one_site.token(), a_box(), **unknown)
    assert answer.status == 400
    (field,) = answer.fields
    assert field.isprintable()
    assert len(field) <= 64


# ---------------------------------------------------------------- keys in two hands


def test_a_copied_key_locks_its_node_also_after_its_certificates_end(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    first = site.admitted(box)
    second = renewed(site, first, box)
    assert site.secrets_for(second).status == 200
    site.skip(2 * DAY)
    assert site.renew_late(first, box.rekeyed()).status == 401
    assert state(site, first) == "locked"
    assert site.renew_late(second, box.rekeyed()).status == 401
    assert site.reasons() == []
    assert [type_ for type_, _ in site.events("security.node")] == ["security.node.cloned"]


def test_the_node_itself_may_ask_twice(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    first, new = site.admitted(box), box.rekeyed()
    answers = {site.renew(first, new).doc["certificate"] for _ in range(3)}
    assert len(answers) == 1
    assert state(site, first) == "live"


@pytest.mark.parametrize("how", ["reclaimed", "evicted"])
def test_who_has_a_key_of_before_cannot_lock_the_node_that_joined_anew(one_site: JoinSite, how: str) -> None:
    site, box = one_site, a_box()
    first = site.admitted(box)
    second = renewed(site, first, box)
    assert site.secrets_for(second).status == 200
    if how == "evicted":
        site.call("nodes/evict", nodeId=first.node_id)
    site.skip(1)
    third = site.admitted(box.rekeyed(), allowReclaim=True, expect={"serial": box.serial})
    assert third.node_id == first.node_id
    for stolen in (first, second):
        assert site.renew(stolen, box.rekeyed()).status == 401
        assert site.renew_late(stolen, box.rekeyed()).status == 401
    assert state(site, third) == "live"
    fourth = renewed(site, third, box)
    assert site.secrets_for(fourth).status == 200
    assert site.renew(third, box.rekeyed()).status == 401
    assert state(site, fourth) == "locked", "its own key in two hands still does"


def test_a_stolen_csr_replayed_gives_a_certificate_to_nobody_but_its_key(one_site: JoinSite) -> None:
    """Whoever saw a join cannot have it for another token, cannot change what it says, and cannot use what comes of it."""
    site, box = one_site, a_box()
    bearer = site.token(maxUses=3)
    member = site.admitted_by(bearer, box)
    thief = site.token(maxUses=3)
    stolen = Box(a_box(2).uuid, a_box(2).serial, a_box(2).macs, csr=box.csr)
    for token, claim in ((thief, box), (thief, stolen), (bearer, stolen)):
        assert site.join(token, claim).error["message"] == ONE_403
    assert {*site.reasons()} == {"claim-changed"}
    again = site.admitted_by(bearer, box)
    assert again.leaf.public_key() == box.key.public_key() == member.leaf.public_key()
    site.skip(901)
    assert site.join(thief, box).status == 403, "later it is a reclaim without leave"


def test_an_approval_is_for_that_csr_those_words_and_that_token_alone(one_site: JoinSite) -> None:
    site = one_site
    bearer = site.token(maxUses=3)
    box = Box("03000200-0400-0500-0006-000700080009", None, ("3c:ec:ef:77:00:01",))
    request_id = site.join(bearer, box).doc["requestId"]
    site.call("joinRequests/approve", requestId=request_id)
    other = site.token()
    assert site.join(other, box).status == 403
    changed = Box(box.uuid, "SN17X", box.macs, box.key, box.csr)
    assert site.join(bearer, changed).status == 403
    rekeyed = box.rekeyed()
    assert site.join(bearer, rekeyed).status == 202, "another key is another request"
    _, same_key = new_csr(box.key, subject="again")
    assert site.join(bearer, Box(box.uuid, box.serial, box.macs, box.key, same_key)).status == 202
    assert site.admitted_by(bearer, box).node_id


# ---------------------------------------------------------------- after the end


def test_a_certificate_past_its_end_renews_within_the_grace_without_a_person(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    member = site.admitted(box)
    for days in (1, 29):
        site.skip(days * DAY)
        new = box.rekeyed()
        answer = site.renew_late(member, new)
        assert answer.status == 200, answer.raw
        assert site.renew_late(member, new).doc["certificate"] == answer.doc["certificate"], "the answer was lost"
        member = Member(member.node_id, answer.doc["certificate"], new.key)
        assert site.secrets_for(member).status == 200


def test_past_the_grace_a_person_decides_and_a_lost_answer_needs_no_second_one(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    member = site.admitted(box)
    site.skip(32 * DAY)
    new = box.rekeyed()
    request_id = site.renew_late(member, new).doc["requestId"]
    assert site.renew_late(member, new).doc["requestId"] == request_id
    assert site.join(site.token(), new).status == 403, "the same CSR by the other door is refused"
    site.call("joinRequests/approve", requestId=request_id)
    answer = site.renew_late(member, new)
    assert answer.status == 200, answer.raw
    assert site.renew_late(member, new).doc["certificate"] == answer.doc["certificate"]
    assert len(site.call("joinRequests/list", includeInactive=True).doc["requests"]) == 1


def test_past_the_grace_a_denial_is_one(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    member = site.admitted(box)
    site.skip(32 * DAY)
    new = box.rekeyed()
    request_id = site.renew_late(member, new).doc["requestId"]
    site.call("joinRequests/deny", requestId=request_id)
    assert site.renew_late(member, new).status == 403


def test_only_the_old_key_speaks_for_a_certificate_past_its_end(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    member = site.admitted(box)
    site.skip(2 * DAY)
    new = box.rekeyed()
    der = x509.load_pem_x509_csr(new.csr.encode()).public_bytes(serialization.Encoding.DER)
    right = box.key.sign(renewal_statement(der), ec.ECDSA(hashes.SHA256()))
    bare = box.key.sign(der, ec.ECDSA(hashes.SHA256()))
    other = box.key.sign(renewal_statement(der + b"\0"), ec.ECDSA(hashes.SHA256()))
    stranger = make_stranger(site, member)
    for certificate, signature in (
        (member.leaf_pem, bare),
        (member.leaf_pem, other),
        (member.leaf_pem, b""),
        (stranger, right),
        (site.authority.issuers[IssuerKind.NODE].certificate.public_bytes(serialization.Encoding.PEM).decode(), right),
        (site.authority.roots[0], right),
        ("", right),
        ("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", right),
    ):
        expired = {"certificate": certificate, "signature": base64.b64encode(signature).decode()}
        body = json.dumps({"csr": new.csr, "expired": expired}).encode()
        answer = site.run(site.send(site.joins, RENEW_PATH, body, {"Content-Type": "application/json"}))
        assert (answer.status, answer.error["message"]) == (401, "The join token is not valid.")
    assert site.renew_late(member, new).status == 200


def make_stranger(site: JoinSite, member: Member) -> str:
    """Our issuer's, but with a serial that was never given out."""
    issued = issue_node_certificate(
        site.authority.issuers[IssuerKind.NODE],
        member.leaf.public_key(),  # type: ignore[arg-type]  # a P-256 key
        member.node_id,
        "bcmetal",
        site.now(),
        new_serial(bytes(15) + b"\x04"),
    )
    return issued.certificate.public_bytes(serialization.Encoding.PEM).decode()


def test_a_node_that_renews_without_end_is_slowed_down(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    member, new = site.admitted(box), box.rekeyed()
    statuses = [site.renew(member, new).status for _ in range(62)]
    assert statuses == [200] * 60 + [429] * 2
    other = a_box(2)
    assert site.secrets_for(site.admitted(other)).status == 200


# ---------------------------------------------------------------- a node plays control plane


@pytest.mark.parametrize("hosted", [None, "kubernetes"])
def test_a_nodes_certificate_makes_no_server_of_any_name(
    one_site: JoinSite, tmp_path: Path, hosted: str | None
) -> None:
    """A fake control plane: whoever checks the chain and a host name, by OpenSSL's rules, is not taken in."""
    member = one_site.admitted(a_box(), hosted=hosted)
    leaf, chain, root = tmp_path / "leaf", tmp_path / "chain", tmp_path / "root"
    leaf.write_text(member.leaf_pem)
    chain.write_text(member.chain.partition("-----END CERTIFICATE-----\n")[2])
    root.write_text(one_site.authority.trust_bundle)

    def verified(*options: str) -> bool:
        command = [
            "openssl",
            "verify",
            "-x509_strict",
            "-CAfile",
            str(root),
            "-untrusted",
            str(chain),
            *options,
            str(leaf),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        return done.returncode == 0

    assert verified("-purpose", "sslclient"), "it is a good certificate of a node"
    for name in ("bcmetal", "127.0.0.1", member.node_id, "node", "localhost"):
        kind = "-verify_ip" if name == "127.0.0.1" else "-verify_hostname"
        assert not verified("-purpose", "sslserver", kind, name)
    issuer = member.leaf.issuer.rfc4514_string()
    assert "OU=bcmetal server" not in issuer
    assert f"OU=bcmetal {'node-tenant' if hosted else 'node'}" in issuer


def test_while_a_deploy_waits_for_its_own_token_no_other_takes_its_node(one_site: JoinSite) -> None:
    box = a_box()
    node_id = a_deploying_node(one_site, box)
    minted = minted_for(one_site, node_id)
    thief = one_site.join(one_site.token(maxUses=5), box.rekeyed())
    assert thief.status == 403
    assert one_site.reasons() == ["awaits-its-own-token"]
    answer = one_site.join(minted, box)
    assert (answer.status, answer.doc["nodeId"]) == (200, node_id)
