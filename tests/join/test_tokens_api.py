"""joinTokens as the reference has it: create, list and revoke, sentence by sentence."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from bcmetal.decisions import SECOND, Micros
from bcmetal.join.bearers import crockford, parse_bearer, token_id
from bcmetal.store import join_tokens
from bcmetal.store.join_tokens import NewToken
from bcmetal.store.migrate import deployment_key
from join.conftest import copied, opened
from join.site import OWNER, POOL, JoinSite, a_box

UUID = "8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b0001"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[JoinSite]:
    """For tests that make what they look at, and look at nothing else."""
    yield from opened(copied(sqlite_template, tmp_path_factory.mktemp("tokens")))


def body(**over: Any) -> dict[str, Any]:
    return {"ttlSeconds": 600, "idempotencyKey": secrets.token_hex(8), **over}


def told(site: JoinSite, type_: str, id_: str) -> list[dict[str, Any]]:
    return [dict(data) for kind, data in site.events() if kind == type_ and data["tokenId"] == id_]


# ---------------------------------------------------------------- create


def test_the_record_comes_with_the_bearer_which_is_never_shown_again(shared: JoinSite) -> None:
    asked = body()
    made = shared.call("joinTokens/create", **asked).doc
    bearer = made.pop("token")
    assert bearer.startswith(f"bcjt_{made['tokenId']}.")
    assert made == {
        "tokenId": made["tokenId"],
        "tenantId": OWNER,
        "poolId": POOL,
        "role": "node",
        "maxUses": 1,
        "uses": 0,
        "reserved": 0,
        "expiresAt": made["expiresAt"],
        "expect": None,
        "allowReclaim": False,
        "hosted": None,
        "nodeId": None,
        "createdBy": "key:owner",
        "createdAt": made["createdAt"],
        "revokedAt": None,
        "live": True,
    }
    secret = bearer.partition(".")[2]
    later = [
        shared.call("joinTokens/create", **asked),
        shared.call("joinTokens/list", includeInactive=True),
        shared.call("joinTokens/revoke", tokenId=made["tokenId"]),
    ]
    assert all(one.status == 200 and secret.encode() not in one.raw for one in later)
    assert later[0].doc == made


def test_only_the_digest_of_the_secret_is_kept(shared: JoinSite) -> None:
    bearer = parse_bearer(shared.token())
    assert bearer is not None
    row = shared.read(join_tokens.get, bearer.token_id)
    assert row is not None
    assert row.secret_sha256 == hashlib.sha256(bearer.secret.get_secret_value().encode()).digest()
    assert len(bearer.secret.get_secret_value()) == 43  # 32 bytes, base64url without padding


def test_both_forms_of_the_bearer_are_taken(shared: JoinSite) -> None:
    whole = shared.token(maxUses=2)
    assert shared.join(whole, a_box(1)).status == 200
    assert shared.join(whole.replace("bcjt_jt_", "bcjt_"), a_box(2)).status == 200


def test_the_id_derives_from_tenant_identity_and_key_alone(shared: JoinSite) -> None:
    key = shared.read(deployment_key)
    made = shared.call("joinTokens/create", **body(idempotencyKey="once:and/ever")).doc
    assert made["tokenId"] == token_id(key, OWNER, "key:owner", "once:and/ever")


def test_the_longest_use_and_the_shortest(shared: JoinSite) -> None:
    made = shared.call("joinTokens/create", **body(maxUses=10_000, ttlSeconds=86_400)).doc
    row = shared.read(join_tokens.get, made["tokenId"])
    assert row is not None
    assert (row.max_uses, row.expires_at - row.created_at) == (10_000, 86_400 * SECOND)


GOOD: dict[str, list[Any]] = {
    "tenantId": [],
    "poolId": [],
    "maxUses": [1, 10_000],
    "ttlSeconds": [60, 86_400],
    "expect": [{"productUuid": UUID}, {"serial": "A._:/+-9"}, {"mac": "3C:ec:ef:10:00:01"}, None],
    "expect.gpuUuid": ["GPU-" + UUID, "GPU-8f3c1a52"],
    "allowReclaim": [True, False],
    "hosted": ["kubernetes", None],
    "idempotencyKey": ["A.z_~:/+=-9", "k" * 128],
}
BAD: dict[str, list[Any]] = {
    "tenantId": ["", "a" * 129, "ä", "a b", "a\n", 1, None],
    "poolId": ["", ".metal", "-metal", "a" * 129, "me tal", "metal\n", 1, None],
    "maxUses": [0, -1, 10_001, 1.5, "1", True, None],
    "ttlSeconds": [59, 86_401, 0, "600", 600.5, None],
    "expect": [{}, [], "x", {"uuid": UUID}, {"serial": None}],
    "expect.productUuid": ["1234567", "8" * 65, "8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b000g", UUID + "\n"],
    "expect.serial": ["", "a" * 129, "a b", "ä", "a\x00b"],
    "expect.mac": ["3c:ec:ef:10:00", "3c-ec-ef-10-00-01", "3c:ec:ef:10:00:01:02", "3cecef100001", "3c:ec:ef:10:00:0g"],
    "expect.gpuUuid": ["GPU-1234567", "gpu-12345678", "GPU-" + "8" * 65, "12345678"],
    "allowReclaim": ["true", 1, None],
    "hosted": ["docker", "", "Kubernetes", True],
    "idempotencyKey": ["", "k" * 129, "a b", "a\x7f", "ä", None],
}


def with_field(name: str, value: Any) -> dict[str, Any]:
    outer, _, inner = name.partition(".")
    return {outer: {inner: value} if inner else value}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_a_value_within_its_bounds_is_taken(shared: JoinSite, name: str, value: Any) -> None:
    answer = shared.call("joinTokens/create", **body(**with_field(name, value)))
    assert (answer.status, "token" in answer.doc) == (200, True), answer.raw


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_value_out_of_its_bounds_is_named(shared: JoinSite, name: str, value: Any) -> None:
    asked = {"tenantId": OWNER, "poolId": POOL} | body() | with_field(name, value)
    answer = shared.post("joinTokens/create", **asked)
    assert answer.code == "INVALID_INPUT"
    assert {one.partition(".")[0] for one in answer.fields} == {name.partition(".")[0]}


@pytest.mark.parametrize("name", ["tenantId", "poolId", "ttlSeconds", "idempotencyKey"])
def test_what_is_required_is_asked_for(shared: JoinSite, name: str) -> None:
    asked = {"tenantId": OWNER, "poolId": POOL} | body()
    del asked[name]
    assert shared.post("joinTokens/create", **asked).fields == {name}


@pytest.mark.parametrize("method", ["create", "list", "revoke"])
def test_what_is_not_known_is_refused(shared: JoinSite, method: str) -> None:
    answer = shared.call(f"joinTokens/{method}", role="node", max_uses=1)
    assert answer.fields >= {"role", "max_uses"}


@pytest.mark.parametrize(
    "pin",
    [
        {"productUuid": "03000200-0400-0500-0006-000700080009"},
        {"productUuid": "00020003-0004-0005-0006-000700080009"},  # in the other byte order
        {"serial": "None"},
        {"serial": "0123456789"},
        {"mac": "00:00:00:00:00:00"},
        {"mac": "ff:ff:ff:ff:ff:ff"},
        {"productUuid": UUID, "serial": "INVALID"},
    ],
)
def test_a_placeholder_pins_nothing(shared: JoinSite, pin: dict[str, str]) -> None:
    answer = shared.call("joinTokens/create", **body(expect=pin))
    assert answer.code == "INVALID_INPUT"
    assert answer.fields == {f"expect.{[*pin][-1]}"}


def test_a_sites_own_placeholders_count(one_site: JoinSite) -> None:
    one_site.change(lambda doc: doc.setdefault("joining", {}).update(placeholders={"serials": ["ACME-SAMPLE"]}))
    assert one_site.call("joinTokens/create", **body(expect={"serial": "acme-sample"})).fields == {"expect.serial"}


def test_a_pool_whose_machines_run_no_daemon_is_not_in_the_state_for_it(shared: JoinSite) -> None:
    answer = shared.call("joinTokens/create", pool="bare", **body())
    assert (answer.code, answer.error["details"]["reason"]) == ("INVALID_STATE", "no-agent")


def test_the_event_says_whether_it_is_pinned_and_names_hosted_when_it_is_set(shared: JoinSite) -> None:
    plain = shared.call("joinTokens/create", **body()).doc["tokenId"]
    (event,) = told(shared, "security.join-token.created", plain)
    assert event["pinned"] is False
    assert "hosted" not in event
    other = shared.call("joinTokens/create", **body(expect={"serial": "SN17X"}, hosted="kubernetes")).doc["tokenId"]
    (event,) = told(shared, "security.join-token.created", other)
    assert (event["pinned"], event["hosted"]) == (True, "kubernetes")


# ---------------------------------------------------------------- the same key again


def test_a_repeat_answers_the_stored_record_and_publishes_nothing(shared: JoinSite) -> None:
    asked = body(expect={"productUuid": UUID, "serial": "sn 17x".replace(" ", "")}, maxUses=3)
    first = shared.call("joinTokens/create", **asked).doc
    del first["token"]
    before = len(shared.events())
    the_same = {
        "productUuid": UUID.upper().replace("-", ""),
        "serial": "SN17X",  # normalised, it is the same
    }
    again = shared.call("joinTokens/create", **(asked | {"maxUses": 9, "ttlSeconds": 60, "expect": the_same}))
    assert (again.status, again.doc) == (200, first)
    assert len(shared.events()) == before


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"poolId": "open"}, "poolId"),
        ({"expect": {"serial": "OTHER7"}}, "expect"),
        ({"expect": None}, "expect"),
        ({"allowReclaim": True}, "allowReclaim"),
        ({"hosted": "kubernetes"}, "hosted"),
    ],
)
def test_the_same_key_for_something_else_is_a_conflict(shared: JoinSite, change: dict[str, Any], field: str) -> None:
    asked = {"tenantId": OWNER, "poolId": POOL} | body(expect={"serial": "SN17X"})
    assert shared.post("joinTokens/create", **asked).status == 200
    answer = shared.post("joinTokens/create", **(asked | change))
    assert (answer.code, answer.error["details"]["fields"]) == ("CONFLICT", [field])


def test_a_known_key_is_answered_before_anybody_is_asked_for_rights(one_site: JoinSite) -> None:
    """Also to an identity whose grant was taken away, or whose tenant is another by now; a new key is not."""
    asked = body()
    first = one_site.call("joinTokens/create", **asked).doc
    one_site.change(lambda doc: doc.update(grants=[]))
    assert one_site.call("joinTokens/create", **asked).doc["tokenId"] == first["tokenId"]
    assert one_site.call("joinTokens/create", **body()).code == "PERMISSION_DENIED"
    one_site.change(lambda doc: doc["pools"].pop(POOL))
    assert one_site.call("joinTokens/create", **asked).doc["tokenId"] == first["tokenId"]
    assert one_site.call("joinTokens/create", **body()).code == "NOT_FOUND"


def test_a_known_key_is_answered_to_whoever_had_it_in_another_tenant(one_site: JoinSite) -> None:
    asked = {"tenantId": OWNER, "poolId": POOL} | body()
    first = one_site.post("joinTokens/create", "owner", **asked).doc
    stranger = one_site.post("joinTokens/create", "tenant", **asked)
    assert stranger.code == "NOT_FOUND", "another identity has another id, which is not known"
    one_site.keys["moved"] = one_site.a_key("owner", "tenant-a")
    assert one_site.post("joinTokens/create", "moved", **asked).doc["tokenId"] == first["tokenId"]


def test_the_same_key_of_another_identity_is_another_token(shared: JoinSite) -> None:
    key = secrets.token_hex(8)
    one = shared.call("joinTokens/create", "owner", **body(idempotencyKey=key))
    two = shared.call("joinTokens/create", "second", **body(idempotencyKey=key, allowReclaim=True))
    three = shared.call("joinTokens/create", "tenant", "tenants", **body(idempotencyKey=key, hosted="kubernetes"))
    assert [answer.status for answer in (one, two, three)] == [200, 200, 200]
    assert len({answer.doc["tokenId"] for answer in (one, two, three)}) == 3


def test_of_two_creates_at_once_one_gets_the_bearer(site: JoinSite) -> None:
    asked = body()

    async def race() -> list[Any]:
        calls = [site.calling("joinTokens/create", **asked) for _ in range(8)]
        return [answer.doc for answer in await asyncio.gather(*calls)]

    found = site.run(race())
    assert len({one["tokenId"] for one in found}) == 1
    assert sum("token" in one for one in found) == 1
    assert [type_ for type_, _ in site.events()] == ["security.join-token.created"]


# ---------------------------------------------------------------- whose pool


@pytest.mark.parametrize("method", ["create", "list", "revoke"])
def test_another_tenants_pool_is_not_there(shared: JoinSite, method: str) -> None:
    """Neither by naming its tenant, nor by a grant on it; and no pool at all says the very same."""
    shared.change(_granted_to_a_stranger)
    more = {"create": body(), "list": {}, "revoke": {"tokenId": "jt_" + "0" * 52}}[method]
    answers = [
        shared.post(f"joinTokens/{method}", "tenant", tenantId=OWNER, poolId=POOL, **more),
        shared.post(f"joinTokens/{method}", "tenant", tenantId="tenant-a", poolId=POOL, **more),
        shared.post(f"joinTokens/{method}", "owner", tenantId="tenant-a", poolId="tenants", **more),
        shared.post(f"joinTokens/{method}", "owner", tenantId=OWNER, poolId="tenants", **more),
        shared.post(f"joinTokens/{method}", "tenant", tenantId="tenant-a", poolId="nowhere", **more),
    ]
    told = {(one.status, one.code, one.error["message"], str(one.error["details"])) for one in answers}
    assert told == {(404, "NOT_FOUND", "There is no such resource in this tenant and pool.", "{}")}


def _granted_to_a_stranger(doc: dict[str, Any]) -> None:
    grant = {"to": "key:tenant", "role": "admin", "on": f"compute-pool/{POOL}"}
    if grant not in doc["grants"]:
        doc["grants"].append(grant)


@pytest.mark.parametrize(
    ("method", "action"), [("create", "create"), ("list", "read"), ("revoke", "revoke")], ids=lambda one: str(one)
)
def test_within_the_tenant_the_action_must_be_granted_on_the_pool(shared: JoinSite, method: str, action: str) -> None:
    """A grant on the site gives the metal of its pools, not who joins them."""
    more = {"create": body(), "list": {}, "revoke": {"tokenId": "jt_" + "0" * 52}}[method]
    for who in ("siteadmin", "reader") if method != "list" else ("siteadmin",):
        answer = shared.call(f"joinTokens/{method}", who, **more)
        assert answer.code == "PERMISSION_DENIED"
        details = answer.error["details"]
        assert (details["actions"], details["resource"]) == ([f"join-tokens:{action}"], f"compute-pool/{POOL}")
    assert shared.call("joinTokens/list", "reader").status == 200


def test_who_is_nobody_is_asked_first(shared: JoinSite) -> None:
    for path in ("create", "list", "revoke"):
        assert shared.post(f"joinTokens/{path}", None, nonsense=1).code == "UNAUTHENTICATED"


# ---------------------------------------------------------------- list


def test_live_tokens_are_listed_in_the_order_of_their_ids(site: JoinSite) -> None:
    live = {site.call("joinTokens/create", **body()).doc["tokenId"] for _ in range(12)}
    used = site.token()
    assert site.join(used, a_box()).status == 200
    revoked = site.call("joinTokens/create", **body()).doc["tokenId"]
    site.call("joinTokens/revoke", tokenId=revoked)
    expired = site.call("joinTokens/create", **body(ttlSeconds=60)).doc["tokenId"]
    site.skip(61)
    site.call("joinTokens/create", pool="open", **body())
    listed = [one["tokenId"] for one in site.call("joinTokens/list").doc["tokens"]]
    assert listed == sorted(live, key=str.encode)
    whole = site.call("joinTokens/list", includeInactive=True).doc["tokens"]
    assert {one["tokenId"] for one in whole if not one["live"]} >= {revoked, expired}
    assert len(whole) == 15
    assert not any("token" in one or "secret" in str(one).lower() for one in whole)


def _many(c: Connection, number: int, now: Micros) -> None:
    until = Micros(now + 600 * SECOND)
    for _ in range(number):
        id_ = "jt_" + crockford(secrets.token_bytes(32))
        new = NewToken(id_, OWNER, POOL, secrets.token_bytes(32), 1, until, None, False, None, "key:owner")
        assert join_tokens.add(c, new, now)


def test_pages_hold_a_hundred_or_what_is_asked_up_to_two_hundred(one_site: JoinSite) -> None:
    one_site.write(_many, 205, one_site.now())
    first = one_site.call("joinTokens/list").doc
    assert len(first["tokens"]) == 100
    assert first["cursor"] == first["tokens"][-1]["tokenId"]
    second = one_site.call("joinTokens/list", cursor=first["cursor"], limit=200).doc
    assert (len(second["tokens"]), second["cursor"]) == (105, None)
    assert len({one["tokenId"] for one in first["tokens"] + second["tokens"]}) == 205
    whole = one_site.call("joinTokens/list", limit=200).doc
    assert len(whole["tokens"]) == 200
    single = one_site.call("joinTokens/list", limit=1, cursor=whole["cursor"]).doc
    assert [one["tokenId"] for one in single["tokens"]] == [second["tokens"][100]["tokenId"]]


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "jt_", "0" * 65, 7, "jr_" + "0" * 52),
        *(f"jt_{rest}" for rest in ("0" * 25, "0" * 53, "i" * 52, "O" * 52, "0" * 26 + "\n", "0" * 26 + "'--")),
    ],
)
def test_a_malformed_cursor_or_token_id_is_named(shared: JoinSite, cursor: Any) -> None:
    assert shared.call("joinTokens/list", cursor=cursor).fields == {"cursor"}
    assert shared.call("joinTokens/revoke", tokenId=cursor).fields == {"tokenId"}


@pytest.mark.parametrize(
    ("name", "value"), [("limit", 0), ("limit", 201), ("limit", "1"), ("limit", None), ("includeInactive", "yes")]
)
def test_a_lists_options_have_bounds(shared: JoinSite, name: str, value: Any) -> None:
    assert shared.call("joinTokens/list", **{name: value}).fields == {name}


# ---------------------------------------------------------------- revoke


def test_a_revoked_token_stays_as_it_was_revoked_first(shared: JoinSite) -> None:
    id_ = shared.call("joinTokens/create", **body(expect={"serial": "SN17X"})).doc["tokenId"]
    first = shared.call("joinTokens/revoke", tokenId=id_)
    assert first.doc["revokedAt"] is not None
    assert first.doc["live"] is False
    shared.skip(5)
    assert shared.call("joinTokens/revoke", tokenId=id_).doc == first.doc
    (event,) = told(shared, "security.join-token.revoked", id_)
    assert event["pinned"] is True


def test_a_token_of_another_pool_or_none_is_not_found(shared: JoinSite) -> None:
    id_ = shared.call("joinTokens/create", pool="open", **body()).doc["tokenId"]
    for one in (id_, "jt_" + "0" * 26, "jt_" + "z" * 52):
        assert shared.call("joinTokens/revoke", tokenId=one).code == "NOT_FOUND"
    assert shared.call("joinTokens/revoke", pool="open", tokenId=id_).status == 200


def test_revoking_is_at_once(shared: JoinSite) -> None:
    bearer = shared.token(maxUses=5)
    parsed = parse_bearer(bearer)
    assert parsed is not None
    assert shared.join(bearer, a_box(31)).status == 200
    shared.call("joinTokens/revoke", tokenId=parsed.token_id)
    answer = shared.join(bearer, a_box(32))
    assert (answer.status, answer.error["message"]) == (401, "The join token is not valid.")
    assert shared.reasons()[-1] == "revoked"
