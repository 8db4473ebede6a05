"""Daemons that share a database: who lives, who was first, and what that makes of the caps."""

from __future__ import annotations

from bcmetal.decisions import SECOND
from bcmetal.states import Verb
from bcmetal.store import daemons
from store.samples import CAPS, Db, a_node, claim, start


def beat(db: Db, daemon_id: str, digest: str = "d1") -> dict[str, bool]:
    """The other live daemons, each with whether it was first."""
    return {one.daemon_id: one.first for one in db.write(daemons.beat, daemon_id, 1, digest)}


def silent_for(db: Db, daemon_id: str, seconds: int) -> None:
    db.sql(
        "UPDATE daemons SET heartbeat_at = heartbeat_at - :us WHERE daemon_id = :id", us=seconds * SECOND, id=daemon_id
    )


def test_daemons_know_of_each_other_while_their_hearts_beat(db: Db) -> None:
    assert beat(db, "one") == {}
    assert beat(db, "two") == {"one": True}
    assert beat(db, "one") == {"two": False}
    silent_for(db, "two", daemons.STALE_S - 10)
    assert beat(db, "one") == {"two": False}
    silent_for(db, "two", 11)
    assert beat(db, "one") == {}
    assert beat(db, "two") == {"one": True}
    db.write(daemons.leave, "one")
    assert beat(db, "two") == {}


def test_who_takes_another_configuration_is_the_later_one(db: Db) -> None:
    beat(db, "one")
    beat(db, "two")
    assert beat(db, "one", "d2") == {"two": True}
    assert beat(db, "one", "d2") == {"two": True}
    assert beat(db, "two") == {"one": False}


def test_a_daemon_that_is_long_gone_is_forgotten(db: Db) -> None:
    beat(db, "one")
    silent_for(db, "one", 7200)
    beat(db, "two")
    assert db.rows("SELECT daemon_id FROM daemons") == [("two",)]
    db.write(daemons.forget_all)
    assert db.rows("SELECT daemon_id FROM daemons") == []


def test_a_cap_counts_for_each_live_daemon_that_agrees(db: Db) -> None:
    caps = {**CAPS, Verb.INSPECT: 2}
    for _ in range(9):
        start(db, a_node(db))
    assert len(claim(db, "one", caps=caps)) == 2  # before its first heartbeat it counts as one
    beat(db, "one")
    beat(db, "two")
    beat(db, "three", "another configuration")
    beat(db, "four")
    silent_for(db, "four", daemons.STALE_S + 1)
    assert len(claim(db, "one", caps=caps)) == 2
    assert claim(db, "two", caps=caps) == []
    db.write(daemons.leave, "two")
    assert claim(db, "one", caps=caps) == []
