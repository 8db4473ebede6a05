"""The OpenAPI document against the application, method by method: whatever is sent, the answer is one that the document declares.

Schemathesis makes the requests from the document that the application serves: right ones, and ones that are wrong in one place. What names
a thing (tenants, pools, nodes, tokens, requests) is narrowed to what the site has, so that calls get past the first question. The answers'
schemas are closed here: a field that the document does not name is a finding, too.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import in_memory
from bcmetal.api.app import openapi_document
from bcmetal.api.calls import METHODS
from bcmetal.boot.fetch import FetchPolicy
from bcmetal.boot.shelf import Shelf
from bcmetal.states import SideVerb, Verb
from bcmetal_agent.wire import TRUST_BUNDLE_PATH
from join.conformance import Fuzzed, closed, narrowed
from join.site import OWNER, POOL, Box, JoinSite, a_box

pytestmark = pytest.mark.slow
OPERATIONS: Final = sorted(METHODS)
SETTINGS: Final = settings(
    max_examples=int(os.environ.get("BCMETAL_FUZZ_EXAMPLES", "12")),
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinSite]:
    nowhere = FetchPolicy((), 1, None)  # nothing is fetched
    with in_memory.a_folder(tmp_path_factory.mktemp("fuzz")) as folder:
        made = JoinSite(f"sqlite:///{folder / 'db'}", shelf=Shelf(folder / "images", lambda: nowhere))
        yield made
        made.close()


@pytest.fixture(scope="module")
def things(site: JoinSite) -> dict[str, list[Any]]:
    """Something of everything, by the field that names it."""
    states = ("deployed", "available", "inspected", "enrolled", "retired", "deploy-failed", "rescued", "deployed")
    metal = [site.enrolled(a_box(n), state=state) for n, state in enumerate(states, 1)]
    members = [site.admitted(a_box(n)).node_id for n in (1, 21, 22)]
    bearer = site.token(maxUses=9, allowReclaim=True)
    requests = [str(site.join(bearer, Box(None, f"SN9900{n}X")).doc["requestId"]) for n in range(4)]
    tokens = [one["tokenId"] for one in site.call("joinTokens/list", includeInactive=True).doc["tokens"]]
    site.call("freeze/set", "siteadmin", scopeKind="rack", scopeId="r9", siteId="fra1", reason="x")
    return {
        "tenantId": [OWNER],
        "poolId": [POOL],
        "nodeId": [*metal, *members],
        "tokenId": tokens,
        "requestId": requests,
        "siteId": ["fra1"],
        "scopeId": [POOL, "fra1", "r9"],
        "profile": ["std"],
        "verb": [verb.value for verb in (*Verb, *SideVerb)],
        "input": [{}, {"profile": "std"}, {"action": "on"}, {"deep": True}],
        "bmc": [
            {"address": address, "username": "root", "password": secrets.token_urlsafe(9)}
            for address in ("10.20.0.9", "redfish://10.20.0.8", "ipmi://10.20.0.7", "redfish://10.99.0.1")
        ],
    }


@pytest.fixture(scope="module")
def fuzzed(site: JoinSite, things: dict[str, list[Any]]) -> Fuzzed:
    served = site.run(site.send(site.api, "/api/openapi.json", b"", {}, method="GET")).doc
    return Fuzzed(closed(narrowed(served, things)))


def test_the_served_document_is_the_one_of_the_code(site: JoinSite) -> None:
    served = site.run(site.send(site.api, "/api/openapi.json", b"", {}, method="GET"))
    expected = openapi_document()
    assert served.doc["paths"] == json.loads(json.dumps(expected["paths"]))
    assert served.doc["components"] == json.loads(json.dumps(expected["components"]))
    assert {path.removeprefix("/api/compute/").partition("/")[0] for path in served.doc["paths"]} >= {
        *("metal", "joinTokens", "joinRequests", "nodes", "freeze", "audit", "erasureRecords"),
    }


@pytest.mark.parametrize("path", OPERATIONS)
@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_every_answer_is_a_declared_one(site: JoinSite, fuzzed: Fuzzed, path: str, right: bool) -> None:
    seen: list[int] = []

    @SETTINGS
    @given(case=fuzzed.cases(path, right), who=st.sampled_from(("owner", "siteadmin", "reader")))
    def answered(case: Any, who: str) -> None:
        seen.append(fuzzed.check(site, site.api, case, {"Authorization": f"Bearer {site.keys[who]}"}))

    answered()
    assert seen


@pytest.mark.parametrize("path", OPERATIONS)
def test_a_caller_who_proves_nothing_gets_a_declared_answer(site: JoinSite, fuzzed: Fuzzed, path: str) -> None:
    @settings(SETTINGS, max_examples=3)
    @given(
        case=fuzzed.cases(path, right=True),
        credential=st.sampled_from((None, "", "Bearer", "Bearer x", "Basic eDp4", "Bearer eyJh.eyJh.x", "Bearer \x7f")),
        host=st.integers(1, 254),
    )
    def answered(case: Any, credential: str | None, host: int) -> None:
        headers = {} if credential is None else {"Authorization": credential}
        assert fuzzed.check(site, site.api, case, headers, address=f"198.51.100.{host}") in (401, 429)

    answered()


def test_the_trust_bundle_is_as_declared_with_an_authority_and_without(site: JoinSite, fuzzed: Fuzzed) -> None:
    seen = []
    for site.with_ca in (False, True):

        @settings(SETTINGS, max_examples=2)
        @given(case=fuzzed.cases(TRUST_BUNDLE_PATH, right=True, method="GET"))
        def answered(case: Any) -> None:
            seen.append(fuzzed.check(site, site.api, case, {}, expected=[503]))

        answered()
    assert set(seen) == {200, 503}
