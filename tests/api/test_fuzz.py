"""Whatever a caller sends, the answer has the API's shape and is no fault of ours."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.site import POOL, TENANT, Site
from bcmetal.api.calls import METHODS

CODES = {
    *("INVALID_INPUT", "PERMISSION_DENIED", "NOT_FOUND", "CONFLICT", "INVALID_STATE", "RATE_LIMITED"),
    "UNAUTHENTICATED",
}
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

texts = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["", "\x00", "\ud83d", "a" * 5000, "../../x", "redfish://[::1", "nd_" + "0" * 26, "%s", "'; --", "\u202e"]
    ),
)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), texts)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        site.enroll("r3u17")
        yield site
        site.close()


def _check(site: Site, path: str, raw: bytes) -> None:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {site.keys['admin']}"}
    answer = site.send(path, raw, headers)
    if answer.status == 200:
        return
    assert answer.status < 500, answer.raw
    assert set(answer.doc) == {"error"}
    assert set(answer.error) == {"code", "message", "details", "traceId"}
    assert answer.code in CODES
    assert answer.error["message"]


def _plausible(path: str) -> st.SearchStrategy[dict[str, Any]]:
    """The method's own fields, with values that may be right."""
    fields = METHODS[path].model.model_fields
    names = [field.alias or name for name, field in fields.items()]
    right = {
        "tenantId": st.just(TENANT),
        "poolId": st.just(POOL),
        "nodeId": st.just("r3u17"),
        "bmc": st.fixed_dictionaries(
            {"address": texts}, optional={"username": texts, "password": texts, "tls": values}
        ),
        "image": st.fixed_dictionaries({}, optional={"name": texts, "url": texts, "sha256": texts}),
        "verb": st.sampled_from(["inspect", "setPower", "commission", "retry", "update", "deploy"]),
        "input": st.dictionaries(st.sampled_from(["action", "image", "profile", "bmc", "x"]), values, max_size=3),
        "on": st.booleans(),
        "action": st.sampled_from(["on", "off"]),
        "scopeKind": st.sampled_from(["pool", "rack", "site"]),
    }
    needed = {name: right.get(name, values) for name in names if name in right}
    other = {name: values for name in names if name not in right}
    return st.fixed_dictionaries(needed, optional=other)


@SETTINGS
@given(path=st.sampled_from(sorted(METHODS)), body=values)
def test_any_json_is_answered(shared: Site, path: str, body: Any) -> None:
    _check(shared, path, json.dumps(body).encode())


@SETTINGS
@given(path=st.sampled_from(sorted(METHODS)), raw=st.binary(max_size=200))
def test_any_bytes_are_answered(shared: Site, path: str, raw: bytes) -> None:
    _check(shared, path, raw)


@settings(SETTINGS, max_examples=400)
@given(data=st.data())
def test_inputs_that_are_nearly_right_are_answered(shared: Site, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(METHODS)))
    _check(shared, path, json.dumps(data.draw(_plausible(path))).encode())


@SETTINGS
@given(
    name=st.sampled_from(["authorization", "content-type", "content-length", "traceparent", "last-event-id"]),
    value=texts,
)
def test_any_header_is_answered(shared: Site, name: str, value: str) -> None:
    given_headers = {"Content-Type": "application/json", "Authorization": f"Bearer {shared.keys['admin']}"}
    kept = {key: one for key, one in given_headers.items() if key.lower() != name}
    answer = shared.send("/api/compute/metal/list", b"{}", {**kept, name: value.encode("ascii", "replace").decode()})
    assert 400 <= answer.status < 500
    assert answer.code in CODES


def test_deep_and_doubled_json_is_answered(shared: Site) -> None:
    path = "/api/compute/metal/plan"
    place = f'"tenantId":"{TENANT}","poolId":"{POOL}","nodeId":"r3u17","verb":"inspect","input":'
    for raw in (
        "[" * 10_000,
        "{" + place + '{"a":' * 5000 + "1" + "}" * 5001,
        "{" + place + '{"a":' * 150 + "1" + "}" * 151,
        "{" + place + '{"deep":1e999}}',
        "{" + place + '{"deep":' + "9" * 5000 + "}}",
        '{"tenantId":"a","tenantId":"b"}',
    ):
        _check(shared, path, raw.encode())
