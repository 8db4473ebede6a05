"""A daemon that disagrees with another one of its database answers that it serves nothing."""

from __future__ import annotations

from dataclasses import replace

from api.site import Site
from bcmetal.api.app import build_app


def test_a_daemon_that_is_held_is_not_ready_and_serves_nothing(site: Site) -> None:
    held = True
    site.app = build_app(replace(site.services, held=lambda: held))
    answer = site.send("/readyz", method="GET")
    assert (answer.status, answer.doc) == (503, {"ready": False, "reason": "configuration-differs"})
    assert site.send("/healthz", method="GET").doc == {"ok": True}
    refused = site.post("/api/compute/metal/list", {"tenantId": "tenant-a"})
    assert (refused.status, refused.code) == (503, "UNAVAILABLE")
    held = False
    assert site.send("/readyz", method="GET").doc == {"ready": True}
    assert site.post("/api/compute/metal/list", {"tenantId": "tenant-a"}).status == 200
