"""What a node is trusted with: decided by its pool and its token alone, never by what it says, and only ever lowered."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bcmetal.join.judging import Trust
from bcmetal.store import certificates
from join.awaited import a_deploying_node
from join.conftest import copied, opened
from join.site import OWNER, POOL, TENANT_OF, Box, JoinSite, Member, a_box, member_of

SECRET = "registry"


def _pool(owner: str, site: str, operated: bool) -> dict[str, Any]:
    """`agent`: its machines run one."""
    return {
        "owner": owner,
        "site": site,
        "agent": "bcd",
        "commission": "std",
        "release": "std",
        "kubernetes": {"platform_operated": operated},
    }


# custom site, pool owned by the site's owner → owner of the pool, site, who mints
PLACES = {
    (False, True): ("platform", "fra1", "owner"),
    (False, False): ("tenant-a", "fra1", "tenant"),
    (True, True): ("tenant-b", "edge", "edge"),
    (True, False): ("platform", "edge", "owner"),
}


def pool_name(custom: bool, owned: bool, operated: bool) -> str:
    return f"p{custom:d}{owned:d}{operated:d}"


def _every_pool(doc: dict[str, Any], folder: Path) -> None:
    for (custom, owned), (owner, site, who) in PLACES.items():
        for operated in (False, True):
            name = pool_name(custom, owned, operated)
            doc["pools"][name] = _pool(owner, site, operated)
            doc["grants"].append({"to": f"key:{who}", "role": "admin", "on": f"compute-pool/{name}"})
    for site in ("fra1", "edge"):
        path = folder / f"{site}.secret"
        path.write_text(secrets.token_hex(16) + "\n")
        path.chmod(0o600)
        doc["sites"][site]["secrets"] = {SECRET: f"file:{path}"}


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[JoinSite]:
    """A pool of each kind, on sites that have a secret."""
    folder = tmp_path_factory.mktemp("trust")
    for site in opened(copied(sqlite_template, folder)):
        site.change(lambda doc: _every_pool(doc, folder))
        yield site


def expected(custom: bool, owned: bool, hosted: str | None, operated: bool) -> Trust:
    if custom:
        return Trust.TENANT_OWNED
    if not owned:
        return Trust.TENANT_CONTROLLED
    return Trust.TENANT_CONTROLLED if hosted and not operated else Trust.PLATFORM


EVERY = [*product((False, True), (False, True), (None, "kubernetes"), (False, True))]


@pytest.mark.parametrize(("custom", "owned", "hosted", "operated"), EVERY)
def test_trust_comes_from_the_pool_and_the_token(
    everywhere: JoinSite, custom: bool, owned: bool, hosted: str | None, operated: bool
) -> None:
    site, number = everywhere, EVERY.index((custom, owned, hosted, operated))
    owner, place, who = PLACES[custom, owned]
    pool = pool_name(custom, owned, operated)
    box = a_box(1000 + number)
    made = site.post(
        "joinTokens/create",
        who,
        tenantId=owner,
        poolId=pool,
        ttlSeconds=600,
        idempotencyKey=secrets.token_hex(8),
        hosted=hosted,
    )
    member = member_of(site.join(made.doc["token"], box), box)
    shown = site.post("nodes/get", who, tenantId=owner, poolId=pool, nodeId=member.node_id).doc
    trust = expected(custom, owned, hosted, operated)
    assert (shown["trust"], shown["hosted"], shown["siteId"]) == (trust.value, hosted, place)
    kind = "node" if trust is Trust.PLATFORM else "node-tenant"
    assert member.uri == f"spiffe://bcmetal/{kind}/{member.node_id}"
    assert [one["kind"] for one in shown["certificates"]] == [kind]
    answer = site.secrets_for(member)
    if trust is Trust.PLATFORM:
        assert [one["name"] for one in answer.doc["secrets"]] == [SECRET]
    else:
        assert answer.code == "PERMISSION_DENIED"
        assert answer.error["message"] == "Platform secrets are for live nodes of platform trust alone."
    events = [data for type_, data in site.events() if type_ == "security.join.admitted"]
    assert (events[-1]["trust"], events[-1].get("hosted")) == (trust.value, hosted)


def test_a_renewed_certificate_is_of_the_same_kind(everywhere: JoinSite) -> None:
    for number, hosted in enumerate((None, "kubernetes")):
        box = a_box(1100 + number)
        first = everywhere.admitted(box, hosted=hosted)
        new = box.rekeyed()
        second = Member(first.node_id, everywhere.renew(first, new).doc["certificate"], new.key)
        assert second.uri == first.uri
        assert everywhere.secrets_for(second).status == (403 if hosted else 200)


def test_a_reclaim_lowers_trust_and_a_later_one_does_not_raise_it(everywhere: JoinSite) -> None:
    site, box = everywhere, a_box(1200)
    pin = {"productUuid": box.uuid}
    member = site.admitted(box)
    assert site.secrets_for(member).status == 200
    trusts = []
    for hosted in ("kubernetes", None):
        box = box.rekeyed()
        member = site.admitted(box, allowReclaim=True, expect=pin, hosted=hosted)
        trusts.append(site.call("nodes/get", nodeId=member.node_id).doc["trust"])
        assert "/node-tenant/" in member.uri
        assert site.secrets_for(member).status == 403
    assert trusts == ["tenant-controlled", "tenant-controlled"]


def test_trust_does_not_rise_with_time_either(one_site: JoinSite) -> None:
    """Its certificates ended past the grace, so that no reclaim is needed; it is the same node for all that."""
    box = a_box()
    one_site.admitted(box, hosted="kubernetes")
    one_site.skip(40 * 86_400)
    later = one_site.admitted(box.rekeyed())
    assert one_site.call("nodes/get", nodeId=later.node_id).doc["trust"] == "tenant-controlled"
    assert "/node-tenant/" in later.uri


def test_a_trust_that_was_lowered_in_the_store_holds_whatever_certificate_is_shown(
    everywhere: JoinSite,
) -> None:
    """Both are asked for: a live record of platform trust, and a certificate of the issuer `node`."""
    site, box = everywhere, a_box(1300)
    first = site.admitted(box)
    low = site.admitted(box.rekeyed(), allowReclaim=True, expect={"serial": box.serial}, hosted="kubernetes")
    assert low.node_id == first.node_id
    rows = site.read(certificates.of_node, first.node_id)
    assert [(row.kind, row.revoke_reason) for row in rows] == [("node", "reclaimed"), ("node-tenant", None)]
    assert site.secrets_for(first).status == 401
    assert site.secrets_for(low).status == 403


# ---------------------------------------------------------------- secrets


def test_what_was_released_is_recorded_and_must_be_rotated_after_an_eviction(everywhere: JoinSite) -> None:
    site = everywhere
    member = site.admitted(a_box(1400))
    assert site.secrets_for(member, SECRET).status == 200
    unknown = site.secrets_for(member, SECRET, "another")
    assert (unknown.code, unknown.fields) == ("INVALID_INPUT", {"names[1]"})
    shown = site.call("nodes/get", nodeId=member.node_id).doc
    assert [one["name"] for one in shown["secrets"]] == [SECRET]
    value = site.secrets_for(member, SECRET).doc["secrets"][0]["value"]
    assert value not in str(site.call("nodes/get", nodeId=member.node_id).doc)
    assert site.call("nodes/evict", nodeId=member.node_id).doc["rotate"] == [SECRET]
    assert site.secrets_for(member, SECRET).status == 401


def test_nobody_asks_for_secrets_without_a_certificate(everywhere: JoinSite) -> None:
    site = everywhere
    headers = {"Content-Type": "application/json", "X-Client-Cert": "x", "X-SSL-Client-Verify": "SUCCESS"}
    answer = site.run(site.send(site.nodes, "/api/compute/nodes/secrets", b"{}", headers))
    assert answer.status == 401


# ---------------------------------------------------------------- without a token

OPEN: Any = {"tenantId": OWNER, "poolId": "open", "attestor": "discovery"}


def test_discovery_without_a_token_admits_only_who_is_awaited_and_never_as_platform(everywhere: JoinSite) -> None:
    site = everywhere
    for number, state in enumerate(("deployed", "rescued", "deploying", "available")):
        box = a_box(1500 + number)
        site.enrolled(box, "open", state=state)
        assert site.join(None, box, **OPEN).status == 403
    other_step = a_box(1510)
    a_deploying_node(site, other_step, "open", step="see_a_sign_of_life")
    assert site.join(None, other_step, **OPEN).status == 403
    box = a_box(1511)
    node_id = a_deploying_node(site, box, "open")
    member = member_of(site.join(None, box, **OPEN), box)
    assert member.node_id == node_id
    shown = site.call("nodes/get", pool="open", nodeId=node_id).doc
    assert (shown["trust"], shown["tokenId"], shown["attestor"]) == ("tenant-controlled", None, "discovery")
    assert site.secrets_for(member).status == 403


def test_discovery_with_a_token_earns_what_the_token_gives(everywhere: JoinSite) -> None:
    site, box = everywhere, a_box(1520)
    node_id = site.enrolled(box, "open")
    member = member_of(site.join(site.token(pool="open"), box, attestor="discovery"), box)
    assert member.node_id == node_id
    assert site.secrets_for(member).status == 200


def test_an_approved_machine_without_a_token_is_still_not_of_the_platform(everywhere: JoinSite) -> None:
    site, box = everywhere, a_box(1530)
    answer = site.join(None, box, **OPEN)
    assert answer.status == 202
    shown = site.call("joinRequests/get", pool="open", requestId=answer.doc["requestId"]).doc
    assert (shown["reason"], shown["tokenId"]) == ("unknown-machine", None)
    assert site.call("joinRequests/approve", pool="open", requestId=shown["requestId"]).status == 200
    member = member_of(site.join(None, box, **OPEN), box)
    assert "/node-tenant/" in member.uri


def test_a_pool_without_such_a_policy_takes_no_join_without_a_token(everywhere: JoinSite) -> None:
    """One body for whatever is wrong: which pools there are is not told."""
    site, box = everywhere, a_box(1540)
    a_deploying_node(site, box)
    bodies = set()
    for number, (tenant, pool) in enumerate(
        ((OWNER, POOL), (OWNER, "bare"), (OWNER, "nowhere"), ("tenant-a", "open"), (TENANT_OF["edge"], "edge"))
    ):
        body = {"tenantId": tenant, "poolId": pool, "attestor": "discovery"}
        answer = site.join(None, box, address=f"198.51.100.{number}", **body)
        bodies.add((answer.status, answer.error["message"], str(answer.error["details"])))
    assert bodies == {(401, "The join token is not valid.", "{}")}
    assert site.join(None, box, tenantId=OWNER, poolId="open", attestor="token").status == 401


def test_what_a_machine_says_of_its_hosting_is_no_part_of_the_message(everywhere: JoinSite) -> None:
    """A pod that claims not to be in Kubernetes: the token says so, and the machine has no word for it."""
    site, box = everywhere, a_box(1550)
    bearer = site.token(hosted="kubernetes")
    for claim in ({"hosted": None}, {"hosted": "none"}, {"kubernetes": False}, {"trust": "platform"}):
        answer = site.join(bearer, box, **claim)
        assert (answer.status, answer.fields) == (400, {*claim})
    plain = Box(box.uuid, box.serial, box.macs)
    member = member_of(site.join(bearer, plain), plain)
    assert "/node-tenant/" in member.uri


def test_secrets_go_by_the_pool_as_it_is_now(one_site: JoinSite) -> None:
    one_site.change(lambda doc: doc["pools"][POOL].update(kubernetes={"platform_operated": True}))
    member = one_site.admitted(a_box(), hosted="kubernetes")
    assert one_site.secrets_for(member).status == 200
    one_site.change(lambda doc: doc["pools"][POOL].pop("kubernetes"))
    assert one_site.secrets_for(member).status == 403
