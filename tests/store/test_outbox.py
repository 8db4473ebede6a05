"""The outbox: once numbered, in order for each node, bounded."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from bcmetal.store import outbox
from bcmetal.store.outbox import EventRow
from bcmetal.store.values import NewEvent
from store.samples import NOW, Db, an_event, later


def tell(db: Db, *events: NewEvent, at: float = 0) -> None:
    db.write(outbox.add, events, later(at))


def test_events_are_numbered_once_in_the_order_of_their_writing(db: Db) -> None:
    first, second, third = an_event("nd_1", n=1), an_event("nd_2", n=2), an_event("nd_1", n=3)
    tell(db, first, second)
    assert db.read(outbox.since, 0, 10) == []
    delivered = db.write(outbox.deliver, 10)
    assert [(row.position, row.event_id) for row in delivered] == [(1, first.event_id), (2, second.event_id)]
    assert db.write(outbox.deliver, 10) == []
    tell(db, third)
    assert [(row.position, row.data) for row in db.write(outbox.deliver, 10)] == [(3, {"n": 3})]
    assert [row.event_id for row in db.read(outbox.since, 1, 10)] == [second.event_id, third.event_id]
    assert db.read(outbox.since, 3, 10) == []


def test_a_batch_is_no_larger_than_asked(db: Db) -> None:
    tell(db, *(an_event("nd_1", n=n) for n in range(5)))
    assert [row.position for row in db.write(outbox.deliver, 3)] == [1, 2, 3]
    assert [row.position for row in db.write(outbox.deliver, 3)] == [4, 5]
    assert [row.position for row in db.read(outbox.since, 0, 2)] == [1, 2]


def test_racing_writers_and_deliverers_keep_each_nodes_order_and_give_no_number_twice(db: Db) -> None:
    delivered: list[EventRow] = []

    async def write(node: str) -> None:
        for n in range(15):
            await db.store.write(outbox.add, [an_event(node, n=n)], NOW)

    async def deliver() -> None:
        for _ in range(25):
            delivered.extend(await db.store.write(outbox.deliver, 4))

    async def race() -> None:
        await asyncio.gather(*(write(f"nd_{number}") for number in range(4)), deliver(), deliver())
        while batch := await db.store.write(outbox.deliver, 100):
            delivered.extend(batch)

    db.run(race())
    assert sorted(row.position for row in delivered) == list(range(1, 61))
    of_node = defaultdict(list)
    for row in sorted(delivered, key=lambda one: one.position):
        of_node[row.node_id].append(row.data["n"])
    assert list(of_node.values()) == [list(range(15))] * 4
    assert db.read(outbox.since, 0, 100) == sorted(delivered, key=lambda one: one.position)


def test_the_feed_is_bounded_and_a_gap_can_be_seen(db: Db) -> None:
    assert db.read(outbox.bounds) == (1, 0)
    tell(db, *(an_event("nd_1", n=n) for n in range(10)))
    assert db.write(outbox.prune, later(100)) == 0  # nothing was delivered yet
    db.write(outbox.deliver, 100)
    tell(db, an_event("nd_1", n=10), at=50)
    assert db.write(outbox.prune, NOW, 4) == 6
    assert db.read(outbox.bounds) == (7, 10)
    assert db.read(outbox.since, 2, 1)[0].position == 7
    assert db.write(outbox.prune, later(1)) == 4
    assert db.read(outbox.bounds) == (11, 10)
    assert [row.position for row in db.write(outbox.deliver, 100)] == [11]  # numbers are never given again


def test_an_event_that_the_store_finds_has_an_id_of_what_it_says() -> None:
    one = outbox.derived_id(NOW, "nd_1", "metal.condition.changed", "x")
    assert one == outbox.derived_id(NOW, "nd_1", "metal.condition.changed", "x")
    assert one != outbox.derived_id(NOW, "nd_2", "metal.condition.changed", "x")
    assert one.startswith("ev_")
