"""A drive that more than one live node reports: known to all of them to be shared, until only one does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bcmetal.states import State
from bcmetal.store import drives, nodes
from bcmetal.store.values import DriveSeen, MarkDrives, SetDrives
from store.samples import Db, a_node, an_end, know, later, save, under_way

DISK = DriveSeen("S1", "M", None, 10)


def shared_of(db: Db, node_id: str) -> list[tuple[str, bool]]:
    return [(row.serial, row.shared) for row in db.read(drives.of_node, node_id)]


def test_a_wwn_that_two_nodes_report_is_shared_storage(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    know(db, one, SetDrives((DriveSeen("S1", "M", "w1", 10),)))
    know(db, two, SetDrives((DriveSeen("S2", "M", "w1", 10), DriveSeen("S3", "M", "w2", 10))))
    assert [row.shared for row in db.read(drives.of_node, two)] == [True, False]
    assert [row.shared for row in db.read(drives.of_node, one)] == [True]  # also for the one that was looked at first


def test_a_drive_that_two_live_nodes_report_is_shared_and_known_to_both(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    know(db, one, SetDrives((DISK,)))
    know(db, two, SetDrives((replace(DISK, serial=" s1"),)), now=later(1))
    assert shared_of(db, one) == shared_of(db, two) == [(" s1", True)]
    assert db.read(drives.seen_elsewhere, one, [DISK]) == ("S1",)
    assert db.read(drives.seen_elsewhere, two, [DISK]) == ("S1",)


def test_the_same_serial_of_another_model_is_another_drive(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    know(db, one, SetDrives((DISK,)))
    know(db, two, SetDrives((replace(DISK, model="N"),)))
    assert shared_of(db, one) == shared_of(db, two) == [("S1", False)]
    assert db.read(drives.seen_elsewhere, two, [DISK]) == ("S1",)  # were it shown there


@pytest.mark.parametrize("zeros", [None, "", "0x0000000000000000"])
def test_a_wwn_that_says_nothing_makes_no_drive_shared(db: Db, zeros: str | None) -> None:
    one, two = a_node(db), a_node(db)
    know(db, one, SetDrives((replace(DISK, wwn=zeros),)))
    know(db, two, SetDrives((DriveSeen("S2", "M", zeros, 10),)))
    assert shared_of(db, one) == [("S1", False)]
    assert db.read(drives.seen_elsewhere, one, [replace(DISK, wwn=zeros)]) == ()


def test_a_wwn_is_the_same_however_a_bmc_spells_it(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    know(db, one, SetDrives((replace(DISK, wwn="0x50025388A0B1C2D3"),)))
    know(db, two, SetDrives((DriveSeen("S2", "N", "naa.50:02:53:88:a0:b1:c2:d3", 10),)))
    assert shared_of(db, one) == [("S1", True)]


def test_a_moved_drive_is_shared_until_its_old_machine_was_looked_at_again(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    know(db, one, SetDrives((DISK,)))
    know(db, two, SetDrives((DISK,)), now=later(1))
    know(db, one, SetDrives(()), now=later(2))
    assert shared_of(db, one) == []
    assert shared_of(db, two) == [("S1", False)]
    assert db.read(drives.seen_elsewhere, two, [DISK]) == ()


def test_a_drive_stays_with_the_node_that_still_sees_it(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    know(db, one, SetDrives((DISK,)))
    know(db, two, SetDrives((DISK,)), now=later(1))
    know(db, two, SetDrives(()), now=later(2))
    assert shared_of(db, two) == []
    assert shared_of(db, one) == [("S1", False)]


@pytest.mark.parametrize("goes", ["retired", "removed"])
def test_a_node_that_goes_shares_its_drives_no_more(db: Db, goes: str) -> None:
    node_id, operation_id, held = under_way(db)
    other = a_node(db)
    know(db, node_id, SetDrives((DISK,)))
    know(db, other, SetDrives((DISK,)), now=later(1))
    assert shared_of(db, other) == [("S1", True)]
    save(db, held, operation_id, an_end(node_id, operation_id, State.RETIRED))
    if goes == "removed":
        db.write(nodes.tombstone_and_delete, node_id, "removed", later(2))
    assert shared_of(db, other) == [("S1", False)]
    assert db.read(drives.seen_elsewhere, other, [DISK]) == ()


def test_a_shared_drive_of_another_tenant_is_known_to_both_to_be_so(db: Db) -> None:
    one, two = a_node(db), a_node(db, tenant_id="tenant-b", pool_id="cpu")
    know(db, two, SetDrives((DISK,)), MarkDrives(("S1",), True, "tenant-b"))
    know(db, one, SetDrives((DISK,)), now=later(1))
    know(db, two, SetDrives((DISK,)), now=later(2))  # the row is now with the other
    seen = db.read(nodes.get, one)
    assert seen is not None
    assert seen.facts.held_by_another_tenant
