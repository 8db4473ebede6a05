"""joinRequests: what a person sees of a join that was deferred, what a decision does, and how long each of them lasts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from bcmetal.join.bearers import parse_bearer
from bcmetal.join.leaving import expire_overdue
from bcmetal.store import join_requests, join_tokens
from join.conftest import copied, opened
from join.site import OWNER, POOL, Box, JoinSite, a_box, member_of

NOBODYS = "03000200-0400-0500-0006-000700080009"
NO_REQUEST = "jr_" + "0" * 26
HOUR = 3600


def a_blank(n: int = 1) -> Box:
    """A machine with placeholders and one MAC of its own."""
    return Box(NOBODYS, "To be filled by O.E.M.", (f"3c:ec:ef:77:{n >> 8:02x}:{n & 255:02x}",))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[JoinSite]:
    yield from opened(copied(sqlite_template, tmp_path_factory.mktemp("requests")))


def deferred(site: JoinSite, bearer: str, box: Box, **more: Any) -> str:
    answer = site.join(bearer, box, **more)
    assert answer.status == 202, (answer.raw, site.reasons())
    return str(answer.doc["requestId"])


def id_of(bearer: str) -> str:
    parsed = parse_bearer(bearer)
    assert parsed is not None
    return parsed.token_id


def uses(site: JoinSite, bearer: str) -> tuple[int, int]:
    row = site.read(join_tokens.get, id_of(bearer))
    assert row is not None
    return row.uses, row.reserved


def get(site: JoinSite, request_id: str, pool: str = POOL) -> dict[str, Any]:
    answer = site.call("joinRequests/get", pool=pool, requestId=request_id)
    assert answer.status == 200, answer.raw
    found: dict[str, Any] = answer.doc
    return found


def types(site: JoinSite, request_id: str) -> list[str]:
    return [
        type_.rpartition(".")[2]
        for type_, data in site.events("security.join-request")
        if data["requestId"] == request_id
    ]


# ---------------------------------------------------------------- what is shown


def test_the_evidence_stands_side_by_side(shared: JoinSite) -> None:
    box = Box(NOBODYS, "SN55X", ("3c:ec:ef:55:00:01", "3c:ec:ef:55:00:02"))
    node_id = shared.enrolled(Box("8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b5500", "SN55X", box.macs[:1]))
    shown = get(shared, deferred(shared, shared.token(), box))
    said = {one["value"]: one for one in shown["evidence"]["identifiers"]}
    assert {value: one["usable"] for value, one in said.items()} == {
        NOBODYS: False,
        "SN55X": True,
        "3c:ec:ef:55:00:01": True,
        "3c:ec:ef:55:00:02": True,
    }
    assert {value: one["conflicts"] for value, one in said.items() if one["conflicts"]} == {
        "SN55X": [node_id],
        "3c:ec:ef:55:00:01": [node_id],
    }
    (reported,) = shown["evidence"]["reported"]
    assert (reported["nodeId"], reported["state"]) == (node_id, "deployed")
    assert {one["value"] for one in reported["identifiers"]} >= {"SN55X", "8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b5500"}
    assert shown["evidence"]["tpm"] is None


def test_the_record_has_who_when_and_whence_and_never_what_it_came_with(shared: JoinSite) -> None:
    bearer, box = shared.token(maxUses=2), a_blank(2)
    request_id = deferred(shared, bearer, box)
    first = get(shared, request_id)
    shared.skip(5)
    assert deferred(shared, bearer, box, address="192.0.2.99") == request_id
    again = get(shared, request_id)
    assert (first["address"], again["address"]) == ("192.0.2.7", "192.0.2.99")
    assert (first["attempts"], again["attempts"]) == (1, 2)
    assert first["createdAt"] == again["createdAt"]
    assert again["lastSeenAt"] > first["lastSeenAt"]
    assert len(first["keySha256"]) == len(first["csrSha256"]) == 64
    assert (first["tokenId"], first["attestor"]) == (id_of(bearer), "token")
    assert shared.call("joinRequests/approve", requestId=request_id).status == 200
    member = member_of(shared.join(bearer, box), box)
    body = "".join(box.csr.splitlines()[1:-1])
    for path in ("get", "list"):
        raw = shared.call(
            f"joinRequests/{path}", **({"requestId": request_id} if path == "get" else {"includeInactive": True})
        ).raw.decode()
        for hidden in ("BEGIN", body[:40], bearer.partition(".")[2], member.chain.splitlines()[1]):
            assert hidden not in raw


def test_another_tenants_machine_with_the_same_serial_is_told_of_to_nobody(shared: JoinSite) -> None:
    """Two makers may count alike: the serial is no conflict that another tenant may see, nor is what its BMC reported."""
    theirs = shared.enrolled(Box("8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b6600", "SN66X", ("3c:ec:ef:66:00:01",)), "tenants")
    shown = get(shared, deferred(shared, shared.token(), Box(NOBODYS, "SN66X", ("3c:ec:ef:66:00:02",))))
    text = str(shown)
    for value in (theirs, "3c:ec:ef:66:00:01", "8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b6600"):
        assert value not in text
    assert all(one["conflicts"] == [] for one in shown["evidence"]["identifiers"])


def test_what_a_bmc_reported_is_shown_to_those_of_its_pool_alone(shared: JoinSite) -> None:
    other = shared.enrolled(Box("8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b6700", "SN67X", ("3c:ec:ef:67:00:01",)), "open")
    shown = get(shared, deferred(shared, shared.token(), Box(NOBODYS, "SN67X")))
    assert [one["conflicts"] for one in shown["evidence"]["identifiers"] if one["kind"] == "serial"] == [[other]]
    assert shown["evidence"]["reported"] == []


# ---------------------------------------------------------------- decisions


def test_an_approval_reserves_a_use_and_the_join_consumes_it(site: JoinSite) -> None:
    bearer, box = site.token(maxUses=2), a_blank()
    request_id = deferred(site, bearer, box)
    assert uses(site, bearer) == (0, 0)
    approved = site.call("joinRequests/approve", "second", requestId=request_id).doc
    assert (approved["state"], approved["decidedBy"]) == ("approved", "key:second")
    assert uses(site, bearer) == (0, 1)
    site.admitted_by(bearer, a_box(1))
    assert site.join(bearer, a_box(2)).status == 401, "the cap is a hard one"
    member = site.admitted_by(bearer, box)
    assert uses(site, bearer) == (2, 0)
    shown = get(site, request_id)
    assert (shown["state"], shown["nodeId"]) == ("consumed", member.node_id)
    node = site.call("nodes/get", nodeId=member.node_id).doc
    assert (node["admittedBy"], node["requestId"]) == ("key:second", request_id)
    assert types(site, request_id) == ["created", "approved", "consumed"]


@pytest.mark.parametrize("approved", [False, True])
def test_a_denial_gives_the_use_back(shared: JoinSite, approved: bool) -> None:
    bearer, box = shared.token(), a_blank(10 + approved)
    request_id = deferred(shared, bearer, box)
    if approved:
        shared.call("joinRequests/approve", requestId=request_id)
        assert uses(shared, bearer) == (0, 1)
    denied = shared.call("joinRequests/deny", "second", requestId=request_id, reason="not ours")
    assert (denied.doc["state"], denied.doc["decidedBy"], denied.doc["decisionReason"]) == (
        "denied",
        "key:second",
        "not ours",
    )
    assert uses(shared, bearer) == (0, 0)
    answer = shared.join(bearer, box)
    assert (answer.status, answer.error["message"]) == (403, "The join is refused.")
    assert shared.reasons()[-1] == "denied"
    assert shared.join(bearer, a_box(10 + approved)).status == 200


def test_a_repeated_decision_changes_and_publishes_nothing(shared: JoinSite) -> None:
    request_id = deferred(shared, shared.token(), a_blank(20))
    first = shared.call("joinRequests/approve", requestId=request_id).doc
    shared.skip(60)
    assert shared.call("joinRequests/approve", "second", requestId=request_id).doc == first
    denied = shared.call("joinRequests/deny", requestId=request_id, reason="no").doc
    assert shared.call("joinRequests/deny", "second", requestId=request_id, reason="other").doc == denied
    assert types(shared, request_id) == ["created", "approved", "denied"]


@pytest.mark.parametrize("end", ["consumed", "denied", "expired"])
def test_a_finished_request_is_decided_no_more(one_site: JoinSite, end: str) -> None:
    bearer, box = one_site.token(), a_blank()
    request_id = deferred(one_site, bearer, box)
    if end == "consumed":
        one_site.call("joinRequests/approve", requestId=request_id)
        assert one_site.join(bearer, box).status == 200
    elif end == "denied":
        one_site.call("joinRequests/deny", requestId=request_id)
    else:
        one_site.skip(24 * HOUR)
    assert get(one_site, request_id)["state"] == end
    for decision, repeated in (("approve", "approved"), ("deny", "denied")):
        answer = one_site.call(f"joinRequests/{decision}", requestId=request_id)
        if end == repeated:
            assert answer.status == 200
        else:
            assert (answer.code, answer.error["details"]["state"]) == ("INVALID_STATE", end)


def test_a_token_without_a_use_left_allows_no_approval(shared: JoinSite) -> None:
    bearer = shared.token()
    request_id = deferred(shared, bearer, a_blank(30))
    other = deferred(shared, bearer, a_blank(31))
    assert shared.call("joinRequests/approve", requestId=other).status == 200
    answer = shared.call("joinRequests/approve", requestId=request_id)
    assert (answer.code, answer.error["details"]["reason"]) == ("INVALID_STATE", "token-used-up")
    shared.call("joinRequests/deny", requestId=other)
    assert shared.call("joinRequests/approve", requestId=request_id).status == 200


def test_revoking_a_token_denies_what_waits_for_it(site: JoinSite) -> None:
    bearer = site.token(maxUses=3)
    waiting, approved = a_blank(1), a_blank(2)
    ids = [deferred(site, bearer, one) for one in (waiting, approved)]
    site.call("joinRequests/approve", requestId=ids[1])
    other = deferred(site, site.token(), a_blank(3))
    revoked = site.call("joinTokens/revoke", tokenId=id_of(bearer)).doc
    assert (revoked["uses"], revoked["reserved"]) == (0, 0)
    for id_ in ids:
        shown = get(site, id_)
        assert (shown["state"], shown["decidedBy"], shown["decisionReason"]) == (
            "denied",
            "key:owner",
            "its token was revoked",
        )
    assert get(site, other)["state"] == "pending"
    assert [site.join(bearer, one).status for one in (waiting, approved)] == [401, 401]
    assert types(site, ids[1]) == ["created", "approved", "denied"]
    assert site.call("joinRequests/approve", requestId=ids[0]).code == "INVALID_STATE"


def test_a_request_of_a_token_that_merely_expired_can_be_approved(shared: JoinSite) -> None:
    bearer, box = shared.token(ttlSeconds=60), a_blank(40)
    request_id = deferred(shared, bearer, box)
    shared.skip(61)
    assert deferred(shared, bearer, box) == request_id, "it is still there, and waits"
    assert shared.join(bearer, a_blank(41)).status == 401
    assert shared.call("joinRequests/approve", requestId=request_id).status == 200
    assert shared.join(bearer, a_box(40)).status == 401
    assert shared.join(bearer, box).status == 200
    assert uses(shared, bearer) == (1, 0)


def test_who_waits_goes_on_waiting_though_the_last_use_went_to_another(shared: JoinSite) -> None:
    bearer, box = shared.token(), a_blank(45)
    request_id = deferred(shared, bearer, box)
    shared.admitted_by(bearer, a_box(45))
    assert deferred(shared, bearer, box) == request_id
    assert shared.join(bearer, a_blank(46)).status == 401
    other = shared.token(ttlSeconds=60)
    shared.skip(61)
    assert shared.join(other, box).status == 401, "with its own token alone"
    shared.call("joinRequests/deny", requestId=request_id)
    assert shared.join(bearer, box).status == 401


def test_an_approval_is_for_what_was_looked_at(shared: JoinSite) -> None:
    request_id = deferred(shared, shared.token(), a_blank(50))
    digest = get(shared, request_id)["csrSha256"]
    stale = shared.call("joinRequests/approve", requestId=request_id, csrSha256="f" * 64)
    assert (stale.code, stale.error["details"]["reason"]) == ("CONFLICT", "csr-changed")
    assert get(shared, request_id)["state"] == "pending"
    assert shared.call("joinRequests/approve", requestId=request_id, csrSha256=digest.upper()).status == 200
    assert shared.call("joinRequests/approve", requestId=request_id, csrSha256="f" * 64).code == "CONFLICT"


# ---------------------------------------------------------------- time


def test_a_pending_request_lasts_a_day_and_an_approved_one_an_hour(one_site: JoinSite) -> None:
    """As it is read, whether or not a tick came by."""
    bearer = one_site.token(maxUses=3, ttlSeconds=86_400)
    pending, approved = deferred(one_site, bearer, a_blank(1)), deferred(one_site, bearer, a_blank(2))
    one_site.skip(24 * HOUR - 10)
    assert get(one_site, pending)["state"] == "pending"
    one_site.call("joinRequests/approve", requestId=approved)
    one_site.skip(20)
    assert [get(one_site, one)["state"] for one in (pending, approved)] == ["expired", "approved"]
    one_site.skip(HOUR - 30)
    assert get(one_site, approved)["state"] == "approved"
    one_site.skip(20)
    assert get(one_site, approved)["state"] == "expired"
    listed = [one["requestId"] for one in one_site.call("joinRequests/list", state="expired").doc["requests"]]
    assert listed == [pending, approved]
    assert one_site.call("joinRequests/list").doc["requests"] == []


def test_the_settings_say_how_long(one_site: JoinSite) -> None:
    one_site.change(lambda doc: doc.setdefault("joining", {}).update(pending_s=60, approved_s=120))
    bearer = one_site.token(maxUses=2)
    one, other = deferred(one_site, bearer, a_blank(1)), deferred(one_site, bearer, a_blank(2))
    one_site.call("joinRequests/approve", requestId=other)
    one_site.skip(61)
    assert [get(one_site, id_)["state"] for id_ in (one, other)] == ["expired", "approved"]
    one_site.skip(60)
    assert get(one_site, other)["state"] == "expired"


def test_an_expired_approval_gives_its_use_back_to_whoever_asks_next(site: JoinSite) -> None:
    """No tick was there to write it down."""
    bearer, box = site.token(ttlSeconds=86_400), a_blank()
    request_id = deferred(site, bearer, box)
    site.call("joinRequests/approve", requestId=request_id)
    assert site.join(bearer, a_box()).status == 401
    site.skip(HOUR)
    assert site.join(bearer, a_box()).status == 200
    assert uses(site, bearer) == (1, 0)
    assert types(site, request_id) == ["created", "approved", "expired"]


def test_an_expired_approval_does_not_stand_in_the_way_of_the_next(site: JoinSite) -> None:
    bearer = site.token(ttlSeconds=86_400)
    first, second = deferred(site, bearer, a_blank(1)), deferred(site, bearer, a_blank(2))
    site.call("joinRequests/approve", requestId=first)
    site.skip(HOUR)
    assert site.call("joinRequests/approve", requestId=second).status == 200
    assert uses(site, bearer) == (0, 1)


def test_a_machine_whose_approval_expired_asks_anew(site: JoinSite) -> None:
    bearer, box = site.token(ttlSeconds=86_400), a_blank()
    first = deferred(site, bearer, box)
    site.call("joinRequests/approve", requestId=first)
    site.skip(HOUR)
    second = deferred(site, bearer, box)
    assert second != first
    assert types(site, first) == ["created", "approved", "expired"]
    site.call("joinRequests/approve", requestId=second)
    assert site.join(bearer, box).status == 200


def test_a_tick_writes_down_what_is_overdue(site: JoinSite) -> None:
    bearer = site.token(maxUses=3, ttlSeconds=86_400)
    ids = [deferred(site, bearer, a_blank(n)) for n in range(3)]
    site.call("joinRequests/approve", requestId=ids[0])
    site.skip(24 * HOUR)
    sites = {POOL: "fra1"}
    assert site.write(expire_overdue, sites, 2, site.now()) == 2
    assert site.write(expire_overdue, sites, 2, site.now()) == 1
    assert site.write(expire_overdue, sites, 2, site.now()) == 0
    assert uses(site, bearer) == (0, 0)
    assert [types(site, id_)[-1] for id_ in ids] == ["expired"] * 3


# ---------------------------------------------------------------- list


def test_a_list_shows_what_waits_unless_more_is_asked(one_site: JoinSite) -> None:
    bearer = one_site.token(maxUses=9)
    boxes = [a_blank(n) for n in range(4)]
    pending, approved, denied, consumed = (deferred(one_site, bearer, box) for box in boxes)
    one_site.call("joinRequests/approve", requestId=approved)
    one_site.call("joinRequests/deny", requestId=denied)
    one_site.call("joinRequests/approve", requestId=consumed)
    assert one_site.join(bearer, boxes[3]).status == 200

    def listed(**asked: Any) -> list[str]:
        return [one["requestId"] for one in one_site.call("joinRequests/list", **asked).doc["requests"]]

    assert listed() == [pending, approved]
    assert listed(includeInactive=True) == [pending, approved, denied, consumed]
    for state, id_ in (("pending", pending), ("approved", approved), ("denied", denied), ("consumed", consumed)):
        assert listed(state=state) == [id_]
    assert listed(state="expired") == []


def test_pages_hold_a_hundred_or_what_is_asked_and_skip_what_is_not(one_site: JoinSite) -> None:
    template = deferred(one_site, one_site.token(), a_blank())
    ids = [template, *one_site.write(_copies, template, 230, one_site)]
    for id_ in ids[1::2]:
        one_site.write(join_requests.end, id_, "pending", "denied", one_site.now())
    first = one_site.call("joinRequests/list").doc
    assert [one["requestId"] for one in first["requests"]] == ids[0:200:2]
    second = one_site.call("joinRequests/list", cursor=first["cursor"]).doc
    assert ([one["requestId"] for one in second["requests"]], second["cursor"]) == (ids[200::2], None)
    whole = one_site.call("joinRequests/list", includeInactive=True, limit=200).doc
    assert [one["requestId"] for one in whole["requests"]] == ids[:200]
    three = one_site.call("joinRequests/list", state="denied", limit=3).doc
    assert ([one["requestId"] for one in three["requests"]], three["cursor"]) == (ids[1:7:2], ids[5])


def _copies(c: Connection, template: str, number: int, site: JoinSite) -> list[str]:
    row = join_requests.get(c, template)
    assert row is not None
    found = []
    for n in range(number):
        site.skip(0.001)  # ids of one millisecond come in no order
        found.append(site.new_id("jr"))
        new = join_requests.NewRequest(
            request_id=found[-1],
            tenant_id=row.tenant_id,
            pool_id=row.pool_id,
            token_id=None,
            attestor="token",
            reason=row.reason,
            csr_sha256=f"{n:064x}",
            key_sha256=row.key_sha256,
            claim_sha256=row.claim_sha256,
            claim=row.claim,
            evidence=row.evidence,
            node_id=None,
            ek_sha256=None,
            address=row.address,
            expires_at=row.expires_at,
        )
        join_requests.add(c, new, site.now())
    return found


# ---------------------------------------------------------------- whose, and what is asked


@pytest.mark.parametrize(
    ("method", "field", "value"),
    [
        ("list", "state", "open"),
        ("list", "state", ""),
        ("list", "limit", 0),
        ("list", "limit", 201),
        ("list", "limit", "5"),
        ("list", "includeInactive", 1),
        *(("list", "cursor", value) for value in ("", "jr_0", "jt_" + "0" * 26, "jr_" + "0" * 53, "jr_" + "u" * 26, 1)),
        *(("get", "requestId", value) for value in (None, "", "jt_" + "0" * 26, NO_REQUEST + "\n", "jr_" + "0" * 25)),
        ("approve", "csrSha256", "f" * 63),
        ("approve", "csrSha256", "g" * 64),
        ("approve", "csrSha256", 1),
        ("deny", "reason", ""),
        ("deny", "reason", "x" * 257),
        ("deny", "reason", "a\nb"),
        ("deny", "reason", "a\x00b"),
        *((method, "force", True) for method in ("list", "get", "approve", "deny")),
        *((method, "tenantId", "a b") for method in ("list", "get", "approve", "deny")),
        *((method, "poolId", "-") for method in ("list", "get", "approve", "deny")),
    ],
)
def test_a_value_out_of_its_bounds_is_named(shared: JoinSite, method: str, field: str, value: Any) -> None:
    asked = {"tenantId": OWNER, "poolId": POOL}
    if method != "list":
        asked["requestId"] = NO_REQUEST
    answer = shared.post(f"joinRequests/{method}", **(asked | {field: value}))
    assert (answer.code, answer.fields) == ("INVALID_INPUT", {field})


@pytest.mark.parametrize("method", ["get", "approve", "deny"])
def test_a_request_is_needed_and_must_be_there(shared: JoinSite, method: str) -> None:
    assert shared.call(f"joinRequests/{method}").fields == {"requestId"}
    assert shared.call(f"joinRequests/{method}", requestId=NO_REQUEST).code == "NOT_FOUND"
    elsewhere = deferred(shared, shared.token(pool="open"), a_blank(60 + len(method)))
    assert shared.call(f"joinRequests/{method}", requestId=elsewhere).code == "NOT_FOUND"
    assert get(shared, elsewhere, "open")["state"] == "pending"


@pytest.mark.parametrize(
    ("method", "action"), [("list", "read"), ("get", "read"), ("approve", "create"), ("deny", "revoke")]
)
def test_each_method_is_decided_on_the_pool_with_the_tokens_actions(shared: JoinSite, method: str, action: str) -> None:
    more = {} if method == "list" else {"requestId": NO_REQUEST}
    answer = shared.call(f"joinRequests/{method}", "siteadmin", **more)
    assert (answer.code, answer.error["details"]["actions"]) == ("PERMISSION_DENIED", [f"join-tokens:{action}"])
    reads = shared.call(f"joinRequests/{method}", "reader", **more)
    assert reads.code == {"list": "OK", "get": "NOT_FOUND"}.get(method, "PERMISSION_DENIED")
    for tenant, pool in ((OWNER, POOL), ("tenant-a", POOL), ("tenant-a", "nowhere")):
        answer = shared.post(f"joinRequests/{method}", "tenant", tenantId=tenant, poolId=pool, **more)
        assert (answer.status, answer.code) == (404, "NOT_FOUND")
    assert shared.post(f"joinRequests/{method}", None, tenantId=OWNER, poolId=POOL, **more).status == 401
