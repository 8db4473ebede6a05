"""What is known of a machine: who it is, its drives, what it was made of, what was erased."""

from __future__ import annotations

import pytest

from bcmetal.decisions import Micros
from bcmetal.states import State
from bcmetal.store import (
    baselines,
    drives,
    erasure,
    identifiers,
    inventories,
    views,
)
from bcmetal.store.identifiers import IdentityHeld
from bcmetal.store.values import (
    AddErasureRecord,
    DriveSeen,
    Identifier,
    MarkDrives,
    SetDrives,
    SetIdentifiers,
    StoreBaseline,
    StoreInventory,
)
from store.samples import (
    NOW,
    Db,
    a_node,
    an_end,
    doc_of,
    facts_of,
    fresh,
    know,
    later,
    mac,
    save,
    serial,
    under_way,
    uuid,
)

# ---------------------------------------------------------------- identities


def test_an_exclusive_identity_is_held_by_one_live_node(db: Db) -> None:
    one, two = a_node(db), a_node(db, tenant_id="tenant-b", pool_id="cpu")
    know(db, one, SetIdentifiers("bmc", (uuid("u1"), mac("m1"), serial("S1"))))
    for held in (uuid("u1"), mac("m1")):
        with pytest.raises(IdentityHeld) as refused:
            know(db, two, SetIdentifiers("bmc", (held,)))
        assert refused.value.kind == held.kind
        assert one not in str(refused.value)
    know(db, two, SetIdentifiers("bmc", (uuid("u2"), serial("S1"))))  # a shared serial is no refusal
    assert facts_of(db, two).facts.serial == "S1"


