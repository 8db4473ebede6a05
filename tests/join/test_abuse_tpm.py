"""The attestor `tpm` abused through the join call: EKs of others, keys made in software, challenges of others and of before."""

from __future__ import annotations

import base64
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bcmetal.join.tpm import ek_sha256, read_claim
from bcmetal.join.tpm_structures import Attribute
from bcmetal.store import certificates, members
from bcmetal_agent.tpm import Tpm
from join.site import OWNER, POOL, Box, JoinSite, a_box, member_of
from join.soft_tpm import SoftTpm, proof_for
from join.swtpm import a_software_tpm
from join.tpm_bytes import AK, a_p256_key, an_ak, text

ONE_403 = "The join is refused."
A, B = SoftTpm(), SoftTpm()  # making RSA keys takes a while; what a test changes, it changes in a copy


def allow(site: JoinSite, *tpms: SoftTpm, pool: str = POOL) -> None:
    site.change(lambda doc: doc["pools"][pool].update(ek_allow=[one.ek_sha256 for one in tpms]))


def challenged(site: JoinSite, bearer: str | None, box: Box, tpm: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = site.join(bearer, box, attestor="tpm", tpm=tpm, **more)
    assert (answer.status, answer.doc["status"]) == (200, "challenge"), answer.raw
    found: dict[str, Any] = answer.doc
    return found


def join(site: JoinSite, bearer: str | None, box: Box, tpm: SoftTpm, **more: Any) -> Any:
    """Both calls."""
    challenge = challenged(site, bearer, box, tpm.says(), **more)
    proof = tpm.proves(challenge, box.csr)
    return site.join(bearer, box, attestor="tpm", tpm=tpm.says(), challenge=proof, **more)


def test_an_ek_on_the_list_is_admitted_and_shown_as_proven(site: JoinSite) -> None:
    allow(site, A)
    box, bearer = a_box(), site.token()
    member = member_of(join(site, bearer, box, A), box)
    shown = site.call("nodes/get", nodeId=member.node_id).doc
    assert (shown["attestor"], shown["ekSha256"], shown["tpmProven"]) == ("tpm", A.ek_sha256, True)


def test_one_off_the_list_waits_for_a_person_who_sees_what_was_proven(site: JoinSite) -> None:
    """Software in place of a TPM comes this far and no further: no maker signed its EK."""
    allow(site, B)
    box, bearer = a_box(), site.token()
    answer = join(site, bearer, box, A)
    assert answer.status == 202
    shown = site.call("joinRequests/get", requestId=answer.doc["requestId"]).doc
    assert shown["reason"] == "unknown-ek"
    assert shown["evidence"]["tpm"] == {"ekSha256": A.ek_sha256, "vendor": None, "allowed": False}
    site.call("joinRequests/approve", requestId=shown["requestId"])
    again = site.join(bearer, box, attestor="tpm", tpm=A.says())
    assert again.doc["status"] == "admitted"


def test_a_tpm_of_a_known_maker_says_so_and_is_admitted_once_it_is_on_the_list(
    one_site: JoinSite, tmp_path: Path
) -> None:
    """A real TPM, but for its silicon."""
    site = one_site
    with a_software_tpm(tmp_path) as chip, Tpm.open(chip.tcti) as tpm:
        site.vendors = chip.vendor_bundle
        ak, certificate = tpm.ak(), tpm.ek_certificate()
        assert certificate is not None
        says = {"ekPublic": text(tpm.ek_public()), "akPublic": text(ak.public), "ekCertificate": text(certificate)}
        known = ek_sha256(read_claim(*says.values()).ek)
        found = []
        for box in (a_box(1), a_box(2)):
            bearer = site.token()
            asked = challenged(site, bearer, box, says)
            blob, wrapped = (base64.b64decode(asked[name]) for name in ("credentialBlob", "encryptedSecret"))
            proof = proof_for(asked, box.csr, tpm.activate(ak, blob, wrapped))
            found.append(site.join(bearer, box, attestor="tpm", tpm=says, challenge=proof).doc)
            site.change(lambda doc: doc["pools"][POOL].update(ek_allow=[known]))
    assert [one["status"] for one in found] == ["deferred", "admitted"]
    shown = site.call("joinRequests/get", requestId=found[0]["requestId"]).doc["evidence"]["tpm"]
    assert (shown["ekSha256"], shown["allowed"]) == (known, False)
    assert shown["vendor"]


def test_an_ek_on_the_list_needs_no_token_where_the_pool_says_so(one_site: JoinSite) -> None:
    allow(one_site, A, pool="open")
    place = {"tenantId": OWNER, "poolId": "open"}
    box = a_box()
    member = member_of(join(one_site, None, box, A, **place), box)
    assert one_site.call("nodes/get", pool="open", nodeId=member.node_id).doc["admittedBy"] == "tpm"
    assert join(one_site, None, a_box(2), B, **place).doc["status"] == "deferred"
    assert one_site.join(None, box, attestor="tpm", tpm=A.says(), tenantId=OWNER, poolId=POOL).status == 401


def test_the_ek_of_another_machine_is_substituted_in_vain(one_site: JoinSite) -> None:
    """An EK's public half is no secret; what is wrapped for it opens in its TPM alone."""
    site = one_site
    allow(site, B)
    box, bearer = a_box(), site.token()
    challenge = challenged(site, bearer, box, A.says(ekPublic=B.ek))
    with pytest.raises(ValueError, match="ecryption"):
        A.opens(challenge)
    for secret in (bytes(32), secrets.token_bytes(32)):
        proof = A.proves(challenge, box.csr, secret)
        answer = site.join(bearer, box, attestor="tpm", tpm=A.says(ekPublic=B.ek), challenge=proof)
        assert (answer.status, answer.error["message"]) == (403, ONE_403)
    assert site.reasons() == ["challenge-failed"]


def test_a_challenge_for_one_ek_is_not_answered_with_another(one_site: JoinSite) -> None:
    """Proven with its own, claimed for an allowed one."""
    site = one_site
    allow(site, B)
    box, bearer = a_box(), site.token()
    challenge = challenged(site, bearer, box, A.says())
    proof = A.proves(challenge, box.csr)
    answer = site.join(bearer, box, attestor="tpm", tpm=A.says(ekPublic=B.ek), challenge=proof)
    assert answer.status == 403
    assert site.reasons() == ["challenge-of-another"]


@pytest.mark.parametrize(
    ("attributes", "wrong"),
    [
        (AK & ~Attribute.RESTRICTED, "restricted"),
        (AK & ~Attribute.FIXED_TPM, "fixed_tpm"),
        (AK & ~Attribute.FIXED_PARENT, "fixed_parent"),
        (AK & ~Attribute.SENSITIVE_DATA_ORIGIN, "sensitive_data_origin"),
        (AK & ~Attribute.SIGN, "sign"),
        (AK | Attribute.DECRYPT, "decrypt"),
    ],
)
def test_an_ak_that_says_it_is_no_tpms_is_named(one_site: JoinSite, attributes: int, wrong: str) -> None:
    allow(one_site, A)
    software = an_ak(a_p256_key(), attributes=attributes)
    answer = one_site.join(one_site.token(), a_box(), attestor="tpm", tpm=A.says(akPublic=software))
    assert (answer.code, answer.fields) == ("INVALID_INPUT", {"tpm"})
    assert wrong in answer.error["message"]


def test_an_ak_is_bound_to_its_challenge(one_site: JoinSite) -> None:
    """The AK's name is a part of what opens it: another AK's holder finds no secret that proves anything."""
    site = one_site
    allow(site, A)
    box, bearer = a_box(), site.token()
    challenge = challenged(site, bearer, box, A.says())
    other = replace(A, ak=an_ak(a_p256_key()))
    proof = other.proves(challenge, box.csr)
    assert site.join(bearer, box, attestor="tpm", tpm=A.says(), challenge=proof).status == 403
    assert site.reasons() == ["challenge-failed"]


def test_a_challenge_replayed_proves_nothing(site: JoinSite) -> None:
    allow(site, B)
    box, bearer = a_box(), site.token()
    challenge = challenged(site, bearer, box, A.says())
    proof = A.proves(challenge, box.csr)
    first = site.join(bearer, box, attestor="tpm", tpm=A.says(), challenge=proof)
    assert first.status == 202
    site.call("joinRequests/deny", requestId=first.doc["requestId"])
    site.skip(20)
    used = site.read(certificates.challenge_of, challenge["challengeId"])
    assert used is not None
    assert used.used_at is not None
    assert not site.write(certificates.use_challenge, challenge["challengeId"], site.now())


def test_a_challenge_is_good_for_a_minute(one_site: JoinSite) -> None:
    site = one_site
    allow(site, A)
    box, bearer = a_box(), site.token()
    challenge = challenged(site, bearer, box, A.says())
    assert challenge["expiresInS"] == 60
    site.skip(61)
    answer = site.join(bearer, box, attestor="tpm", tpm=A.says(), challenge=A.proves(challenge, box.csr))
    assert answer.status == 403
    assert site.reasons() == ["challenge-replayed"]
    assert join(site, bearer, box, A).status == 200


def test_a_challenge_for_another_csr_token_or_claim_proves_nothing(one_site: JoinSite) -> None:
    site = one_site
    allow(site, A)
    box, bearer = a_box(), site.token()
    challenge = challenged(site, bearer, box, A.says())
    other = box.rekeyed()
    for token, machine, proven in (
        (bearer, other, other),
        (bearer, other, box),
        (site.token(), box, box),
        (bearer, Box(box.uuid, "ANOTHER7", box.macs, box.key, box.csr), box),
    ):
        proof = A.proves(challenge, proven.csr)
        assert site.join(token, machine, attestor="tpm", tpm=A.says(), challenge=proof).status == 403
    assert {*site.reasons()} == {"challenge-of-another"}
    proof = A.proves(challenge, box.csr)
    assert site.join(bearer, box, attestor="tpm", tpm=A.says(), challenge=proof).status == 200


def test_an_ek_swapped_between_challenge_and_approval_is_refused(one_site: JoinSite) -> None:
    """The approval was for what was proven then, and for nothing else that is claimed later."""
    site = one_site
    box, bearer = a_box(), site.token()
    request_id = join(site, bearer, box, A).doc["requestId"]
    site.call("joinRequests/approve", requestId=request_id)
    for more in ({"attestor": "tpm", "tpm": B.says()}, {"attestor": "token"}, {"attestor": "discovery"}):
        answer = site.join(bearer, box, **more)
        assert (answer.status, answer.error["message"]) == (403, ONE_403)
    assert site.reasons()[0] == "claim-changed"
    assert site.join(bearer, box, attestor="tpm", tpm=A.says()).status == 200


def test_a_nodes_ek_never_changes_silently(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    allow(site, A, B)
    member = member_of(join(site, site.token(), box, A), box)
    pin: dict[str, Any] = {"allowReclaim": True, "expect": {"productUuid": box.uuid}}
    assert join(site, site.token(**pin), box.rekeyed(), B).status == 403
    assert site.join(site.token(**pin), box.rekeyed()).status == 403
    assert site.reasons() == ["ek-changed", "ek-not-proven"]
    new = box.rekeyed()
    assert member_of(join(site, site.token(**pin), new, A), new).node_id == member.node_id
    row = site.read(members.get, member.node_id)
    assert row is not None
    assert row.ek_sha256 == A.ek_sha256


def test_another_tenants_ek_is_a_foreign_identity(one_site: JoinSite) -> None:
    site = one_site
    for pool in (POOL, "tenants"):
        allow(site, A, pool=pool)
    theirs = a_box()
    assert join(site, site.token("tenant", "tenants"), theirs, A).status == 200
    assert join(site, site.token(), a_box(2), A).status == 403
    assert site.reasons() == ["foreign-identity"]


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("tpm", {"attestor": "tpm"}),
        ("tpm", {"attestor": "token", "tpm": A.says()}),
        ("tpm", {"attestor": "tpm", "tpm": A.says(ekPublic=b"")}),
        ("tpm", {"attestor": "tpm", "tpm": A.says(ekPublic=A.ek + b"\0")}),
        ("tpm", {"attestor": "tpm", "tpm": A.says(akPublic=A.ek)}),
        ("tpm", {"attestor": "tpm", "tpm": A.says() | {"ekPublic": "no base64"}}),
        ("tpm.ekPublic", {"attestor": "tpm", "tpm": A.says() | {"ekPublic": "A" * 4097}}),
        ("challenge", {"attestor": "token", "challenge": {"challengeId": "jc_1", "proof": ""}}),
        (
            "challenge.challengeId",
            {"attestor": "tpm", "tpm": A.says(), "challenge": {"challengeId": "jc_\0", "proof": ""}},
        ),
        (
            "challenge.challengeId",
            {"attestor": "tpm", "tpm": A.says(), "challenge": {"challengeId": "'; DROP", "proof": ""}},
        ),
        (
            "challenge.proof",
            {"attestor": "tpm", "tpm": A.says(), "challenge": {"challengeId": "jc_" + "0" * 26, "proof": "ä"}},
        ),
    ],
)
def test_what_is_no_claim_of_a_tpm_is_named(one_site: JoinSite, field: str, more: dict[str, Any]) -> None:
    bearer = one_site.token()
    answer = one_site.join(bearer, a_box(), **more)
    assert (answer.status, answer.fields) == (400, {field})
    assert one_site.join("bcjt_" + bearer[-50:], a_box(), **more).status == 401, "told to whoever is proven alone"


def test_a_challenge_that_there_is_not_is_refused(site: JoinSite) -> None:
    proof = {"challengeId": "jc_" + "0" * 26, "proof": text(bytes(32))}
    assert site.join(site.token(), a_box(), attestor="tpm", tpm=A.says(), challenge=proof).status == 403
