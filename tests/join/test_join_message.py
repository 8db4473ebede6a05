"""The join call's message: its bounds, what is no message at all, and to whom a fault of it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bcmetal_agent.wire import BODY_LIMIT, JOIN_PATH
from join.conftest import copied, opened
from join.site import Box, JoinSite, a_box

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[JoinSite]:
    yield from opened(copied(sqlite_template, tmp_path_factory.mktemp("message")))


@pytest.fixture(scope="module")
def bearer(shared: JoinSite) -> str:
    return shared.token(maxUses=100)


def macs(number: int) -> list[str]:
    return [f"3c:ec:ef:20:00:{n:02x}" for n in range(number)]


def gpus(number: int) -> list[str]:
    return [f"GPU-8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b{n:04x}" for n in range(number)]


def test_as_much_as_a_machine_may_have_is_taken(shared: JoinSite, bearer: str) -> None:
    box = a_box(1)
    identifiers = {"productUuid": box.uuid, "serial": "S" * 127 + "T", "macs": macs(64), "gpuUuids": gpus(32)}
    answer = shared.join(bearer, box, identifiers=identifiers)
    assert answer.status == 200, answer.raw
    shown = shared.call("nodes/get", nodeId=answer.doc["nodeId"]).doc
    assert len(shown["identifiers"]) == 1 + 1 + 64 + 32


def test_a_machine_that_says_nothing_waits_for_a_person(shared: JoinSite, bearer: str) -> None:
    answer = shared.join(bearer, Box(None), identifiers={})
    assert answer.status == 202
    shown = shared.call("joinRequests/get", requestId=answer.doc["requestId"]).doc
    assert (shown["reason"], shown["evidence"]["identifiers"]) == ("placeholder-identifiers", [])


def test_what_is_said_twice_is_said_once(shared: JoinSite, bearer: str) -> None:
    box = a_box(2)
    twice = {"productUuid": box.uuid, "macs": ["3c:ec:ef:21:00:01", "3C:EC:EF:21:00:01"]}
    answer = shared.join(bearer, box, identifiers=twice)
    shown = shared.call("nodes/get", nodeId=answer.doc["nodeId"]).doc
    assert len(shown["identifiers"]) == 2


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("identifiers.macs", {"identifiers": {"macs": macs(65)}}),
        ("identifiers.gpuUuids", {"identifiers": {"gpuUuids": gpus(33)}}),
        ("identifiers.serial", {"identifiers": {"serial": "S" * 129}}),
        ("identifiers.productUuid", {"identifiers": {"productUuid": "8" * 65}}),
        ("identifiers.macs[1]", {"identifiers": {"macs": [*macs(1), "3c:ec:ef:20:00"]}}),
        ("identifiers.macs[0]", {"identifiers": {"macs": ["3c:ec:ef:20:00:01:02"]}}),
        ("identifiers.macs[0]", {"identifiers": {"macs": [None]}}),
        ("identifiers.macs", {"identifiers": {"macs": "3c:ec:ef:20:00:01"}}),
        ("identifiers.gpuUuids[0]", {"identifiers": {"gpuUuids": ["GPU-1"]}}),
        ("identifiers.serial", {"identifiers": {"serial": 5}}),
        ("identifiers.uuid", {"identifiers": {"uuid": "x"}}),
        ("identifiers", {"identifiers": []}),
        ("identifiers.serial", {"identifiers": {"serial": "half \ud800"}}),
        ("attestor", {"attestor": "iid"}),
        ("attestor", {"attestor": ["token"]}),
        ("csr", {"csr": "x" * 8193}),
        ("csr", {"csr": None}),
        ("csr", {"csr": ["x"]}),
        ("tpm.ekPublic", {"tpm": {"akPublic": ""}}),
        ("challenge.proof", {"challenge": {"challengeId": "jc_1"}}),
        ("trust", {"trust": "platform"}),
        ("nodeId", {"nodeId": "nd_" + "0" * 26}),
    ],
)
def test_what_is_out_of_bounds_is_named(shared: JoinSite, bearer: str, field: str, more: dict[str, Any]) -> None:
    answer = shared.join(bearer, a_box(3), **more)
    assert (answer.status, answer.fields) == (400, {field})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"csr"',
        b"{",
        b"\xff\xfe{}",
        b'{"csr": NaN}',
        b'{"csr": "a", "csr": "b"}',
        b'{"identifiers": {}}',
        b"[" * 30_000,
        b'{"csr": 1e999}',
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
    ],
    ids=lambda raw: raw[:12].decode("latin-1"),
)
def test_what_is_no_message_is_a_fault_of_the_input_for_the_proven_and_a_401_for_others(
    shared: JoinSite, bearer: str, raw: bytes
) -> None:
    proven = shared.run(shared.send(shared.joins, JOIN_PATH, raw, JSON | {"Authorization": f"Bearer {bearer}"}))
    assert proven.code == "INVALID_INPUT"
    address = f"198.51.100.{len(raw) % 251}"
    other = shared.run(shared.send(shared.joins, JOIN_PATH, raw, JSON, address=address))
    assert (other.status, other.error["message"]) == (401, "The join token is not valid.")


def test_the_size_is_asked_first(shared: JoinSite, bearer: str) -> None:
    body = json.dumps({"csr": "x" * BODY_LIMIT}).encode()
    for headers in (JSON, JSON | {"Authorization": f"Bearer {bearer}"}):
        answer = shared.run(shared.send(shared.joins, JOIN_PATH, body, headers))
        assert (answer.status, answer.code) == (413, "INVALID_INPUT")
    lied = JSON | {"Content-Length": str(BODY_LIMIT * 10)}
    assert shared.run(shared.send(shared.joins, JOIN_PATH, b"{}", lied)).status == 413


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {},
        JSON | {"Content-Encoding": "gzip"},
    ],
)
def test_a_message_is_json_and_said_to_be(shared: JoinSite, bearer: str, headers: dict[str, str]) -> None:
    body = json.dumps({"csr": a_box(4).csr}).encode()
    answer = shared.run(shared.send(shared.joins, JOIN_PATH, body, headers | {"Authorization": f"Bearer {bearer}"}))
    assert (answer.status, answer.code) == (415, "INVALID_INPUT")
    assert shared.run(shared.send(shared.joins, JOIN_PATH, body, headers, address="203.0.113.1")).status == 401


def test_an_answer_is_kept_by_no_cache_and_tells_the_time(shared: JoinSite, bearer: str) -> None:
    answer = shared.join(bearer, a_box(5))
    assert answer.headers["cache-control"] == "no-store"
    assert answer.doc["serverTime"].endswith("Z")
    assert answer.doc["renewAfter"] > answer.doc["serverTime"]
    assert {*answer.doc} == {"status", "nodeId", "certificate", "trustBundle", "renewAfter", "serverTime"}


def test_a_fault_of_ours_tells_nothing_and_costs_nothing(one_site: JoinSite) -> None:
    """No CA: nothing is signed, and the token keeps its use."""
    bearer, authority = one_site.token(), one_site.authority
    one_site.authority = None  # type: ignore[assignment]  # as before `bcmetal ca init`
    answer = one_site.join(bearer, a_box())
    assert (answer.status, answer.code) == (503, "UNAVAILABLE")
    assert int(answer.headers["retry-after"]) > 0
    one_site.authority = authority
    assert one_site.join(bearer, a_box()).status == 200
