"""Images on the shelf: public ones and a tenant's own, and who may have them fetched and deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.site import TENANT, Site
from bcmetal.api.app import build_app
from bcmetal.boot.policy import fetch_policy
from bcmetal.boot.shelf import Shelf
from bcmetal.store import media
from boot.origin import Origin, a_file, an_origin, sha256, status, until

BODY = os.urandom(100_000)
LIST, PULL, PRUNE = (f"/api/compute/images/{name}" for name in ("list", "pull", "prune"))


@pytest.fixture
def origin() -> Iterator[Origin]:
    with an_origin() as server:
        server.pages |= {"/disk": a_file(BODY), "/none": status(404)}
        yield server


@pytest.fixture
def shelf(site: Site, origin: Origin, tmp_path: Path) -> Iterator[Shelf]:
    def add(doc: dict[str, Any]) -> None:
        doc["daemon"]["images_from"].append("127.0.0.1/32")
        doc["images"]["disk"] = {"url": origin.url("/disk"), "sha256": sha256(BODY), "format": "raw"}
        doc["images"]["none"] = {"url": origin.url("/none"), "sha256": "2" * 64, "format": "qcow2"}

    site.change(add)
    shelf = Shelf(tmp_path / "images", lambda: fetch_policy(site.settings), spare_s=0.0)
    site.app = build_app(replace(site.services, shelf=shelf))
    yield shelf
    shelf.close()


def pulled(site: Site, image: dict[str, Any], who: str = "operator", tenant: str = TENANT) -> dict[str, Any]:
    """Asked again until it is no longer under way."""
    found: dict[str, Any] = {}

    def asked() -> bool:
        found.clear()
        found.update(site.post(PULL, {"tenantId": tenant, "image": image}, who).doc)
        return bool(found.get("state") != "fetching")

    until(asked)
    return found


def listed(site: Site, who: str = "reader", tenant: str = TENANT) -> dict[str | None, dict[str, Any]]:
    return {one["name"]: one for one in site.post(LIST, {"tenantId": tenant}, who).doc["images"]}


def test_an_image_of_the_configuration_is_pulled_once_for_everybody(site: Site, shelf: Shelf, origin: Origin) -> None:
    assert listed(site)["disk"]["state"] == "absent"
    found = pulled(site, {"name": "disk"})
    assert (found["state"], found["public"]) == ("ready", True)
    assert found["file"] == {
        "bytes": len(BODY),
        "sha256": sha256(BODY),
        "compression": "none",
        "rawBytes": len(BODY),
    }
    assert pulled(site, {"name": "disk"}, "other", "tenant-b") == found
    assert origin.paths() == ["/disk"]
    assert listed(site, "other", "tenant-b")["disk"]["state"] == "ready"
    assert listed(site)["disk"]["onDiskBytes"] >= len(BODY)


def test_what_a_tenant_named_by_its_address_is_seen_by_that_tenant_alone(
    site: Site, shelf: Shelf, origin: Origin
) -> None:
    wanted = {"url": origin.url("/disk") + "?signature=s3cret", "sha256": sha256(BODY), "format": "raw"}
    assert pulled(site, wanted)["public"] is False
    mine = listed(site)[None]
    assert (mine["sha256"], mine["public"], mine["state"]) == (sha256(BODY), False, "ready")
    assert None not in listed(site, "other", "tenant-b")
    pulled(site, wanted, "other", "tenant-b")
    assert len(origin.asked) == 2
    answers = site.post("/api/compute/audit/list", {"tenantId": TENANT}, "admin").raw
    assert b"images:pull" in answers
    assert b"s3cret" not in answers


def test_a_pull_that_fails_says_why(site: Site, shelf: Shelf) -> None:
    found = pulled(site, {"name": "none"})
    assert found["state"] == "failed"
    assert found["error"] == {
        "code": "image-not-found",
        "message": "the server answers 404: there is no such image",
        "retryable": False,
    }


def test_an_image_that_can_never_be_had_is_refused_at_once(site: Site, shelf: Shelf, origin: Origin) -> None:
    for image, path in (
        ({"name": "debian"}, "image.name"),
        ({"url": "http://169.254.169.254/latest", "sha256": "0" * 64}, "image.url"),
        ({"url": origin.url("/disk")}, "image"),
    ):
        answer = site.post(PULL, {"tenantId": TENANT, "image": image}, "operator")
        assert (answer.code, answer.error["details"]["faults"][0]["field"]) == ("INVALID_INPUT", path)
    assert origin.asked == []


def test_prune_spares_what_a_machine_needs_and_what_is_not_the_callers(
    site: Site, shelf: Shelf, origin: Origin
) -> None:
    own = {"url": origin.url("/disk"), "sha256": sha256(BODY), "format": "raw"}
    pulled(site, {"name": "disk"})
    pulled(site, own)
    pulled(site, own, "other", "tenant-b")

    def prune(who: str, tenant: str = TENANT) -> int:
        return len(site.post(PRUNE, {"tenantId": tenant}, who).doc["pruned"])

    assert (prune("operator"), prune("operator")) == (1, 0), "the operator of a pool: the tenant's own"
    site.write(media.add, "/m/x.iso", "nd", "op", "0", f"sha256-{sha256(BODY)}.raw", "h", None, site.now())
    assert prune("admin") == 0, "a machine needs the public one"
    site.write(media.end, "op", site.now())
    assert prune("admin") == 1
    assert len(list(shelf.folder.iterdir())) == 1, "the other tenant's"


def test_who_may_read_may_not_fetch_or_delete(site: Site, shelf: Shelf) -> None:
    for who in ("reader", "nobody"):
        for path, body in ((PULL, {"image": {"name": "disk"}}), (PRUNE, {})):
            assert site.post(path, {"tenantId": TENANT, **body}, who).code == "PERMISSION_DENIED"
    assert site.post(LIST, {"tenantId": TENANT}, "nobody").code == "PERMISSION_DENIED"
    assert list(shelf.folder.iterdir()) == []


def test_a_daemon_without_a_shelf_says_so(site: Site) -> None:
    site.app = build_app(replace(site.services, shelf=None))
    assert site.post(LIST, {"tenantId": TENANT}, "reader").code == "UNAVAILABLE"
