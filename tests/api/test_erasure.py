"""Erasure records: read by whoever may read the pool, also after the node is gone, and by no other tenant."""

from __future__ import annotations

from typing import Any

import pytest

from api.site import POOL, TENANT, Site
from bcmetal.store import nodes
from bcmetal.store.values import AddErasureRecord
from bcmetal.store.views import stamp

LIST, GET = "/api/compute/erasureRecords/list", "/api/compute/erasureRecords/get"


def erased(site: Site, node_id: str, serial: str | None = "S1") -> str:
    """A record as the engine writes it; its id."""
    record_id = site.new_id("er")
    doc = {"serial": serial, "result": "erased", "verifier": "bmc", "startedAt": 1_000_000, "endedAt": site.now()}
    fact = AddErasureRecord(record_id, serial or "machine", doc)
    site.write(nodes.apply, node_id, [fact], site.now())
    return record_id


def listed(site: Site, who: str = "admin", **given: Any) -> list[str]:
    answer = site.post(LIST, {"tenantId": TENANT, **given}, who)
    assert answer.status == 200, answer.raw
    return [one["recordId"] for one in answer.doc["records"]]


def one(site: Site, record_id: str, who: str = "admin", tenant: str = TENANT) -> Any:
    return site.post(GET, {"tenantId": tenant, "recordId": record_id}, who)


def theirs(site: Site) -> str:
    """A record of another tenant."""
    body = {"tenantId": "tenant-b", "poolId": "pool-b", "name": "theirs", "inspect": False}
    bmc = {"address": "ipmi://10.20.7.7", "username": "u", "password": "p" * 8}
    return erased(site, site.metal("enroll", {**body, "bmc": bmc}, "other").doc["nodeId"])


def test_a_record_says_what_was_done_to_which_drive_and_when(site: Site) -> None:
    node_id = site.enroll()
    record_id = erased(site, node_id)
    doc = one(site, record_id).doc
    assert {
        name: doc[name] for name in ("recordId", "nodeId", "tenantId", "poolId", "serial", "result", "verifier")
    } == {
        "recordId": record_id,
        "nodeId": node_id,
        "tenantId": TENANT,
        "poolId": POOL,
        "serial": "S1",
        "result": "erased",
        "verifier": "bmc",
    }
    assert doc["startedAt"] == stamp(1_000_000)
    assert doc["at"].endswith("Z")
    assert one(site, erased(site, node_id, None)).doc["serial"] is None


def test_records_stay_when_the_node_is_removed(site: Site) -> None:
    node_id = site.enroll("gone")
    record_id = erased(site, node_id)
    assert site.of(node_id, "remove").status == 200
    assert listed(site) == listed(site, nodeId=node_id) == listed(site, nodeId="gone") == [record_id]
    assert one(site, record_id).doc["nodeId"] == node_id


def test_records_are_listed_page_by_page_newest_first(site: Site) -> None:
    node_id = site.enroll()
    made = [erased(site, node_id, f"S{n}") for n in range(3)]
    page = site.post(LIST, {"tenantId": TENANT, "limit": 2}).doc
    rest = site.post(LIST, {"tenantId": TENANT, "limit": 2, "cursor": page["cursor"]}).doc
    assert [one["recordId"] for one in (*page["records"], *rest["records"])] == made[::-1]
    assert rest["cursor"] is None


def test_records_are_narrowed_by_pool_node_and_serial(site: Site) -> None:
    first = site.enroll("n1", bmc={"address": "redfish://10.20.3.1"})
    second = site.metal(
        "enroll",
        {
            "poolId": "pool-a2",
            "name": "n2",
            "bmc": {"address": "ipmi://10.20.3.2", "username": "u", "password": "p" * 8},
            "inspect": False,
        },
    ).doc["nodeId"]
    of_first, of_second = erased(site, first, "S1"), erased(site, second, "S2")
    assert listed(site) == [of_second, of_first]
    assert listed(site, poolId=POOL) == listed(site, nodeId="n1") == listed(site, serial="s1") == [of_first]
    assert listed(site, nodeId=second) == listed(site, serial="S2") == [of_second]
    assert listed(site, nodeId="n1", serial="S2") == []


def test_who_may_read_one_pool_sees_its_records_alone(site: Site) -> None:
    mine = erased(site, site.enroll("n1"))
    bmc = {"address": "ipmi://10.20.3.2", "username": "u", "password": "p" * 8}
    other = site.metal("enroll", {"poolId": "pool-a2", "name": "n2", "bmc": bmc, "inspect": False}).doc["nodeId"]
    not_mine = erased(site, other)
    assert listed(site, "reader") == [mine]
    assert one(site, mine, "reader").status == 200
    assert one(site, not_mine, "reader").code == "NOT_FOUND"
    assert site.post(LIST, {"tenantId": TENANT, "poolId": "pool-a2"}, "reader").code == "PERMISSION_DENIED"
    assert site.post(LIST, {"tenantId": TENANT}, "nobody").code == "PERMISSION_DENIED"


@pytest.mark.parametrize("tenant", [TENANT, "tenant-b"])
def test_a_record_of_another_tenant_is_not_found(site: Site, tenant: str) -> None:
    mine, foreign = erased(site, site.enroll()), theirs(site)
    assert one(site, foreign, tenant=tenant).code == "NOT_FOUND"
    assert one(site, mine, "other", tenant).code == "NOT_FOUND"
    assert foreign not in listed(site)
    assert listed(site, nodeId="theirs") == []


def test_a_record_of_a_pool_that_is_no_more_is_for_readers_of_the_whole_tenant(site: Site) -> None:
    site.change(lambda doc: doc["grants"].append({"to": "key:eraser", "role": "reader", "on": "compute-pool/pool-a2"}))
    node_id = site.enroll("n1")
    record_id = erased(site, node_id)
    assert site.of(node_id, "remove").status == 200

    def without(doc: dict[str, Any]) -> None:
        del doc["pools"][POOL]
        doc["grants"] = [grant for grant in doc["grants"] if grant["on"] != f"compute-pool/{POOL}"]

    site.change(without)
    assert listed(site, "eraser") == [record_id]
    assert one(site, record_id, "eraser").status == 200
    assert one(site, record_id, "admin").code == "NOT_FOUND", "of another tenant: by the pool's grant alone"
