"""Claims: leases with epochs, caps, the slow lane, and the work that a claim loads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bcmetal.decisions import SECOND, Micros
from bcmetal.states import Verb
from bcmetal.store import claims, freezes, nodes, operations, sealed
from bcmetal.store.values import (
    Claim,
    SetBmc,
    SetSighting,
)
from store.samples import (
    CAPS,
    NOW,
    STEPS,
    Db,
    a_node,
    a_run,
    a_sealed,
    an_audit,
    an_end,
    an_operation,
    claim,
    facts_of,
    know,
    later,
    queue,
    save,
    start,
    under_way,
)

# ---------------------------------------------------------------- claiming


def test_nothing_is_due_at_a_node_at_rest(db: Db) -> None:
    a_node(db)
    assert claim(db) == []
    assert db.read(claims.next_due, NOW) is None


def test_the_oldest_due_is_claimed_first_and_no_more_than_asked(db: Db) -> None:
    young, old, middle = a_node(db), a_node(db), a_node(db)
    start(db, young, now=later(3))
    start(db, old, now=later(1))
    start(db, middle, now=later(2))
    assert [one.node_id for one in claim(db, now=later(3), limit=2)] == [old, middle]
    assert [one.node_id for one in claim(db, now=later(3))] == [young]


def test_what_is_not_due_yet_is_not_claimed(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    save(db, held, operation_id, a_run(node_id, operation_id, wake_at=later(60)))
    db.write(claims.release, held)
    assert claim(db, now=later(59)) == []
    assert db.read(claims.next_due, later(1)) == later(60)
    assert [one.node_id for one in claim(db, now=later(60))] == [node_id]


def test_a_live_claim_is_nobody_elses_and_each_claim_has_a_new_epoch(db: Db) -> None:
    node_id, _, held = under_way(db)
    assert claim(db, "daemon-2") == []
    assert claim(db, "daemon-1") == []
    db.write(claims.release, held)
    [again] = claim(db, "daemon-2")
    assert (again.node_id, again.epoch) == (node_id, held.epoch + 1)


def test_another_daemons_lapsed_claim_is_taken_over_only_after_the_wait(tmp_path: Path) -> None:
    clock = [1_000 * SECOND]
    with Db(f"sqlite:///{tmp_path / 'db'}", db_clock=lambda: clock[0]) as db:
        start(db, a_node(db))
        [held] = claim(db, "daemon-1", lease_s=60)
        assert held.until == clock[0] + 60 * SECOND
        clock[0] += 61 * SECOND
        assert claim(db, "daemon-2") == []
        clock[0] += int((claims.TAKEOVER_WAIT_S - 2) * SECOND)
        assert claim(db, "daemon-2") == []
        clock[0] += 2 * SECOND
        [taken] = claim(db, "daemon-2")
        assert taken.epoch == held.epoch + 1


def test_a_lapsed_claim_of_ones_own_needs_no_wait(db: Db) -> None:
    start(db, a_node(db))
    [held] = claim(db, "daemon-1", lease_s=-1)
    assert claim(db, "daemon-2") == []
    [again] = claim(db, "daemon-1")
    assert again.epoch == held.epoch + 1
    assert claim(db, "daemon-2", takeover_s=-120) != []


def test_renewing_keeps_what_is_ours_and_tells_what_is_lost(db: Db) -> None:
    _, _, one = under_way(db)
    _, _, two = under_way(db)
    db.write(claims.release, two)
    [stolen] = claim(db, "daemon-2")
    renewed = db.write(claims.renew, [one, two], 600)
    assert set(renewed) == {one.node_id}
    assert renewed[one.node_id].until > one.until
    assert renewed[one.node_id].epoch == one.epoch
    assert stolen.node_id == two.node_id


@pytest.mark.parametrize("column", ["maintenance", "quiet"])
def test_a_node_in_maintenance_or_quiet_is_left_alone(db: Db, column: str) -> None:
    node_id = a_node(db)
    start(db, node_id)
    db.write(nodes.update, node_id, {column: True}, NOW)
    assert claim(db) == []
    assert db.read(claims.next_due, Micros(NOW - 1)) is None
    db.write(nodes.update, node_id, {column: False}, NOW)
    assert [one.node_id for one in claim(db)] == [node_id]


def test_a_cap_bounds_the_workflows_that_were_begun(db: Db) -> None:
    made = [a_node(db) for _ in range(5)]
    for node_id in made:
        start(db, node_id)
    caps = {**CAPS, Verb.INSPECT: 2}
    first = claim(db, caps=caps)
    assert len(first) == 2
    assert claim(db, caps=caps) == []
    work = db.read(claims.load, first[0], NOW)
    assert work is not None
    assert work.workflow is not None
    save(db, first[0], work.workflow.operation_id, an_end(first[0].node_id, work.workflow.operation_id))
    assert len(claim(db, caps=caps)) == 1


def test_a_begun_workflow_goes_on_whatever_the_cap(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    save(db, held, operation_id, a_run(node_id, operation_id))
    db.write(claims.release, held)
    assert [one.node_id for one in claim(db, caps={**CAPS, Verb.INSPECT: 0})] == [node_id]


def test_a_cap_of_one_verb_holds_up_no_other(db: Db) -> None:
    inspecting, retiring = a_node(db), a_node(db)
    start(db, inspecting)
    start(db, retiring, Verb.RETIRE)
    assert [one.node_id for one in claim(db, caps={**CAPS, Verb.INSPECT: 0})] == [retiring]


def test_a_workflow_that_waits_at_its_cap_is_aborted_at_once(db: Db) -> None:
    node_id = a_node(db)
    start(db, node_id)
    caps = {**CAPS, Verb.INSPECT: 0}
    assert claim(db, caps=caps) == []
    db.write(operations.request_abort, node_id, "key:anna", an_audit(node_id), [], NOW)
    assert [one.node_id for one in claim(db, caps=caps)] == [node_id]


def test_of_bmcs_that_are_away_only_a_few_are_held(db: Db) -> None:
    away = [a_node(db) for _ in range(8)]
    for node_id in away:
        know(db, node_id, SetBmc({"breaker_until_at": later(600), "breaker_since_at": NOW}))
        start(db, node_id)
    healthy = a_node(db)
    start(db, healthy, now=later(1))
    first = claim(db, now=later(1))
    assert len(first) == 5
    assert healthy in {one.node_id for one in first}
    assert claim(db, now=later(1)) == []
    for one in first:
        db.write(claims.release, one, None)
    assert len(claim(db, now=later(1))) == 4


def test_bmcs_that_are_away_do_not_starve_healthy_ones_at_the_cap(db: Db) -> None:
    for _ in range(6):
        node_id = a_node(db)
        know(db, node_id, SetBmc({"breaker_until_at": later(600)}))
        start(db, node_id)
    healthy = a_node(db)
    start(db, healthy, now=later(5))
    found = claim(db, now=later(5), caps={**CAPS, Verb.INSPECT: 1})
    assert [one.node_id for one in found] == [healthy]


def test_a_bmc_whose_time_is_over_is_tried_from_the_slow_lane_until_it_answers(db: Db) -> None:
    nodes_behind = [a_node(db) for _ in range(6)]
    for node_id in nodes_behind:
        know(db, node_id, SetBmc({"breaker_until_at": later(10)}))
        start(db, node_id)
    first = claim(db, now=later(10))
    assert len(first) == 4
    assert claim(db, now=later(10)) == []
    know(db, first[0].node_id, SetBmc({"breaker_until_at": None}))
    assert len(claim(db, now=later(10))) == 1


def test_a_daemon_that_starts_alone_clears_what_was_claimed(db: Db) -> None:
    node_id, _, held = under_way(db)
    assert db.write(claims.clear_own, "other") == 0
    assert db.write(claims.clear_own, "daemon-%") == 0
    assert db.write(claims.clear_own, "daemon-") == 1
    [again] = claim(db, "daemon-9")
    assert (again.node_id, again.epoch) == (node_id, held.epoch + 1)
    assert db.write(claims.clear_own, "") == 1


# ---------------------------------------------------------------- loading


def test_the_work_of_a_claim_is_all_that_the_engine_needs(db: Db) -> None:
    node_id = a_node(db, location_rack="r1")
    node = facts_of(db, node_id)
    db.write(sealed.put, [a_sealed("bmc", node.bmc.bmc_id), a_sealed("bmc", "another")])
    op = an_operation(sealed=())
    operation_id = start(db, node_id, op=replace(op, sealed=(a_sealed("operation", op.operation_id),)))
    side = queue(db, node_id, now=later(1))
    know(db, node_id, SetSighting(power="on", health="ok"))
    db.write(freezes.set, "rack", freezes.rack_scope("fra1", "r1"), "power works", "key:anna", NOW)
    [held] = claim(db, now=later(1))
    work = db.read(claims.load, held, later(1))
    assert work is not None
    assert work.workflow is not None
    assert (work.workflow.operation_id, work.workflow.step) == (operation_id, STEPS[0])
    assert work.workflow.started_at == later(1)
    assert [one.operation_id for one in work.side] == [side]
    assert {one.owner_id for one in work.sealed} == {node.bmc.bmc_id, operation_id}
    assert work.frozen == "power works"
    assert work.sighting is not None
    assert (work.sighting["power"], work.sighting["health"]) == ("on", "ok")
    peeked = db.read(claims.peek, node_id)
    assert peeked is not None
    assert peeked.node == work.node


def test_a_lost_claim_loads_nothing(db: Db) -> None:
    _, _, held = under_way(db)
    db.write(claims.release, held)
    assert db.read(claims.load, held, NOW) is None
    claim(db, "daemon-2")
    assert db.read(claims.load, held, NOW) is None
    assert db.read(claims.peek, "nd_none") is None


def test_the_holds_are_read_as_they_are_now(db: Db) -> None:
    node_id, operation_id, held = under_way(db)
    now = db.read(claims.holds, held, operation_id)
    assert (now.ours, now.abort, now.maintenance, now.quiet, now.frozen) == (True, False, False, False, None)
    db.write(nodes.update, node_id, {"maintenance": True, "quiet": True}, NOW)
    db.write(operations.request_abort, node_id, "key:anna", an_audit(node_id), [], NOW)
    db.write(freezes.set, "pool", "gpu", "audit", "key:anna", NOW)
    now = db.read(claims.holds, held, operation_id)
    assert (now.ours, now.abort, now.maintenance, now.quiet, now.frozen) == (True, True, True, True, "audit")
    assert not db.read(claims.holds, replace(held, epoch=held.epoch + 1), operation_id).ours
    assert not db.read(claims.holds, replace(held, node_id="nd_none"), operation_id).ours


def test_a_claim_is_plain_values(db: Db) -> None:
    _, _, held = under_way(db)
    assert held == Claim(held.node_id, "daemon-1", 1, held.until)
