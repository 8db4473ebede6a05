"""Every route, asked by every kind of identity; and the same order of questions on each."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import pytest

from api.site import POOL, TENANT, Site
from bcmetal.api.app import BODY_LIMIT
from bcmetal.api.calls import METHODS
from bcmetal.settings_grants import ROLES, Action, Role
from bcmetal.states import SideVerb, Verb
from bcmetal.store import keys

# The actions of api.md's table; `None`: the whole tenant's.
NEEDED: Final[dict[str, Action]] = {
    **dict.fromkeys(("list", "get", "inventory", "logs", "timeline", "plan", "sensors", "eventLog"), Action.READ),
    **dict.fromkeys(("enroll", "update", "doctor"), Action.ENROLL),
    **dict.fromkeys(("inspect", "refresh", "deploy", "service", "retry", "abort", "adopt"), Action.OPERATE),
    **dict.fromkeys(("setMaintenance", "setProtected", "identify", "resetBmc"), Action.OPERATE),
    **dict.fromkeys(("readSensors", "readEventLog", "clearEventLog"), Action.OPERATE),
    **dict.fromkeys(("rescue", "unrescue", "console", "consoleWays"), Action.RESCUE),
    **dict.fromkeys(("openConsole", "typeConsole", "closeConsole"), Action.RESCUE),
    **dict.fromkeys(("commission", "release"), Action.ERASE),
    **dict.fromkeys(("retire", "remove"), Action.RETIRE),
    **dict.fromkeys(("setBmcCredentials", "rotateBmcCredentials"), Action.CREDENTIALS),
    "setPower": Action.POWER,
}
BODIES: Final[dict[str, dict[str, Any]]] = {
    "deploy": {"image": {"name": "os"}},
    "service": {"steps": ["powerCycle"]},
    "setPower": {"action": "on"},
    "setBmcCredentials": {"username": "u", "password": "p" * 8},
    "setMaintenance": {"on": False},
    "setProtected": {"on": False},
    "update": {"assetTag": "x"},
    "plan": {"verb": "inspect"},
    "typeConsole": {"consoleId": "cs_" + "0" * 26, "data": "aGk="},
    "closeConsole": {"consoleId": "cs_" + "0" * 26},
}
JOINING: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "joinTokens": {
        "create": {"ttlSeconds": 60, "idempotencyKey": "k"},
        "revoke": {"tokenId": "jt_" + "0" * 52},
    },
    "joinRequests": {name: {"requestId": "jr_" + "0" * 26} for name in ("get", "approve", "deny")},
    "nodes": {name: {"nodeId": "nd_" + "0" * 26} for name in ("get", "evict")},
}
METAL: Final = sorted(one.name for one in METHODS.values() if one.group == "metal")
PATHS: Final = sorted(METHODS)


def _body(site: Site, path: str) -> dict[str, Any]:
    group, name = path.rsplit("/", 2)[1:]
    if group == "audit":
        return {"tenantId": TENANT}
    if group == "erasureRecords":
        return {"tenantId": TENANT, **({"recordId": "er_" + "0" * 26} if name == "get" else {})}
    if group == "images":
        return {"tenantId": TENANT, **({"image": {"name": "os"}} if name == "pull" else {})}
    if group == "freeze":
        scope = {} if name == "list" else {"scopeKind": "pool", "scopeId": POOL}
        return {"tenantId": TENANT, **scope, **({"reason": "r"} if name == "set" else {})}
    place: dict[str, Any] = {"tenantId": TENANT, "poolId": POOL}
    if name == "enroll":
        return {**place, "bmc": {"address": "ipmi://10.20.9.9", "username": "u", "password": "p" * 8}}
    if name == "doctor":
        return {**place, "bmc": {"address": "10.20.9.9"}}
    if name == "list":
        return place
    if group in JOINING:
        return {**place, **JOINING[group].get(name, {})}
    return {**place, "nodeId": "r3u17", **BODIES.get(name, {})}


def test_the_table_of_actions_names_every_method() -> None:
    assert set(METAL) == set(NEEDED)
    asked = {verb.value for verb in (*Verb, *SideVerb)} - {"cleanup"}
    assert asked <= set(METAL)


@pytest.mark.parametrize("path", PATHS)
def test_nobody_gets_in_without_a_credential_that_proves_something(site: Site, path: str) -> None:
    body = json.dumps(_body(site, path)).encode()
    expired = site.new_key("admin", TENANT, expires_at=site.now())
    revoked = site.new_key("gone", TENANT)
    site.write(keys.revoke, "key:gone", site.now())
    wrong = [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer bcmk_" + "A" * 43},
        {"Authorization": f"Bearer {'x' * 5000}"},
        {"Authorization": f"Basic {site.keys['admin']}"},
        {"Authorization": f"Bearer {expired}"},
        {"Authorization": f"Bearer {revoked}"},
        {"X-Client-Cert": "CN=admin", "X-SSL-Client-S-DN": "CN=admin", "X-Forwarded-Client-Cert": "Subject=CN=admin"},
    ]
    for headers in wrong:
        answer = site.send(path, body, {"Content-Type": "application/json", **headers})
        assert (answer.status, answer.code) == (401, "UNAUTHENTICATED"), headers
    for certificate in ("unknown", "", "ad min"):
        answer = site.send(path, body, {"Content-Type": "application/json"}, certificate=certificate)
        assert (answer.status, answer.code) == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize("path", PATHS)
def test_another_tenant_is_answered_as_if_nothing_were_there(site: Site, path: str) -> None:
    site.enroll("r3u17")
    body = _body(site, path)
    if path.endswith("freeze/list"):
        assert site.post(path, body, "other").doc == {"freezes": []}
        return
    answer = site.post(path, body, "other")
    stranger = site.send(path, json.dumps(body).encode(), {"Content-Type": "application/json"}, certificate="stranger")
    swapped = {**body, "tenantId": "tenant-b"} | ({"scopeId": "pool-x"} if "scopeId" in body else {})
    there_is_none = {**swapped, "poolId": "pool-x"} if "poolId" in body else swapped
    for one in (answer, stranger):
        assert (one.status, one.code) == (404, "NOT_FOUND")
    if "poolId" in body:
        none = site.post(path, there_is_none, "other")
        assert {**answer.error, "traceId": ""} == {**none.error, "traceId": ""}
        mixed = site.post(path, swapped, "other")  # another tenant's pool under the own tenant's name
        assert {**answer.error, "traceId": ""} == {**mixed.error, "traceId": ""}


@pytest.mark.parametrize("name", METAL)
@pytest.mark.parametrize("role", ["reader", "operator", "admin", "nobody", "eraser"])
def test_a_role_may_do_what_it_says_and_nothing_else(site: Site, name: str, role: str) -> None:
    site.enroll("r3u17")
    allowed = {
        "nobody": frozenset[Action](),
        "eraser": frozenset({Action.READ, Action.ERASE}),
    }.get(role) or (ROLES[Role(role)] if role in Role.__members__.values() else frozenset())
    answer = site.post(f"/api/compute/metal/{name}", _body(site, f"/api/compute/metal/{name}"), role)
    if NEEDED[name] in allowed:
        assert answer.code in ("OK", "INVALID_STATE"), answer.raw
    else:
        assert (answer.status, answer.code) == (403, "PERMISSION_DENIED")
        assert NEEDED[name].value in str(answer.error["details"])


OF_WHOLE_TENANTS: Final = sorted(
    one.path for one in METHODS.values() if one.group in ("audit", "freeze") and one.path != "/api/compute/freeze/list"
)


@pytest.mark.parametrize("path", OF_WHOLE_TENANTS)
def test_audit_and_freeze_are_for_those_whom_a_grant_names(site: Site, path: str) -> None:
    for who in ("reader", "operator", "nobody", "eraser"):
        assert site.post(path, _body(site, path), who).code == "PERMISSION_DENIED"
    assert site.post(path, _body(site, path), "admin").status == 200
    by_certificate = site.send(
        path, json.dumps(_body(site, path)).encode(), {"Content-Type": "application/json"}, certificate="admin"
    )
    assert by_certificate.status == 200


def test_a_certificate_of_the_connection_is_an_identity(site: Site) -> None:
    node_id = site.enroll()
    body = json.dumps({"tenantId": TENANT, "poolId": POOL, "nodeId": node_id}).encode()
    answer = site.send("/api/compute/metal/refresh", body, {"Content-Type": "application/json"}, certificate="admin")
    assert answer.status == 200
    assert site.operations(node_id)[0]["by"] == "cert:admin"


@pytest.mark.parametrize(
    ("name", "more", "missing"),
    [
        ("deploy", {"image": {"name": "os"}, "rebuild": True}, "erase"),
        ("update", {"bmc": {"address": "redfish://10.20.3.18"}}, "credentials"),
        ("update", {"acceptIdentity": True}, "retire"),
    ],
)
def test_some_inputs_need_more_than_the_method(site: Site, name: str, more: dict[str, Any], missing: str) -> None:
    site.enroll("r3u17")
    answer = site.metal(name, {"nodeId": "r3u17", **more}, "operator")
    assert answer.code == "PERMISSION_DENIED"
    assert missing in answer.error["details"]["actions"]


def test_a_waiver_needs_an_action_of_its_own(site: Site) -> None:
    site.enroll("r3u17")
    waiver = {"reason": "dead", "serials": ["S1"]}
    answer = site.metal("release", {"nodeId": "r3u17", "profile": "waived", "eraseWaiver": waiver}, "eraser")
    assert answer.error["details"]["actions"] == ["erase-waiver"]
    assert site.metal("release", {"nodeId": "r3u17"}, "eraser").code == "INVALID_STATE"


# ---------------------------------------------------------------- the order of questions


@pytest.mark.parametrize("path", PATHS)
def test_size_comes_before_authentication_and_that_before_the_input(site: Site, path: str) -> None:
    large = b" " * (BODY_LIMIT + 1)
    assert site.send(path, large).status == 413
    assert site.send(path, b"{}", {"Content-Length": "999999999999"}).status == 413
    assert site.send(path, b"not json").status == 401
    headers = {"Authorization": f"Bearer {site.keys['other']}", "Content-Type": "application/json"}
    wrong = site.send(path, b"not json", headers)  # also before ownership
    assert (wrong.status, wrong.code) == (400, "INVALID_INPUT")


@pytest.mark.parametrize("path", PATHS)
def test_only_json_by_post_is_taken(site: Site, path: str) -> None:
    key = {"Authorization": f"Bearer {site.keys['admin']}"}
    for headers in (
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ):
        answer = site.send(path, b"{}", {**key, **headers})
        assert (answer.status, answer.code) == (415, "INVALID_INPUT")
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        answer = site.send(path, b"", key, method=method)
        assert (answer.status, answer.code) == (405, "INVALID_INPUT")
        assert answer.headers["allow"] == "POST"


def test_what_is_not_there_is_not_found_in_the_same_shape(site: Site) -> None:
    for path in ("/", "/docs", "/redoc", "/openapi.json", "/api/compute/metal", "/api/compute/metal/get/", "/metrics"):
        answer = site.send(path, b"", method="GET")
        assert answer.status in (404, 405)
        assert set(answer.error) == {"code", "message", "details", "traceId"}


def test_health_says_nothing_to_strangers(site: Site) -> None:
    assert site.send("/healthz", method="GET").doc == {"ok": True}
    assert site.send("/readyz", method="GET").doc == {"ready": True}


def test_the_document_describes_every_method(site: Site) -> None:
    doc = site.send("/api/openapi.json", method="GET").doc
    assert set(doc["paths"]) == {*METHODS, "/api/compute/trustBundle"}
    assert "http" not in json.dumps(doc["info"])
    enroll = doc["paths"]["/api/compute/metal/enroll"]["post"]
    schema = enroll["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert doc["components"]["schemas"][schema]["additionalProperties"] is False
    assert set(doc["components"]["schemas"][schema]["required"]) == {"tenantId", "poolId", "bmc"}


def test_a_trace_is_the_callers_or_a_new_one(site: Site) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    assert site.send("/api/compute/metal/get", b"{}", headers).error["traceId"] == trace
    first, second = (site.send("/api/compute/metal/get", b"{}").error["traceId"] for _ in range(2))
    assert len(first) == 32
    assert first != second


def test_answers_are_not_kept_by_anybody(site: Site) -> None:
    for answer in (site.metal("list"), site.metal("list", who=None)):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_an_ipv4_caller_is_audited_as_one(site: Site) -> None:
    site.post(
        "/api/compute/metal/refresh", _body(site, "/api/compute/metal/refresh"), "reader", address="::ffff:192.0.2.9"
    )
    assert site.audited()[-1]["address"] == "192.0.2.9"


# ---------------------------------------------------------------- authentication


def test_many_failures_of_one_address_are_slowed_down_and_a_good_key_is_not(site: Site) -> None:
    bad = {"Authorization": "Bearer nothing", "Content-Type": "application/json"}
    answers = [site.send("/api/compute/metal/list", b"{}", bad) for _ in range(25)]
    assert answers[0].code == "UNAUTHENTICATED"
    assert answers[0].headers["www-authenticate"] == "Bearer"
    assert (answers[-1].status, answers[-1].code) == (429, "RATE_LIMITED")
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert site.metal("list").status == 200
    assert site.send("/api/compute/metal/list", b"{}", bad, address="192.0.2.8").status == 401
    site.skip(61)
    assert site.send("/api/compute/metal/list", b"{}", bad).status == 401


def test_a_key_is_revoked_at_once_and_its_last_use_is_kept(site: Site) -> None:
    assert site.metal("list", who="reader").status == 200
    used = {row.identity: row.last_used_at for row in site.read(keys.list)}
    assert used["key:reader"] is not None
    assert used["key:nobody"] is None
    site.write(keys.revoke, "key:reader", site.now())
    assert site.metal("list", who="reader").code == "UNAUTHENTICATED"


def test_a_grant_that_is_taken_away_is_gone_with_the_next_call(site: Site) -> None:
    assert site.metal("list", who="reader").status == 200
    site.change(lambda doc: doc["grants"].pop(0))
    assert site.metal("list", who="reader").code == "PERMISSION_DENIED"


def test_an_access_token_of_oidc_is_told_that_this_build_has_none(site: Site) -> None:
    token = ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b'{"alg":"ES256"}', b"{}", b"signature")
    )
    answer = site.send("/api/compute/metal/list", b"{}", {"Authorization": f"Bearer {token}"})
    assert (answer.status, answer.code) == (401, "UNAUTHENTICATED")
    assert answer.error["details"]["reason"] == "not-in-this-build"
    assert token not in answer.raw.decode()
