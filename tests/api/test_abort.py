"""An abort under a freeze, as under maintenance: it ends at once, and its cleanup waits."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from api.site import Site
from bcmetal.store import freezes

SCOPES = [("site", "site-a"), ("pool", "pool-a"), ("rack", "site-a/r1")]


def frozen(site: Site, kind: str, scope: str) -> None:
    site.write(freezes.set, kind, scope, "cooling works", "key:admin", site.now())


@pytest.mark.parametrize(("kind", "scope"), SCOPES, ids=[kind for kind, _ in SCOPES])
def test_an_abort_in_a_freeze_ends_at_once_and_leaves_its_cleanup_queued(site: Site, kind: str, scope: str) -> None:
    node_id = site.enroll()
    site.put(node_id, state="available", disks="clean", location_rack="r1")
    operation = site.of(node_id, "deploy", image={"name": "os"}).doc["operation"]["id"]
    frozen(site, kind, scope)

    def touch(c: Any) -> None:
        c.execute(text("UPDATE operations SET touched = true WHERE operation_id = :o"), {"o": operation})

    site.write(touch)
    view = site.of(node_id, "abort").doc
    assert (view["state"], view["lastError"]["code"]) == ("deploy-failed", "aborted")
    by_verb = {one["verb"]: one["status"] for one in site.operations(node_id)}
    assert (by_verb["deploy"], by_verb["cleanup"]) == ("aborted", "queued")


def test_an_untouched_abort_in_a_freeze_returns_to_where_it_came_from(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="available", disks="clean")
    frozen(site, "pool", "pool-a")
    site.of(node_id, "deploy", image={"name": "os"})
    assert site.of(node_id, "abort").doc["state"] == "available"
    assert "cleanup" not in {one["verb"] for one in site.operations(node_id)}


def test_a_freeze_elsewhere_changes_no_abort(site: Site) -> None:
    node_id = site.enroll()
    frozen(site, "rack", "site-a/r9")
    site.of(node_id, "inspect")
    assert site.of(node_id, "abort").doc["operation"]["aborting"] is True
