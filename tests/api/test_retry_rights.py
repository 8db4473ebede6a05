"""A retry does a failed verb again, and needs what that verb needs: the right to operate alone erases nothing."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from api.site import POOL, Site
from bcmetal.api.access import WORKFLOW_ACTIONS
from bcmetal.settings import Settings, check
from bcmetal.settings_grants import Action
from bcmetal.states import WORKFLOWS, Verb

WAIVER = {"reason": "the drive is dead", "serials": ["S1"]}


def failed(site: Site, verb: str, state: str, before: str, **given: Any) -> str:
    """A node on which this verb, with this input, failed."""
    node_id = site.enroll()
    site.put(node_id, state=before, disks="tenant" if before == "deployed" else "clean", system="present")
    assert site.of(node_id, verb, **given).status == 200

    def fail(c: Any) -> None:
        c.execute(text("UPDATE operations SET status = 'failed', ended_at = 1 WHERE node_id = :n"), {"n": node_id})

    site.write(fail)
    site.put(node_id, state=state, failed_verb=verb, failed_origin=before, operation_id=None)
    return node_id


def granted(site: Site, *actions: str) -> Settings:
    """The operator's key, with these actions and no role."""
    site.doc["grants"] = [one for one in site.doc["grants"] if one["to"] != "key:operator"]
    site.doc["grants"].append({"to": "key:operator", "actions": list(actions), "on": f"compute-pool/{POOL}"})
    site.settings = check(site.doc)
    return site.settings


CASES = [
    ("commission", "commission-failed", "available", {}, {"erase"}),
    ("release", "release-failed", "deployed", {}, {"erase"}),
    ("release", "release-failed", "deployed", {"eraseWaiver": WAIVER, "profile": "waived"}, {"erase", "erase-waiver"}),
    ("retire", "retire-failed", "available", {}, {"retire"}),
    ("deploy", "deploy-failed", "deployed", {"image": {"name": "os"}, "rebuild": True}, {"erase"}),
    ("rescue", "rescue-failed", "deployed", {}, {"rescue"}),
]


@pytest.mark.parametrize(("verb", "state", "before", "given", "needs"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES])
def test_a_retry_needs_the_failed_verbs_own_actions(
    site: Site, verb: str, state: str, before: str, given: dict[str, Any], needs: set[str]
) -> None:
    node_id = failed(site, verb, state, before, **given)
    for missing in sorted(needs):
        granted(site, "read", "operate", *(needs - {missing}))
        refused = site.of(node_id, "retry", "operator")
        assert (refused.status, refused.code) == (403, "PERMISSION_DENIED")
        assert refused.error["details"]["actions"] == [missing]
        assert site.of(node_id, "get").doc["state"] == state
    granted(site, "read", *needs)
    assert site.of(node_id, "retry", "operator").code == "PERMISSION_DENIED"  # and operate
    granted(site, "read", "operate", *needs)
    assert site.of(node_id, "retry", "operator").doc["operation"]["verb"] == verb


def test_a_first_deploy_is_retried_by_whoever_may_operate(site: Site) -> None:
    node_id = failed(site, "deploy", "deploy-failed", "available", image={"name": "os"})
    granted(site, "read", "operate")
    assert site.of(node_id, "retry", "operator").doc["state"] == "deploying"


def test_every_workflow_has_its_action() -> None:
    assert set(WORKFLOW_ACTIONS) == set(WORKFLOWS)
    assert WORKFLOW_ACTIONS[Verb.RETIRE] is Action.RETIRE