def test_a_placeholder_is_nobodys_identity(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    know(db, one, SetIdentifiers("bmc", (uuid("0", usable=False), serial("To be filled", usable=False))))
    know(db, two, SetIdentifiers("bmc", (uuid("0", usable=False),)))
    assert facts_of(db, one).facts.serial is None
    assert doc_of(db, one)["identity"] == {"productUuid": None, "serial": None, "sku": None, "macs": []}


def test_an_identity_is_shown_as_the_bmc_spells_it(db: Db) -> None:
    node_id = a_node(db)
    normal, other = "01" * 16, "02" * 16  # the smaller byte order, which nobody but us writes
    agents = SetIdentifiers("agent", (Identifier("uuid", normal, "the agent's", "agent", True),))
    bmcs = SetIdentifiers(
        "bmc", (Identifier("uuid", normal, "4C4C4544-0042-3510", "bmc", True), uuid(other, usable=False))
    )
    know(db, node_id, agents, bmcs)
    assert doc_of(db, node_id)["identity"]["productUuid"] == "4C4C4544-0042-3510"


def test_what_no_source_says_any_more_is_let_go(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    agents = Identifier("mac", "m1", "m1", "agent", True)
    know(db, one, SetIdentifiers("bmc", (mac("m1"), mac("m2"))), SetIdentifiers("agent", (agents,)))
    know(db, one, SetIdentifiers("bmc", ()))
    know(db, two, SetIdentifiers("bmc", (mac("m2"),)))
    with pytest.raises(IdentityHeld):
        know(db, two, SetIdentifiers("bmc", (mac("m1"),)))
    assert [found.source for found in facts_of(db, one).identifiers] == ["agent"]


def test_a_retired_node_holds_its_identity_no_longer(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    know(db, node_id, SetIdentifiers("bmc", (uuid("u1"),)))
    save(db, held, operation_id, an_end(node_id, operation_id, State.RETIRED))
    other = a_node(db)
    know(db, other, SetIdentifiers("bmc", (uuid("u1"),)))
    assert facts_of(db, node_id).identifiers == (uuid("u1"),)


def test_the_bmcs_word_on_the_serial_comes_first(db: Db) -> None:
    node_id = a_node(db)
    know(
        db,
        node_id,
        SetIdentifiers("operator", (serial("OP", "operator"),)),
        SetIdentifiers("bmc", (serial("BM", "bmc"),)),
    )
    assert facts_of(db, node_id).facts.serial == "BM"
    assert db.read(identifiers.of_node, node_id) == facts_of(db, node_id).identifiers


# ---------------------------------------------------------------- drives, inventories, erasure


def test_a_drive_that_is_new_to_us_may_hold_data_until_it_is_erased(db: Db) -> None:
    node_id = a_node(db)
    seen = SetDrives((DriveSeen("S1", "M", "w1", 10), DriveSeen("S2", "M", None, 10)))
    know(db, node_id, seen)
    assert all(row.may_hold_data for row in db.read(drives.of_node, node_id))
    know(db, node_id, MarkDrives(("s1 ",), False), seen)
    found = {row.serial: row.may_hold_data for row in db.read(drives.of_node, node_id)}
    assert found == {"S1": False, "S2": True}
    know(db, node_id, SetDrives(()), now=later(1))
    assert [row.serial for row in db.read(drives.of_node, node_id)] == ["S2"]  # missing, and not forgotten


def test_a_drive_remembers_whose_data_it_may_hold_in_its_next_machine(db: Db) -> None:
    one = a_node(db)
    know(db, one, SetDrives((DriveSeen("S1", "M", None, 10),)), MarkDrives(("S1",), True, "tenant-a"))
    assert not facts_of(db, one).facts.held_by_another_tenant
    two = a_node(db, tenant_id="tenant-b", pool_id="cpu")
    know(db, two, SetDrives((DriveSeen("S1", "M", None, 10),)), now=later(1))
    assert facts_of(db, two).facts.held_by_another_tenant
    [view] = db.read(views.read, [two])
    assert view.facts.held_by_another_tenant
    know(db, two, MarkDrives(("S1",), False))
    assert not facts_of(db, two).facts.held_by_another_tenant


def test_an_inventory_is_kept_when_it_differs(db: Db) -> None:
    node_id = a_node(db)
    doc = {"cpus": [{"model": "X"}], "memory_bytes": 64, "drives": [{"capacity_bytes": 5}], "identity": {"model": "R1"}}
    know(db, node_id, StoreInventory("iv_1", "bmc", "d1", {"cpus": "ok"}, doc))
    know(db, node_id, StoreInventory("iv_2", "bmc", "d1", {}, {}), now=later(1))
    assert db.rows("SELECT count(*) FROM outbox") == [(0,)]
    know(db, node_id, StoreInventory("iv_3", "bmc", "d2", {}, {**doc, "memory_bytes": 128}), now=later(2))
    assert [row.inventory_id for row in db.read(inventories.since, node_id, NOW)] == ["iv_3", "iv_1"]
    latest = db.read(inventories.latest, node_id)
    assert latest is not None
    assert (latest.taken_at, latest.doc["memory_bytes"]) == (later(2), 128)
    hardware = doc_of(db, node_id)["hardware"]
    assert (hardware["model"], hardware["cpus"], hardware["memoryBytes"], hardware["diskBytes"]) == ("R1", 1, 128, 5)
    assert db.rows("SELECT type FROM outbox") == [("metal.inventory.changed",)]


def test_what_the_bmc_does_not_tell_is_shown_as_the_agent_saw_it(db: Db) -> None:
    node_id = a_node(db)
    told = {"cpus": [{"model": "X"}], "drives": [], "identity": {"model": "R1"}}
    seen = {
        "memoryBytes": 64,
        "cpus": [{"model": "Y"}, {}],
        "disks": [{"sizeBytes": 7}, {"sizeBytes": 9, "removable": True}],
    }
    know(db, node_id, StoreInventory("iv_1", "bmc", "d1", {}, told))
    know(db, node_id, StoreInventory("iv_2", "agent", "d2", {}, seen), now=later(1))
    shown = doc_of(db, node_id)["hardware"]
    assert (shown["model"], shown["cpuModel"], shown["cpus"], shown["memoryBytes"]) == ("R1", "X", 1, 64)
    assert (shown["drives"], shown["diskBytes"]) == (1, 7)


def test_a_baseline_is_the_last_one(db: Db) -> None:
    node_id = a_node(db)
    assert db.read(baselines.latest, node_id) is None
    know(db, node_id, StoreBaseline("d1", {"accounts": 1}))
    know(db, node_id, StoreBaseline("d2", {"accounts": 2}))
    assert db.read(baselines.latest, node_id) == {"accounts": 2}


def test_erasure_records_are_listed_by_tenant_newest_first(db: Db) -> None:
    one, two = a_node(db), a_node(db, tenant_id="tenant-b", pool_id="cpu")
    made = ["er_1", "er_2", "er_3"]
    for number, record_id in enumerate(made):
        know(db, one, AddErasureRecord(record_id, f"S{number}", {}), now=Micros(NOW + number))
    know(db, two, AddErasureRecord(fresh("er"), "S9", {}))
    page, cursor = db.read(erasure.list_page, "tenant-a", 2)
    rest, end = db.read(erasure.list_page, "tenant-a", 2, cursor)
    assert [row.record_id for row in (*page, *rest)] == list(reversed(made))
    assert end is None
