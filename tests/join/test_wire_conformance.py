"""The documents of the machines' listeners against the applications: whatever is sent, by whomever, the answer is a declared one."""

from __future__ import annotations

import itertools
import json
import os
import secrets
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bcmetal.api.wire_openapi import PATH, agents_document, nodes_document
from bcmetal_agent import wire
from join.conformance import Fuzzed, narrowed
from join.site import JoinSite, Member, a_box, new_csr

pytestmark = pytest.mark.slow
SETTINGS: Final = settings(
    max_examples=int(os.environ.get("BCMETAL_FUZZ_EXAMPLES", "40")),
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
AGENTS: Final = [(path, how) for path, one in agents_document("0")["paths"].items() for how in one]
_numbers = itertools.count(100)
NODES: Final = [(path, how) for path, one in nodes_document("0")["paths"].items() for how in one]


def right_and_wrong(operations: list[tuple[str, str]]) -> list[tuple[str, str, bool]]:
    """In what has no body nothing can be wrong."""
    return [(path, how, right) for path, how in operations for right in (True, False) if right or how == "post"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinSite]:
    folder = tmp_path_factory.mktemp("wire")
    made = JoinSite(f"sqlite:///{folder / 'db'}")
    secret = folder / "registry"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_urlsafe(16))
    made.change(lambda doc: doc["sites"]["fra1"].update(secrets={"registry": f"file:{secret}"}))
    yield made
    made.close()


@pytest.fixture(scope="module")
def things(site: JoinSite) -> dict[str, list[Any]]:
    """CSRs, identifiers and names that mean something here."""
    boxes = [a_box(n) for n in range(1, 7)]
    site.enrolled(boxes[0])
    site.admitted(boxes[1])
    said = [box.says() for box in boxes]
    return {
        "csr": [*(box.csr for box in boxes), new_csr(subject="a")[1], "", "-----BEGIN CERTIFICATE REQUEST-----"],
        "identifiers": [*said, said[0] | {"serial": "another"}, {"macs": said[2]["macs"]}, {"serial": "None"}, {}],
        **{name: [None] for name in ("tpm", "challenge", "tenantId", "poolId")},
        "attestor": ["token", "discovery"],
        "names": [[], ["registry"], ["registry", "other"], ["registry", "registry"]],
    }


@pytest.fixture
def members(site: JoinSite) -> list[Member]:
    """Live of platform trust, live at a tenant's own site, evicted. New ones for each test: renewing with two keys locks a node."""
    boxes = [a_box(next(_numbers)) for _ in range(3)]
    found = [site.admitted(boxes[0]), site.admitted(boxes[1], "edge", "edge"), site.admitted(boxes[2])]
    site.call("nodes/evict", nodeId=found[2].node_id)
    return found


def served(site: JoinSite, app: Any) -> Any:
    return site.run(site.send(app, PATH, b"", {}, method="GET")).doc


@pytest.mark.parametrize(("path", "how", "right"), right_and_wrong(AGENTS))
def test_machines_that_want_to_join_get_declared_answers(
    site: JoinSite, things: dict[str, list[Any]], path: str, how: str, right: bool
) -> None:
    document = narrowed(served(site, site.joins), things) if right else served(site, site.joins)
    fuzzed = Fuzzed(document)
    good = site.token(maxUses=10_000, allowReclaim=True)
    spent = site.token()
    site.join(spent, a_box(next(_numbers)))
    wrong = good[:-4] + "AAAA"
    statuses: list[int] = []

    @settings(SETTINGS, max_examples=SETTINGS.max_examples * 2)
    @given(
        case=fuzzed.cases(path, right, how),
        bearer=st.sampled_from(
            (good, good, good, None, spent, wrong, "", "x", "bcjt_jt_", "bcjt_jt_" + "0" * 52 + ".x")
        ),
        host=st.integers(1, 254),
    )
    def answered(case: Any, bearer: str | None, host: int) -> None:
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        statuses.append(fuzzed.check(site, site.joins, case, headers, address=f"198.51.100.{host}"))

    answered()
    if path == wire.JOIN_PATH and right:
        assert {200, 400, 401} <= set(statuses), "the calls did not get to every question"


@pytest.mark.parametrize(("path", "how", "right"), right_and_wrong(NODES))
def test_machines_that_joined_get_declared_answers(
    site: JoinSite, things: dict[str, list[Any]], members: list[Member], path: str, how: str, right: bool
) -> None:
    document = narrowed(served(site, site.nodes), things) if right else served(site, site.nodes)
    fuzzed = Fuzzed(document)
    statuses: list[int] = []

    @SETTINGS
    @given(case=fuzzed.cases(path, right, how), who=st.integers(0, 4))
    def answered(case: Any, who: int) -> None:
        peer = members[who].der if who < 3 else b"no certificate" if who == 3 else None
        statuses.append(fuzzed.check(site, site.nodes, case, {}, peer=peer))

    answered()
    assert 401 in statuses
    if path == wire.SECRETS_PATH and right:
        assert {200, 400, 401, 403} <= set(statuses)


@pytest.mark.parametrize("app", ["joins", "nodes"])
def test_before_there_is_an_authority_every_answer_is_declared_too(site: JoinSite, app: str) -> None:
    found = getattr(site, app)
    fuzzed = Fuzzed(served(site, found))
    site.with_ca = False
    try:
        for path, how in AGENTS if app == "joins" else NODES:

            @settings(SETTINGS, max_examples=3)
            @given(case=fuzzed.cases(path, right=True, method=how))
            def answered(case: Any) -> None:
                assert fuzzed.check(site, found, case, {}, expected=[503]) in (400, 401, 429, 503)

            answered()
    finally:
        site.with_ca = True


@pytest.mark.parametrize(
    "message",
    [
        wire.Admitted("nd_1", "c", "t", "2026", "2026"),
        wire.Challenge("ch_1", "YQ==", "YQ==", 60),
        wire.Deferred("jr_1", 15, "2026"),
        wire.TrustBundle(("pem",)),
        wire.Secrets((wire.Secret("a", "b"),)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_is_encoded_has_the_fields_of_its_schema(message: Any) -> None:
    schemas = agents_document("0")["components"]["schemas"] | nodes_document("0")["components"]["schemas"]
    schema = schemas[type(message).__name__]
    encoded = json.loads(wire.encode(message))
    assert set(encoded) <= set(schema["properties"])
    assert set(schema["required"]) <= set(encoded)


def test_bounds_and_closedness_of_messages_are_in_the_document() -> None:
    schemas = agents_document("0")["components"]["schemas"]
    join = schemas["Join"]
    assert join["required"] == ["csr"]
    assert join["additionalProperties"] is False
    assert join["properties"]["csr"] == {"type": "string", "maxLength": 8192}
    assert join["properties"]["attestor"] == {
        "type": "string",
        "enum": ["token", "discovery", "tpm"],
        "default": "token",
    }
    assert schemas["Identifiers"]["properties"]["macs"]["maxItems"] == 64
    assert {"requestId", "retryAfterSeconds", "serverTime", "status"} == set(schemas["Deferred"]["required"])
