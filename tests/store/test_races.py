"""Racing writers: tasks of one daemon, and processes on one PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Connection, bindparam, update

from bcmetal.decisions import Ended, EndStatus, Micros, Run
from bcmetal.errors import Lost, Stale
from bcmetal.states import State, Verb
from bcmetal.store import claims, nodes, operations
from bcmetal.store.tables import nodes as nodes_table
from bcmetal.store.values import Claim, Fact, StepRun
from store.samples import CAPS, NOW, STEPS, Db, a_move, a_node, a_run, an_audit, an_event, an_operation, start

TASKS = 64
Save = Callable[[Connection, Claim, str, Run | Ended, StepRun | None, Sequence[Fact], Micros, bool], Claim]


def test_of_64_verbs_on_one_node_exactly_one_wins(db: Db) -> None:
    node_id = a_node(db)

    async def one() -> str | None:
        try:
            return await db.store.write(
                operations.start,
                node_id,
                1,
                a_move(),
                an_operation(),
                an_audit(node_id),
                [an_event(node_id)],
                NOW,
            )
        except Lost:
            return None

    async def all_at_once() -> list[str | None]:
        return list(await asyncio.gather(*(one() for _ in range(TASKS))))

    [winner] = [found for found in db.run(all_at_once()) if found is not None]
    assert db.rows("SELECT operation_id, generation FROM nodes") == [(winner, 2)]
    for table in ("operations", "audit", "outbox"):
        assert db.rows(f"SELECT count(*) FROM {table}") == [(1,)]  # noqa: S608  three names of ours


def test_64_tasks_claim_no_node_twice(db: Db) -> None:
    made = [a_node(db) for _ in range(40)]
    for node_id in made:
        start(db, node_id)

    async def one(number: int) -> list[Claim]:
        return await db.store.write(claims.claim_due, f"daemon-{number}", NOW, 3, CAPS, 60)

    async def all_at_once() -> list[Claim]:
        found = await asyncio.gather(*(one(number) for number in range(TASKS)))
        return [claim for some in found for claim in some]

    found = db.run(all_at_once())
    assert sorted(claim.node_id for claim in found) == sorted(made)
    assert {claim.epoch for claim in found} == {1}


CLAIMER = """
import asyncio, json, sys
from bcmetal.states import WORKFLOWS, Verb
from bcmetal.store import claims
from bcmetal.store.engine import open_store

async def main(url, owner, now, cap):
    store = open_store(url)
    caps = {verb: cap for verb in WORKFLOWS}
    print("ready", flush=True)
    sys.stdin.readline()
    found = []

    async def one():
        empty = 0
        while empty < 3:
            some = await store.write(claims.claim_due, owner, now, 2, caps, 600)
            empty = 0 if some else empty + 1
            found.extend(claim.node_id for claim in some)

    await asyncio.gather(*(one() for _ in range(4)))
    await store.close()
    print(json.dumps(found), flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


def two_processes_claim(url: str, cap: int) -> list[list[str]]:
    both = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMER, url, f"daemon-{number}", str(NOW), str(cap)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2)
    ]
    found: list[list[str]] = []
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        found.append(json.loads(out))
    return found


@pytest.mark.postgresql
def test_two_processes_claim_no_node_twice(postgres_url: str) -> None:
    with Db(postgres_url) as db:
        made = [a_node(db) for _ in range(120)]
        for node_id in made:
            start(db, node_id)
        one, two = two_processes_claim(postgres_url, 1000)
        assert not set(one) & set(two)
        assert sorted([*one, *two]) == sorted(made)
        assert db.rows("SELECT DISTINCT claim_epoch FROM nodes") == [(1,)]


@pytest.mark.postgresql
def test_two_processes_keep_a_cap_exactly(postgres_url: str) -> None:
    with Db(postgres_url) as db:
        for _ in range(40):
            start(db, a_node(db))
        one, two = two_processes_claim(postgres_url, 7)
        assert len(one) + len(two) == 7


# ---------------------------------------------------------------- the epoch


_UNGUARDED = (
    update(nodes_table)
    .where(nodes_table.c.node_id == bindparam("a_node_id"))
    .values(due_at=bindparam("a_due"), desired_power=bindparam("a_power"))
)


def unguarded_save(
    c: Connection,
    claim: Claim,
    operation_id: str,
    run: Run | Ended,
    step_run: StepRun | None,
    facts: Sequence[Fact],
    now: Micros,
    release: bool,
) -> Claim:
    """What `claims.save` would be with the epoch check taken out: the same row, found by its id alone."""
    assert isinstance(run, Run)
    if not c.execute(_UNGUARDED, {"a_node_id": claim.node_id, "a_due": run.wake_at, "a_power": None}).rowcount:
        raise Stale
    nodes.apply(c, claim.node_id, facts, now)
    return claim


