"""Reading: lists, inventories, plans, the audit, freezes, and the feed of events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request

from api.site import POOL, STEPS, TENANT, Site
from bcmetal.api.auth import Gate
from bcmetal.api.events import EventStreams
from bcmetal.store import keys, nodes
from bcmetal.store.values import StoreInventory


def _three(site: Site) -> list[str]:
    made = [site.enroll(f"n{n}", bmc={"address": f"redfish://10.20.3.{n}"}) for n in (1, 2)]
    body = {
        "poolId": "pool-a2",
        "name": "n3",
        "bmc": {"address": "ipmi://10.20.3.3", "username": "u", "password": "p" * 8},
    }
    return [*made, str(site.metal("enroll", {**body, "inspect": False}).doc["nodeId"])]


def _names(site: Site, who: str = "admin", **given: Any) -> list[str]:
    answer = site.post("/api/compute/metal/list", {"tenantId": TENANT, **given}, who)
    assert answer.status == 200, answer.raw
    return [view["name"] for view in answer.doc["nodes"]]


def test_a_list_holds_what_the_caller_may_read(site: Site) -> None:
    _three(site)
    assert sorted(_names(site)) == ["n1", "n2", "n3"]
    assert sorted(_names(site, poolId=POOL)) == ["n1", "n2"]
    assert sorted(_names(site, "reader")) == ["n1", "n2"]
    assert site.post("/api/compute/metal/list", {"tenantId": TENANT, "poolId": "pool-a2"}, "reader").status == 403


def test_a_list_is_read_page_by_page(site: Site) -> None:
    _three(site)
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(3):
        body = {"tenantId": TENANT, "limit": 1} | ({"cursor": cursor} if cursor else {})
        page = site.post("/api/compute/metal/list", body).doc
        seen += [view["name"] for view in page["nodes"]]
        cursor = page["cursor"]
    assert cursor is None
    assert sorted(seen) == ["n1", "n2", "n3"]


def test_a_list_is_narrowed_by_what_an_admin_remembers(site: Site) -> None:
    first, second, _ = _three(site)
    site.put(first, state="inspect-failed")
    site.of(second, "update", labels={"team": "a"})
    assert _names(site, state="inspect-failed") == ["n1"]
    assert _names(site, labels={"team": "a"}) == ["n2"]
    assert _names(site, query="10.20.3.3") == ["n3"]
    assert _names(site, needsAttention=True) == ["n1"]


def test_an_inventory_is_shown_with_when_it_was_taken(site: Site) -> None:
    node_id = site.enroll()
    assert site.of(node_id, "inventory").doc["inventory"] is None
    fact = StoreInventory(site.new_id("iv"), "bmc", "d1", {}, {"identity": {"model": "R750"}, "cpus": []})
    site.write(nodes.apply, node_id, [fact], site.now())
    answer = site.of(node_id, "inventory", since="2020-01-01T00:00:00Z").doc
    assert answer["node"]["nodeId"] == node_id
    assert answer["inventory"]["doc"]["identity"] == {"model": "R750"}
    assert [one["digest"] for one in answer["inventories"]] == ["d1"]


def test_a_timeline_is_newest_first_and_names_its_operations(site: Site) -> None:
    node_id = site.enroll()
    site.of(node_id, "refresh")
    answer = site.of(node_id, "timeline", limit=1).doc
    assert [one["verb"] for one in answer["operations"]] == ["refresh"]
    assert answer["operations"][0]["operationId"].startswith("op_")


# ---------------------------------------------------------------- plan


def test_a_plan_says_what_would_be_done_and_does_nothing(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="inspected")
    plan = site.of(node_id, "plan", verb="commission", input={"confirmErase": node_id}).doc["plan"]
    assert plan["allowed"] is True
    assert plan["erasesDisks"] is True
    assert plan["steps"] == list(STEPS)
    assert (plan["leadsTo"], plan["onFailure"], plan["actions"]) == ("available", "commission-failed", ["erase"])
    assert site.view(node_id)["state"] == "inspected"


def test_a_plan_says_why_not(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="inspected")
    plan = site.of(node_id, "plan", verb="commission").doc["plan"]
    assert plan["allowed"] is False
    assert plan["refusal"]["details"]["reason"] == "needs-confirm-erase"
    unknown = site.of(node_id, "plan", verb="commission", input={"profile": "none"}).doc["plan"]
    assert unknown["refusal"]["code"] == "INVALID_INPUT"
    missing = site.of(node_id, "plan", "reader", verb="setPower", input={"action": "on"}).doc["plan"]
    assert (missing["allowed"], missing["actionsMissing"]) == (False, ["power"])
    assert site.of(node_id, "plan", verb="retry").doc["plan"]["allowed"] is False


@pytest.mark.parametrize(
    ("verb", "given", "fields"),
    [
        ("setPower", {}, {"input.action"}),
        ("setPower", {"action": "on", "x": 1, "nodeId": "other"}, {"input.x"}),
        ("enroll", {}, {"verb"}),
        ("cleanup", {}, {"verb"}),
        ("explode", {}, {"verb"}),
    ],
)
def test_a_plans_input_is_checked_as_the_verbs_own(
    site: Site, verb: str, given: dict[str, Any], fields: set[str]
) -> None:
    answer = site.of(site.enroll(), "plan", verb=verb, input=given)
    assert (answer.code, answer.fields) == ("INVALID_INPUT", fields)


# ---------------------------------------------------------------- audit


def test_what_was_done_and_what_was_refused_is_audited(site: Site) -> None:
    node_id = site.enroll()
    site.of(node_id, "refresh", "operator")
    site.of(node_id, "setBmcCredentials", "operator", username="u", password="p" * 8)
    site.of(node_id, "get", "nobody")
    site.of(node_id, "deploy", "operator", image={"name": "os"})
    site.post("/api/compute/metal/refresh", {"tenantId": TENANT, "poolId": POOL, "nodeId": node_id}, "other")
    entries = site.post("/api/compute/audit/list", {"tenantId": TENANT}).doc["entries"]
    seen = {(one["identity"], one["action"], one["outcome"]) for one in entries}
    assert ("key:operator", "compute:metal:refresh", "allowed") in seen
    assert ("key:operator", "compute:metal:setBmcCredentials", "refused") in seen
    assert ("key:operator", "compute:metal:deploy", "refused") in seen
    assert ("key:nobody", "compute:metal:get", "refused") in seen
    assert all(one["tenantId"] == TENANT and one["address"] == "192.0.2.7" for one in entries)
    assert "key:other" not in {one["identity"] for one in entries}  # a stranger's refusal is its own tenant's
    theirs = site.post("/api/compute/audit/list", {"tenantId": "tenant-b"}, "other")
    assert [one["action"] for one in theirs.doc["entries"]] == ["compute:metal:refresh"]


def test_an_audit_is_narrowed_and_read_page_by_page(site: Site) -> None:
    first, second = site.enroll("n1"), site.enroll("n2", bmc={"address": "redfish://10.20.3.18"})
    path, body = "/api/compute/audit/list", {"tenantId": TENANT}
    assert {one["nodeId"] for one in site.post(path, {**body, "nodeId": "n1"}).doc["entries"]} == {first}
    assert {one["nodeId"] for one in site.post(path, {**body, "nodeId": second}).doc["entries"]} == {second}
    assert site.post(path, {**body, "nodeId": "n9"}).code == "NOT_FOUND"
    page = site.post(path, {**body, "limit": 1}).doc
    rest = site.post(path, {**body, "cursor": page["cursor"]}).doc
    assert len(page["entries"]) + len(rest["entries"]) == 2


def test_an_audit_is_exported_line_by_line(site: Site) -> None:
    site.enroll("n1")
    answer = site.post("/api/compute/audit/export", {"tenantId": TENANT})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line)["action"] for line in answer.raw.splitlines()] == ["compute:metal:enroll"]


def test_the_audit_of_a_tenant_is_not_for_whom_a_part_is_granted(site: Site) -> None:
    site.change(
        lambda doc: doc["grants"].append({"to": "key:reader", "actions": ["audit"], "on": f"compute-pool/{POOL}"})
    )
    assert site.post("/api/compute/audit/list", {"tenantId": TENANT}, "reader").code == "PERMISSION_DENIED"
    assert site.post("/api/compute/audit/list", {"tenantId": "nobody-at-all"}, "reader").code == "NOT_FOUND"


# ---------------------------------------------------------------- freeze


@pytest.mark.parametrize(
    ("scope", "tenant", "stored"),
    [
        ({"scopeKind": "pool", "scopeId": POOL}, TENANT, POOL),
        ({"scopeKind": "site", "scopeId": "site-a"}, "platform", "site-a"),
        ({"scopeKind": "rack", "scopeId": "r3", "siteId": "site-a"}, "platform", "site-a/r3"),
    ],
)
def test_a_freeze_is_set_listed_and_lifted(site: Site, scope: dict[str, str], tenant: str, stored: str) -> None:
    body = {"tenantId": tenant, **scope}
    made = site.post("/api/compute/freeze/set", {**body, "reason": "power work"}).doc
    assert (made["scopeKind"], made["scopeId"], made["by"]) == (scope["scopeKind"], stored, "key:admin")
    listed = site.post("/api/compute/freeze/list", {"tenantId": TENANT}).doc["freezes"]
    assert [one["reason"] for one in listed] == ["power work"]
    assert site.post("/api/compute/freeze/list", {"tenantId": "tenant-b"}, "other").doc["freezes"] == []
    site.woken.clear()
    assert site.post("/api/compute/freeze/lift", body).doc["lifted"] is True
    assert site.woken == [None]
    assert site.post("/api/compute/freeze/lift", body).doc["lifted"] is False


def test_a_scope_that_is_not_the_tenants_is_not_found(site: Site) -> None:
    def code(**scope: str) -> str:
        return site.post("/api/compute/freeze/set", {"tenantId": TENANT, "reason": "r", **scope}).code

    assert code(scopeKind="pool", scopeId="pool-b") == "NOT_FOUND"
    assert code(scopeKind="site", scopeId="site-b") == "NOT_FOUND"
    assert code(scopeKind="site", scopeId="site-x") == "NOT_FOUND"
    assert code(scopeKind="rack", scopeId="r3") == "INVALID_INPUT"


# ---------------------------------------------------------------- events


async def _stream(site: Site, who: str, last: str | None, want: int) -> list[str]:
    """The first `want` messages of a stream."""
    headers = [(b"authorization", f"Bearer {site.keys[who]}".encode())]
    if last is not None:
        headers.append((b"last-event-id", last.encode()))
    scope = {"type": "http", "headers": headers, "method": "GET", "path": "/events", "query_string": b""}
    streams = EventStreams(site.services, Gate(site.services))
    answer: Any = await streams.answer(Request(scope), "192.0.2.7")
    got: list[str] = []
    lines = answer.body_iterator
    try:
        async for message in lines:
            got.append(str(message))
            if len(got) >= want:
                break
    finally:
        await lines.aclose()
    return got


def test_a_feed_is_read_from_where_it_was_left(site: Site) -> None:
    node_id = site.enroll("n1")
    site.of(node_id, "inspect")
    positions = [event.position for event in site.events()]
    first = site.run(asyncio.wait_for(_stream(site, "reader", "0", 1), 5))
    assert first[0].startswith(f"id: {positions[0]}\nevent: metal.node.enrolled\n")
    event = json.loads(first[0].partition("data: ")[2])
    assert (event["specversion"], event["subject"], event["tenantid"]) == ("1.0", node_id, TENANT)
    rest = site.run(asyncio.wait_for(_stream(site, "reader", str(positions[0]), 1), 5))
    assert "metal.state.changed" in rest[0]


def test_a_feed_shows_nobody_what_no_grant_names(site: Site) -> None:
    _three(site)
    body = {"tenantId": "tenant-b", "poolId": "pool-b", "name": "theirs"}
    bmc = {"address": "ipmi://10.20.7.7", "username": "u", "password": "p" * 8}
    site.metal("enroll", {**body, "bmc": bmc, "inspect": False}, "other")
    site.events()
    seen = site.run(asyncio.wait_for(_stream(site, "other", "0", 1), 5))
    assert json.loads(seen[0].partition("data: ")[2])["data"]["name"] == "theirs"
    mine = site.run(asyncio.wait_for(_stream(site, "reader", "0", 2), 5))
    assert [json.loads(one.partition("data: ")[2])["data"]["name"] for one in mine] == ["n1", "n2"]


def test_a_stream_starts_for_known_callers_at_a_position_that_can_be(site: Site) -> None:
    assert site.send("/events", method="GET").code == "UNAUTHENTICATED"
    key = {"Authorization": f"Bearer {site.keys['reader']}"}
    assert site.send("/events", b"", {**key, "Last-Event-ID": "abc"}, method="GET").fields == {"Last-Event-ID"}


def test_a_revoked_key_ends_its_stream(site: Site) -> None:
    site.enroll("n1")
    site.events()

    async def read() -> list[str]:
        headers = [(b"authorization", f"Bearer {site.keys['reader']}".encode()), (b"last-event-id", b"0")]
        scope = {"type": "http", "headers": headers, "method": "GET", "path": "/events", "query_string": b""}
        answer: Any = await EventStreams(site.services, Gate(site.services)).answer(Request(scope), "192.0.2.7")
        await site.store.write(keys.revoke, "key:reader", site.now())
        site.skip(30)
        return [str(message) async for message in answer.body_iterator]

    assert site.run(asyncio.wait_for(read(), 5)) == []
