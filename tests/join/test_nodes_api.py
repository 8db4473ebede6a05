"""nodes: what joined, by whom it was let in, what it was given, and how it is put out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bcmetal.join.bearers import parse_bearer
from join.conftest import copied, opened
from join.site import OWNER, POOL, JoinSite, Member, a_box

NO_NODE = "nd_" + "0" * 26


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[JoinSite]:
    yield from opened(copied(sqlite_template, tmp_path_factory.mktemp("nodes")))


def get(site: JoinSite, member: Member) -> dict[str, Any]:
    found: dict[str, Any] = site.call("nodes/get", nodeId=member.node_id).doc
    return found


def test_a_node_shows_who_let_it_in_and_what_it_said(shared: JoinSite) -> None:
    bearer, box = shared.token("second"), a_box(1)
    member = shared.admitted_by(bearer, box, address="192.0.2.44")
    parsed = parse_bearer(bearer)
    assert parsed is not None
    shown = get(shared, member)
    assert shown == shown | {
        "nodeId": member.node_id,
        "tenantId": OWNER,
        "poolId": POOL,
        "siteId": "fra1",
        "state": "live",
        "trust": "platform",
        "hosted": None,
        "metal": False,
        "attestor": "token",
        "tokenId": parsed.token_id,
        "requestId": None,
        "admittedBy": "key:second",
        "ekSha256": None,
        "tpmProven": False,
        "address": "192.0.2.44",
        "endedAt": None,
        "endReason": None,
        "secrets": [],
    }
    assert {(one["kind"], one["value"]) for one in shown["identifiers"]} == {
        ("uuid", box.uuid),
        ("serial", box.serial),
        ("mac", box.macs[0]),
    }
    (certificate,) = shown["certificates"]
    assert certificate["kind"] == "node"
    assert certificate["serial"] == f"{member.leaf.serial_number:032x}"
    assert certificate["revokedAt"] is None
    assert "BEGIN" not in str(shown)


def test_a_node_with_a_bmc_is_told_from_one_without(shared: JoinSite) -> None:
    box = a_box(2)
    node_id = shared.enrolled(box)
    member = shared.admitted(box)
    assert member.node_id == node_id
    assert get(shared, member)["metal"] is True


def test_a_list_has_pages_and_keeps_those_that_left(one_site: JoinSite) -> None:
    members = []
    for n in range(5):
        one_site.skip(0.002)
        members.append(one_site.admitted(a_box(n)))
    one_site.call("nodes/evict", nodeId=members[1].node_id)
    ids = sorted(member.node_id for member in members)
    first = one_site.call("nodes/list", limit=3).doc
    assert [one["nodeId"] for one in first["nodes"]] == ids[:3]
    assert first["cursor"] == ids[2]
    second = one_site.call("nodes/list", limit=3, cursor=first["cursor"]).doc
    assert ([one["nodeId"] for one in second["nodes"]], second["cursor"]) == (ids[3:], None)
    states = {one["nodeId"]: one["state"] for one in first["nodes"] + second["nodes"]}
    assert sorted(states.values()) == ["evicted", "live", "live", "live", "live"]
    assert states[members[1].node_id] == "evicted"
    assert one_site.call("nodes/list", pool="open").doc == {"nodes": [], "cursor": None}


def test_an_eviction_is_at_once_and_told_once(site: JoinSite) -> None:
    box = a_box()
    member = site.admitted(box)
    first = site.call("nodes/evict", "second", nodeId=member.node_id, reason="sold")
    node = first.doc["node"]
    assert (node["state"], node["endReason"], first.doc["rotate"]) == ("evicted", "sold", [])
    assert [one["revokeReason"] for one in node["certificates"]] == ["evicted"]
    assert site.secrets_for(member).status == 401
    assert site.renew(member, box.rekeyed()).status == 401
    site.skip(5)
    assert site.call("nodes/evict", nodeId=member.node_id, reason="again").doc == first.doc
    assert [data["by"] for type_, data in site.events() if type_ == "security.node.evicted"] == ["key:second"]


def test_without_a_reason_the_record_says_who(shared: JoinSite) -> None:
    member = shared.admitted(a_box(10))
    assert shared.call("nodes/evict", nodeId=member.node_id).doc["node"]["endReason"] == "evicted by key:owner"


def test_a_locked_node_can_be_evicted_and_joins_again(shared: JoinSite) -> None:
    box = a_box(11)
    first = shared.admitted(box)
    new = box.rekeyed()
    second = Member(first.node_id, shared.renew(first, new).doc["certificate"], new.key)
    assert shared.secrets_for(second).status == 200
    assert shared.renew(first, box.rekeyed()).status == 401
    assert get(shared, first)["state"] == "locked"
    assert shared.call("nodes/evict", nodeId=first.node_id).doc["node"]["state"] == "evicted"
    shared.skip(1)
    again = shared.admitted(box.rekeyed())
    assert again.node_id == first.node_id
    assert get(shared, again)["state"] == "live"


def test_a_node_shows_when_it_joined_first_and_last(shared: JoinSite) -> None:
    box = a_box(12)
    first = get(shared, shared.admitted(box))
    shared.skip(700)
    again = get(shared, shared.admitted(box.rekeyed(), allowReclaim=True))
    assert again["nodeId"] == first["nodeId"]
    assert again["joinedAt"] == first["joinedAt"]
    assert again["lastJoinAt"] > first["lastJoinAt"]
    assert [one["revokeReason"] for one in again["certificates"]] == ["reclaimed", None]


@pytest.mark.parametrize(
    ("method", "field", "value"),
    [
        *(("list", "limit", value) for value in (0, 201, "1", None, 1.5)),
        *(("list", "cursor", value) for value in ("", "nd_0", "jt_" + "0" * 26, NO_NODE + "0", NO_NODE + "\n", 1)),
        *((method, "nodeId", value) for method in ("get", "evict") for value in (None, "", "name", NO_NODE + "'", 7)),
        *(("evict", "reason", value) for value in ("", "x" * 257, "a\nb", "a\x1b[2J", "a\u2028b", 1)),
        *((method, "force", True) for method in ("list", "get", "evict")),
        *((method, "tenantId", "") for method in ("list", "get", "evict")),
        *((method, "poolId", "a/b") for method in ("list", "get", "evict")),
    ],
)
def test_a_value_out_of_its_bounds_is_named(shared: JoinSite, method: str, field: str, value: Any) -> None:
    asked: dict[str, Any] = {"tenantId": OWNER, "poolId": POOL}
    if method != "list":
        asked["nodeId"] = NO_NODE
    answer = shared.post(f"nodes/{method}", **(asked | {field: value}))
    assert (answer.code, answer.fields) == ("INVALID_INPUT", {field})


@pytest.mark.parametrize("method", ["get", "evict"])
def test_a_node_of_another_pool_or_none_is_not_found(shared: JoinSite, method: str) -> None:
    elsewhere = shared.admitted(a_box(20 + len(method)), pool="open")
    for node_id in (NO_NODE, elsewhere.node_id):
        assert shared.call(f"nodes/{method}", nodeId=node_id).code == "NOT_FOUND"
    assert shared.secrets_for(elsewhere).status == 200


@pytest.mark.parametrize(("method", "action"), [("list", "read"), ("get", "read"), ("evict", "revoke")])
def test_each_method_is_decided_on_the_pool_with_the_tokens_actions(shared: JoinSite, method: str, action: str) -> None:
    more = {} if method == "list" else {"nodeId": NO_NODE}
    answer = shared.call(f"nodes/{method}", "siteadmin", **more)
    assert (answer.code, answer.error["details"]["actions"]) == ("PERMISSION_DENIED", [f"join-tokens:{action}"])
    reads = shared.call(f"nodes/{method}", "reader", **more)
    assert reads.code == {"list": "OK", "get": "NOT_FOUND", "evict": "PERMISSION_DENIED"}[method]
    for tenant, pool in ((OWNER, POOL), ("tenant-a", POOL), ("tenant-a", "nowhere")):
        assert shared.post(f"nodes/{method}", "tenant", tenantId=tenant, poolId=pool, **more).code == "NOT_FOUND"
    assert shared.post(f"nodes/{method}", None, tenantId=OWNER, poolId=POOL, **more).status == 401


def test_refusals_and_changes_are_in_the_audit(shared: JoinSite) -> None:
    member = shared.admitted(a_box(30))
    shared.call("nodes/evict", "siteadmin", nodeId=member.node_id)
    shared.call("nodes/evict", nodeId=member.node_id, reason="sold")
    entries = shared.post("audit/list", "siteadmin", tenantId=OWNER, limit=200)
    found = [
        (one["identity"], one["outcome"]) for one in entries.doc["entries"] if one["action"] == "compute:nodes:evict"
    ]
    assert {("key:siteadmin", "refused"), ("key:owner", "allowed")} <= set(found)


def test_an_eviction_names_the_token_that_could_let_it_in_again(one_site: JoinSite) -> None:
    bearer, box = one_site.token(maxUses=3), a_box(9)
    parsed = parse_bearer(bearer)
    assert parsed is not None
    member = one_site.admitted_by(bearer, box)
    assert one_site.call("nodes/evict", nodeId=member.node_id).doc["tokens"] == [parsed.token_id]
    once = one_site.admitted(a_box(10))
    assert one_site.call("nodes/evict", nodeId=once.node_id).doc["tokens"] == []