def double_writes(db: Db, save: Save, rounds: int) -> int:
    """A daemon whose lease lapsed and the one that took over both settle the same step; how often both were told yes."""
    operation_of = {}
    for _ in range(rounds):
        node_id = a_node(db)
        operation_of[node_id] = start(db, node_id)
    lapsed = db.write(claims.claim_due, "daemon-1", NOW, rounds, CAPS, -1)
    taken = db.write(claims.claim_due, "daemon-2", NOW, rounds, CAPS, 60, takeover_s=-60)
    assert len(lapsed) == len(taken) == rounds

    async def settle(claim: Claim) -> str | None:
        run = a_run(claim.node_id, operation_of[claim.node_id], STEPS[1])
        try:
            await db.store.write(save, claim, run.operation_id, run, None, (), NOW, False)
        except Stale:
            return None
        return claim.node_id

    async def race() -> list[str | None]:
        return list(await asyncio.gather(*(settle(claim) for claim in (*lapsed, *taken))))

    accepted = Counter(node_id for node_id in db.run(race()) if node_id is not None)
    assert set(accepted) == set(operation_of)
    return sum(1 for times in accepted.values() if times > 1)


def test_a_step_is_settled_by_one_daemon_only(db: Db) -> None:
    assert double_writes(db, claims.save, 20) == 0


def test_with_the_epoch_check_taken_out_the_race_is_seen(db: Db) -> None:
    """The test above is worth something: without the check it fails at every node."""
    assert double_writes(db, unguarded_save, 20) == 20


def test_a_verb_and_a_settle_at_once_leave_one_truth(db: Db) -> None:
    """An abort in maintenance ends the operation while its step settles: one of the two is refused, never both taken."""
    for _ in range(10):
        node_id = a_node(db)
        operation_id = start(db, node_id)
        [held] = db.write(claims.claim_due, "daemon-1", NOW, 100, CAPS, 60)
        assert held.node_id == node_id
        done = Ended(operation_id, node_id, Verb.INSPECT, EndStatus.DONE, State.INSPECTED, True)
        aborted = Ended(operation_id, node_id, Verb.INSPECT, EndStatus.ABORTED, State.ENROLLED, False)

        async def both(
            held: Claim = held, operation_id: str = operation_id, done: Ended = done, aborted: Ended = aborted
        ) -> list[object]:
            return list(
                await asyncio.gather(
                    db.store.write(claims.save, held, operation_id, done, None, [], NOW, True),
                    db.store.write(operations.end_now, held.node_id, aborted, an_audit(), [], NOW, None),
                    return_exceptions=True,
                )
            )

        refused = [found for found in db.run(both()) if isinstance(found, Exception)]
        assert len(refused) == 1
        assert isinstance(refused[0], Stale | Lost)
        node = db.read(nodes.get, node_id)
        op = db.read(operations.get, operation_id)
        assert node is not None
        assert op is not None
        assert (node.facts.state, op.status) in ((State.INSPECTED, "done"), (State.ENROLLED, "aborted"))


# ---------------------------------------------------------------- kill -9


WRITER = """
import asyncio, sys
from bcmetal.decisions import Micros
from bcmetal.store import keys, nodes, claims
from bcmetal.store.engine import open_store
sys.path.insert(0, sys.argv[2])
from store.samples import NOW, a_new_node

async def main(url):
    store = open_store(url, exclusive=True)

    async def one(number):
        n = 0
        while True:
            new = a_new_node(f"w{number}-{n}")
            await store.write(nodes.insert, new, NOW)
            print(new.node_id, flush=True)
            n += 1

    await asyncio.gather(*(one(number) for number in range(8)))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("after", [5, 60, 140, 260])
def test_nothing_acknowledged_is_lost_by_a_kill(url: str, after: int) -> None:
    tests = str(Path(__file__).parent.parent)
    acknowledged: list[str] = []
    with subprocess.Popen([sys.executable, "-c", WRITER, url, tests], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):
                acknowledged.append(line.strip())
            if len(acknowledged) == after:
                process.kill()
        process.wait()
    assert len(acknowledged) >= after
    with Db(url, exclusive=True) as db:
        stored = {row[0] for row in db.rows("SELECT node_id FROM nodes")}
        assert set(acknowledged) <= stored
        assert {row[0] for row in db.rows("SELECT node_id FROM node_views")} == stored
        if db.store.kind == "sqlite":
            assert db.rows("PRAGMA integrity_check") == [("ok",)]
        a_node(db)
