"""A serial that several live nodes report warns each of them, until only one does."""

from __future__ import annotations

import json

import pytest

from bcmetal.states import State
from bcmetal.store import conditions, nodes
from bcmetal.store.values import Identifier, SetCondition, SetIdentifiers
from store.samples import Db, a_node, an_end, know, later, save, under_way

OK = SetCondition("identity", "ok", "info", "", "")
CHANGED = SetCondition("identity", "error", "error", "identity-changed", "another machine")


def named(value: str, source: str = "bmc", usable: bool = True) -> SetIdentifiers:
    return SetIdentifiers(source, (Identifier("serial", value.casefold(), value, source, usable),))


def identity_of(db: Db, node_id: str) -> list[tuple[str, str]]:
    return [(one.status, one.reason) for one in db.read(conditions.list, node_id) if one.type == "identity"]


def shown(db: Db, node_id: str) -> list[str]:
    [(doc,)] = db.rows("SELECT doc FROM node_views WHERE node_id = :n", n=node_id)
    return [one["reason"] for one in json.loads(doc)["conditions"]]


WARNED = [("warning", "shared-serial")]


def test_both_nodes_are_warned_and_both_views_say_so(db: Db) -> None:
    one, two = a_node(db), a_node(db, tenant_id="tenant-b", pool_id="cpu")
    know(db, one, named("S1"))
    assert identity_of(db, one) == []
    know(db, two, OK, named("s1", "agent"))
    for node_id in (one, two):
        assert identity_of(db, node_id) == WARNED
        assert shown(db, node_id) == ["shared-serial"]
        [found] = db.read(conditions.list, node_id)
        assert one not in found.message
        assert two not in found.message


def test_each_look_tells_it_only_once(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    know(db, one, named("S1"))
    know(db, two, named("S1"))
    told = db.rows("SELECT count(*) FROM outbox WHERE type = 'metal.condition.changed'")
    assert told == [(2,)]
    know(db, one, OK, named("S1"), now=later(60))
    assert identity_of(db, one) == WARNED
    assert db.rows("SELECT count(*) FROM outbox WHERE type = 'metal.condition.changed'") == told


def test_it_is_over_once_one_of_them_reports_another_serial(db: Db) -> None:
    one, two, three = a_node(db), a_node(db), a_node(db)
    for node_id in (one, two, three):
        know(db, node_id, named("S1"))
    know(db, three, named("S3"))
    assert [identity_of(db, node_id) for node_id in (one, two, three)] == [WARNED, WARNED, []]
    know(db, two, OK, named("S2"))
    assert [identity_of(db, node_id) for node_id in (one, two, three)] == [[], [], []]
    assert shown(db, one) == []


def test_placeholders_are_shared_by_nobody(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    for node_id in (one, two):
        know(db, node_id, named("Default string", usable=False))
        assert identity_of(db, node_id) == []


def test_an_identity_that_changed_stays_an_error(db: Db) -> None:
    one, two = a_node(db), a_node(db)
    know(db, one, named("S1"), CHANGED)
    know(db, two, named("S1"))
    assert identity_of(db, one) == [("error", "identity-changed")]
    assert identity_of(db, two) == WARNED
    know(db, one, OK)
    assert identity_of(db, one) == WARNED


@pytest.mark.parametrize("goes", ["retired", "removed"])
def test_a_node_that_goes_leaves_the_other_one_without_the_warning(db: Db, goes: str) -> None:
    node_id, operation_id, held = under_way(db)
    other = a_node(db)
    know(db, node_id, named("S1"))
    know(db, other, named("S1"))
    if goes == "removed":
        db.write(nodes.tombstone_and_delete, node_id, "removed", later(2))
    else:
        save(db, held, operation_id, an_end(node_id, operation_id, State.RETIRED), now=later(2))
        assert identity_of(db, node_id) == []
    assert identity_of(db, other) == []
    assert shown(db, other) == []
