"""Nodes and what hangs on them: BMCs, conditions, sightings, secrets, lists, the end. Of the machine itself: `test_machines`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bcmetal.errors import Conflict, Lost
from bcmetal.states import Disks, SideVerb, State, System
from bcmetal.store import (
    conditions,
    erasure,
    nodes,
    operations,
    sealed,
    sweeping,
    views,
)
from bcmetal.store.bmcs import BmcInUse
from bcmetal.store.nodes import NodeFilter
from bcmetal.store.values import (
    AddErasureRecord,
    DriveSeen,
    DropSealed,
    MoveSealed,
    PutSealed,
    SetBmc,
    SetCondition,
    SetDrives,
    SetIdentifiers,
    SetNode,
    SetSighting,
    StoreBaseline,
)
from store.samples import (
    NOW,
    Db,
    a_bmc,
    a_new_node,
    a_node,
    a_sealed,
    bmc_of,
    claim,
    doc_of,
    everything,
    facts_of,
    know,
    later,
    mac,
    queue,
    serial,
    start,
    uuid,
)

# ---------------------------------------------------------------- making and reading


def test_a_new_node_is_enrolled_and_all_of_it_is_kept(db: Db) -> None:
    new = a_new_node(
        "r3u17",
        system_path="/redfish/v1/Systems/1",
        boot_mac="02:00:00:00:00:01",
        location_room="1",
        location_rack="r3",
        location_unit="17",
        asset_tag="A-1",
        root_device={"serial": "S1"},
        labels={"role": "gpu"},
    )
    db.write(nodes.insert, new, NOW)
    node = facts_of(db, new.node_id)
    assert node.facts.state is State.ENROLLED
    assert (node.facts.disks, node.facts.system, node.generation) == (Disks.FOREIGN, System.NONE, 1)
    assert (node.name, node.location_rack, node.asset_tag, node.boot_mac) == ("r3u17", "r3", "A-1", "02:00:00:00:00:01")
    assert (node.root_device, node.labels) == ({"serial": "S1"}, {"role": "gpu"})
    assert node.bmc is not None
    assert (node.bmc.scheme, node.bmc.port, node.bmc.proven_at) == ("redfish", 443, None)
    assert doc_of(db, new.node_id)["labels"] == {"role": "gpu"}
    assert db.read(nodes.get, "nd_none") is None


def test_a_name_is_taken_once_in_a_pool(db: Db) -> None:
    a_node(db, "r3u17")
    with pytest.raises(Conflict) as refused:
        a_node(db, "r3u17")
    assert refused.value.details["field"] == "name"
    assert db.rows("SELECT count(*) FROM bmcs") == [(1,)]
    a_node(db, "r3u17", pool_id="cpu")


def test_a_node_is_found_by_id_or_name_in_its_pool_only(db: Db) -> None:
    node_id = a_node(db, "r3u17")
    assert db.read(nodes.find, "gpu", "r3u17") == node_id
    assert db.read(nodes.find, "gpu", node_id) == node_id
    assert db.read(nodes.find, "cpu", node_id) is None
    assert db.read(nodes.find, "gpu", "r3u18") is None


def test_pools_in_use_are_told_with_their_owner(db: Db) -> None:
    a_node(db)
    a_node(db, pool_id="cpu", tenant_id="tenant-b")
    assert db.read(nodes.pools_in_use) == {"cpu": "tenant-b", "gpu": "tenant-a"}


def test_only_columns_that_a_caller_may_write_are_written(db: Db) -> None:
    node_id = a_node(db)
    for column in ("state", "generation", "claim_epoch", "due_at", "tenant_id"):
        with pytest.raises(KeyError):
            db.write(nodes.update, node_id, {column: "available"}, NOW)
    db.write(nodes.update, node_id, {"asset_tag": "A-2", "labels": {"a": "b"}}, later(1))
    node = facts_of(db, node_id)
    assert (node.asset_tag, node.labels, node.updated_at) == ("A-2", {"a": "b"}, later(1))
    with pytest.raises(Lost):
        db.write(nodes.update, "nd_none", {"asset_tag": "A"}, NOW)


# ---------------------------------------------------------------- BMCs


def test_two_systems_behind_one_bmc_share_its_row(db: Db) -> None:
    bmc = a_bmc()
    one, two = a_node(db, bmc=bmc, system_path="/1"), a_node(db, bmc=bmc, system_path="/2")
    assert bmc_of(db, one).bmc_id == bmc_of(db, two).bmc_id
    know(db, one, SetBmc({"maker": "Dell", "proven_at": NOW}))
    assert doc_of(db, two)["bmc"]["maker"] == "Dell"  # a neighbour's view follows


def test_another_family_at_the_same_host_is_another_bmc(db: Db) -> None:
    one = a_node(db, bmc=a_bmc("192.0.2.7", port=443))
    two = a_node(db, bmc=a_bmc("192.0.2.7", scheme="ipmi", port=443))
    assert bmc_of(db, one).bmc_id != bmc_of(db, two).bmc_id


def test_a_proven_bmc_and_system_are_enrolled_once_by_their_tenant(db: Db) -> None:
    bmc = a_bmc()
    node_id = a_node(db, bmc=bmc, system_path="/1")
    rival = a_node(db, bmc=bmc, system_path="/1")  # not proven yet: inspect will tell
    assert bmc_of(db, node_id).bmc_id != bmc_of(db, rival).bmc_id
    know(db, node_id, SetBmc({"proven_at": NOW}))
    with pytest.raises(BmcInUse) as refused:
        a_node(db, bmc=bmc, system_path="/1")
    assert refused.value.details["reason"] == "bmc-in-use"
    with pytest.raises(BmcInUse):
        know(db, rival, SetBmc({"proven_at": NOW}))


def test_another_tenants_bmc_is_never_told_of_at_enrolment(db: Db) -> None:
    bmc = a_bmc()
    node_id = a_node(db, bmc=bmc)
    know(db, node_id, SetBmc({"proven_at": NOW}))
    rival = a_node(db, bmc=bmc, tenant_id="tenant-b", pool_id="cpu")
    assert bmc_of(db, rival).bmc_id != bmc_of(db, node_id).bmc_id
    with pytest.raises(BmcInUse) as refused:
        know(db, rival, SetBmc({"proven_at": NOW}))
    assert node_id not in str(refused.value)
    assert "tenant" not in str(refused.value)
    assert bmc_of(db, rival).proven_at is None


def test_a_system_that_turns_out_to_be_a_neighbours_is_in_use(db: Db) -> None:
    bmc = a_bmc()
    one = a_node(db, bmc=bmc, system_path="/1")
    know(db, one, SetBmc({"proven_at": NOW}))
    two = a_node(db, bmc=bmc)
    assert bmc_of(db, one).bmc_id == bmc_of(db, two).bmc_id
    with pytest.raises(BmcInUse):
        know(db, two, SetNode({"system_path": "/1"}))


def test_what_drivers_learn_and_the_breaker_are_kept(db: Db) -> None:
    node_id = a_node(db)
    know(db, node_id, SetBmc({"learned": {"etag": True}, "breaker_failures": 3, "breaker_since_at": NOW}))
    bmc = bmc_of(db, node_id)
    assert (bmc.learned, bmc.breaker_failures, bmc.breaker_since_at) == ({"etag": True}, 3, NOW)
    assert bmc.generation == 1
    know(db, node_id, SetBmc({"host": "192.0.2.9", "trust_kind": "fingerprint", "trust_value": "ab"}))
    assert bmc_of(db, node_id).generation == 2
    with pytest.raises(KeyError):
        know(db, node_id, SetBmc({"tenant_id": "tenant-b"}))


# ---------------------------------------------------------------- conditions and attention


def test_a_condition_keeps_its_beginning_while_it_only_repeats(db: Db) -> None:
    node_id = a_node(db)
    know(db, node_id, SetCondition("reachable", "error", "error", "bmc-unreachable", "away"))
    know(db, node_id, SetCondition("reachable", "error", "error", "bmc-unreachable", "away"), now=later(60))
    [found] = db.read(conditions.list, node_id)
    assert found.since_at == NOW
    know(db, node_id, SetCondition("reachable", "ok", "info", "", ""), now=later(70))
    assert db.read(conditions.list, node_id) == ()
    know(db, node_id, SetCondition("reachable", "ok", "info", "", ""), now=later(80))
    told = [row[0] for row in db.rows("SELECT data FROM outbox ORDER BY seq")]
    assert len(told) == 2
    assert '"status":"ok"' in told[1]


def test_an_error_wants_attention_after_ten_minutes(db: Db) -> None:
    node_id, warned = a_node(db), a_node(db)
    know(db, node_id, SetCondition("power", "error", "error", "odd", ""))
    know(db, warned, SetCondition("power", "warning", "warning", "odd", ""))
    assert not doc_of(db, node_id)["needsAttention"]
    assert db.write(nodes.recompute_attention, later(599)) == ()
    assert db.write(nodes.recompute_attention, later(600)) == (node_id,)
    assert db.write(nodes.recompute_attention, later(601)) == ()
    assert doc_of(db, node_id)["needsAttention"]
    know(db, node_id, SetCondition("power", "ok", "info", "", ""), now=later(700))
    assert not doc_of(db, node_id)["needsAttention"]


def test_overdue_maintenance_wants_attention(db: Db) -> None:
    node_id = a_node(db)
    db.write(nodes.update, node_id, {"maintenance": True, "maintenance_until": later(60)}, NOW)
    assert not doc_of(db, node_id)["needsAttention"]
    assert db.write(nodes.recompute_attention, later(61)) == (node_id,)
    db.write(nodes.update, node_id, {"maintenance": False}, later(62))
    assert not doc_of(db, node_id)["needsAttention"]


def test_protection_ends_by_itself(db: Db) -> None:
    node_id, forever = a_node(db), a_node(db)
    db.write(nodes.update, node_id, {"protected": True, "protected_until": later(60), "protected_reason": "x"}, NOW)
    db.write(nodes.update, forever, {"protected": True}, NOW)
    assert db.write(nodes.expire_protection, later(59)) == []
    assert db.write(nodes.expire_protection, later(60)) == [node_id]
    assert not facts_of(db, node_id).facts.protected
    assert doc_of(db, node_id)["protected"] == {"on": False, "reason": None, "until": None}
    assert facts_of(db, forever).facts.protected


# ---------------------------------------------------------------- sightings and the sweep


def test_a_sighting_moves_neither_generation_nor_the_stored_view(db: Db) -> None:
    node_id = a_node(db)
    before = everything(db)
    know(db, node_id, SetSighting(power="on", health="ok"))
    know(db, node_id, SetSighting(boot_mode="uefi"), now=later(5))
    after = everything(db)
    assert {name for name in after if after[name] != before[name]} == {"sightings"}
    doc = doc_of(db, node_id)
    assert (doc["power"]["observed"], doc["power"]["observedAt"]) == ("on", views.stamp(NOW))
    [view] = db.read(views.read, [node_id])
    assert json.loads(view.text('[{"verb":"inspect"}]')) == {**view.doc, "allowedVerbs": [{"verb": "inspect"}]}


def test_the_sweep_looks_at_those_longest_unseen_and_leaves_out_what_it_must(db: Db) -> None:
    unseen, old, recent = a_node(db), a_node(db), a_node(db)
    know(db, old, SetSighting(power="on"), now=later(1))
    know(db, recent, SetSighting(power="on"), now=later(50))
    quiet, unprobed, away, rejected, claimed = (a_node(db, bmc=a_bmc(scheme=s)) for s in ("redfish", "", *["ipmi"] * 3))
    db.write(nodes.update, quiet, {"quiet": True}, NOW)
    know(db, away, SetBmc({"breaker_until_at": later(600)}))
    know(db, rejected, SetCondition("credentials", "error", "error", "bmc-credentials-rejected", ""))
    start(db, claimed)
    assert len(claim(db)) == 1
    due = db.read(sweeping.due, later(30), later(60))
    assert set(due) == {unseen, old}
    assert unprobed not in due
    assert not db.write(sweeping.swept, claimed, [SetSighting(power="on")], NOW)
    assert not db.write(sweeping.swept, "nd_none", [], NOW)
    assert db.write(sweeping.swept, unseen, [], later(60))
    assert db.read(sweeping.due, later(30), later(60)) == [old]


# ---------------------------------------------------------------- secrets of a BMC


def test_a_candidate_takes_the_place_of_the_current_one_or_goes(db: Db) -> None:
    node_id = a_node(db)
    bmc_id = bmc_of(db, node_id).bmc_id
    old, new = a_sealed("bmc", bmc_id, blob=b"old"), a_sealed("bmc", bmc_id, slot="candidate", blob=b"new")
    know(db, node_id, PutSealed(old), PutSealed(new))
    assert (doc_of(db, node_id)["bmc"]["credentialsSet"], doc_of(db, node_id)["bmc"]["pending"]) == (True, True)
    know(db, node_id, MoveSealed(bmc_id, True))
    assert [(row.slot, row.blob) for row in db.read(sealed.get, "bmc", bmc_id)] == [("current", b"new")]
    assert not doc_of(db, node_id)["bmc"]["pending"]
    know(db, node_id, PutSealed(a_sealed("bmc", bmc_id, slot="candidate", blob=b"bad")), MoveSealed(bmc_id, False))
    assert [row.blob for row in db.read(sealed.get, "bmc", bmc_id)] == [b"new"]


def test_a_bmcs_secrets_stay_while_another_live_node_uses_them(db: Db) -> None:
    bmc = a_bmc()
    one, two = a_node(db, bmc=bmc, system_path="/1"), a_node(db, bmc=bmc, system_path="/2")
    bmc_id = bmc_of(db, one).bmc_id
    know(db, one, PutSealed(a_sealed("bmc", bmc_id)), DropSealed(bmc_id))
    assert len(db.read(sealed.get, "bmc", bmc_id)) == 1
    db.sql("UPDATE nodes SET state = 'retired' WHERE node_id = :node_id", node_id=two)
    know(db, one, DropSealed(bmc_id))
    assert db.read(sealed.get, "bmc", bmc_id) == ()
    assert not doc_of(db, one)["bmc"]["credentialsSet"]


# ---------------------------------------------------------------- lists


def listed(db: Db, limit: int = 50, cursor: str | None = None, **wanted: Any) -> tuple[list[str], str | None]:
    return db.read(nodes.list_page, NodeFilter(wanted.pop("pool_ids", ["gpu"]), **wanted), limit, cursor)


def test_a_list_goes_page_by_page_through_the_pools_that_may_be_seen(db: Db) -> None:
    made = [a_node(db) for _ in range(5)]
    a_node(db, pool_id="cpu")
    first, cursor = listed(db, 2)
    second, more = listed(db, 2, cursor)
    third, end = listed(db, 2, more)
    assert [*first, *second, *third] == sorted(made)
    assert end is None
    assert listed(db, pool_ids=[]) == ([], None)
    assert len(listed(db, pool_ids=["gpu", "cpu"])[0]) == 6


def test_a_list_is_filtered_by_what_an_admin_remembers(db: Db) -> None:
    wanted = a_node(db, "r3u17", labels={"role": "gpu"}, bmc=a_bmc("10.20.3.17"))
    a_node(db, "r3u18", labels={"role": "cpu"}, bmc=a_bmc("10.20.3.18"))
    know(
        db,
        wanted,
        SetIdentifiers("bmc", (serial("ABC123"), mac("02:aa:00:00:00:01"))),
        SetCondition("power", "error", "error", "odd", ""),
    )
    db.write(nodes.recompute_attention, later(600))
    for query in ("r3u17", "U17", "abc1", "ABC123", "02:AA:00", "02-aa-00-00-00-01", "10.20.3.17", wanted):
        assert listed(db, query=query) == ([wanted], None), query
    assert listed(db, query="%") == ([], None)
    assert len(listed(db, query="r3u1")[0]) == 2
    assert listed(db, labels={"role": "gpu"}) == ([wanted], None)
    assert listed(db, labels={"role": "gpu", "x": "y"}) == ([], None)
    assert listed(db, condition="power") == ([wanted], None)
    assert listed(db, needs_attention=True) == ([wanted], None)
    assert wanted not in listed(db, needs_attention=False)[0]
    assert listed(db, state=State.DEPLOYED) == ([], None)
    assert len(listed(db, state=State.ENROLLED)[0]) == 2


# ---------------------------------------------------------------- the end


def test_a_removed_node_leaves_its_history_drives_and_records(db: Db) -> None:
    bmc = a_bmc()
    node_id = a_node(db, "r3u17", labels={"a": "b"}, bmc=bmc)
    bmc_id = bmc_of(db, node_id).bmc_id
    know(
        db,
        node_id,
        SetBmc({"proven_at": NOW}),
        PutSealed(a_sealed("bmc", bmc_id)),
        SetIdentifiers("bmc", (uuid("u1"),)),
        SetDrives((DriveSeen("S1", "M", None, 1),)),
        AddErasureRecord("er_1", "S1", {"verifier": "bmc"}),
        SetCondition("power", "error", "error", "odd", ""),
        SetSighting(power="on"),
        StoreBaseline("d", {}),
    )
    side = queue(db, node_id, SideVerb.REFRESH)
    db.write(nodes.tombstone_and_delete, node_id, "moved", later(1))
    assert db.read(nodes.get, node_id) is None
    assert db.read(views.read, [node_id]) == []
    tables = everything(db)
    for gone in ("nodes", "bmcs", "sealed", "node_views", "node_labels", "node_identifiers", "identities"):
        assert tables[gone] == [], gone
    for gone in ("sightings", "conditions", "baselines", "media"):
        assert tables[gone] == [], gone
    assert [row.record_id for row in db.read(erasure.of_node, node_id)] == ["er_1"]
    assert len(tables["drives"]) == 1
    op = db.read(operations.get, side)
    assert op is not None
    assert (op.status, op.ended_at) == ("refused", later(1))
    stone = db.read(nodes.tombstone, node_id)
    assert stone is not None
    assert (stone["name"], stone["reason"], stone["doc"]["name"]) == ("r3u17", "moved", "r3u17")
    assert stone["doc"]["power"]["observed"] == "on"
    with pytest.raises(Lost):
        db.write(nodes.tombstone_and_delete, node_id, "again", later(2))
    again = a_node(db, "r3u17", bmc=bmc)
    know(db, again, SetBmc({"proven_at": NOW}), SetIdentifiers("bmc", (uuid("u1"),)))


def test_a_shared_bmc_stays_while_a_node_is_behind_it(db: Db) -> None:
    bmc = a_bmc()
    one, two = a_node(db, bmc=bmc, system_path="/1"), a_node(db, bmc=bmc, system_path="/2")
    db.write(nodes.tombstone_and_delete, one, "", NOW)
    assert bmc_of(db, two) is not None
    db.write(nodes.tombstone_and_delete, two, "", NOW)
    assert db.rows("SELECT count(*) FROM bmcs") == [(0,)]
