"""What the store's tests write: a builder for each thing, saying only what matters."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import Connection, select, text

from bcmetal.decisions import SECOND, Ended, EndStatus, LastError, Micros, Move, Run
from bcmetal.states import WORKFLOWS, SideVerb, State, Verb
from bcmetal.store import claims, nodes, operations, views
from bcmetal.store.engine import OpenStore, open_store
from bcmetal.store.ids import new_id
from bcmetal.store.tables import metadata
from bcmetal.store.values import (
    Claim,
    Fact,
    Idempotency,
    Identifier,
    NewAudit,
    NewBmc,
    NewEvent,
    NewNode,
    NewOperation,
    Sealed,
)
from on_store import OnStore

NOW: Final = Micros(1_900_000_000 * SECOND)
STEPS: Final = ("look", "act", "see")
CAPS: Final[Mapping[Verb, int]] = dict.fromkeys(WORKFLOWS, 1000)


def later(seconds: float) -> Micros:
    return Micros(NOW + int(seconds * SECOND))


def fresh(prefix: str) -> str:
    return new_id(prefix, Micros(time.time_ns() // 1000), os.urandom(10))


class Db(OnStore):
    """A store with its two seams called from plain code."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.loop = asyncio.new_event_loop()
        self.store: OpenStore = open_store(url, **options)

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self.read(lambda c: [tuple(row) for row in c.execute(text(statement), values)])

    def sql(self, statement: str, **values: Any) -> None:
        def execute(c: Connection) -> None:
            c.execute(text(statement), values)

        self.write(execute)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.store.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()


# ---------------------------------------------------------------- what goes in


def a_bmc(host: str | None = None, **over: Any) -> NewBmc:
    bmc = NewBmc("bmc", "redfish", host or fresh("bm"), 443, "system", "")
    return replace(bmc, **over)


def a_new_node(name: str | None = None, bmc: NewBmc | None = None, **over: Any) -> NewNode:
    node_id = fresh("nd")
    new = NewNode(node_id, "tenant-a", "fra1", "gpu", name or node_id.replace("_", "-"), fresh("bm"), bmc or a_bmc())
    return replace(new, **over)


def a_node(db: Db, name: str | None = None, now: Micros = NOW, **over: Any) -> str:
    new = a_new_node(name, **over)
    db.write(nodes.insert, new, now)
    return new.node_id


def an_operation(verb: Verb | SideVerb | str = Verb.INSPECT, **over: Any) -> NewOperation:
    kind = "workflow" if isinstance(verb, Verb) and verb in WORKFLOWS else "side"
    first = STEPS[0] if kind == "workflow" else None
    op = NewOperation(fresh("op"), kind, verb, "key:anna", {"deep": False}, first, 900 * SECOND)
    return replace(op, steps=STEPS if first else (), **over)


def an_audit(node_id: str | None = None, **over: Any) -> NewAudit:
    entry = NewAudit(
        fresh("au"), "key:anna", "tenant-a", "192.0.2.1", "compute:metal:operate", "node", "allowed", "trace", node_id
    )
    return replace(entry, **over)


def an_event(node_id: str | None, type_: str = "metal.state.changed", **data: Any) -> NewEvent:
    return NewEvent(fresh("ev"), node_id, "tenant-a", "gpu", "fra1", type_, data)


def a_move(verb: Verb = Verb.INSPECT, origin: State = State.ENROLLED) -> Move:
    row = WORKFLOWS[verb]
    return Move(verb, origin, row.during, row.success or origin, row.failure, row.budget_s)


def a_key(key: str = "once", **over: Any) -> Idempotency:
    return replace(Idempotency("tenant-a", "key:anna", key, "metal.inspect", "digest"), **over)


def a_sealed(
    owner_kind: str, owner_id: str, field: str = "password", slot: str = "current", blob: bytes = b""
) -> Sealed:
    return Sealed(owner_kind, owner_id, field, slot, "key-1", os.urandom(12), blob or os.urandom(32))


# ---------------------------------------------------------------- what is done with it


def everything(db: Db) -> dict[str, list[tuple[Any, ...]]]:
    """Each table's rows, as they are now."""

    def dump(c: Connection) -> dict[str, list[tuple[Any, ...]]]:
        return {
            table.name: sorted((tuple(row) for row in c.execute(select(table))), key=repr)
            for table in metadata.sorted_tables
        }

    return db.read(dump)


def start(
    db: Db,
    node_id: str,
    verb: Verb = Verb.INSPECT,
    origin: State = State.ENROLLED,
    now: Micros = NOW,
    op: NewOperation | None = None,
    generation: int | None = None,
    idempotency: Idempotency | None = None,
) -> str:
    return db.write(
        operations.start,
        node_id,
        generation,
        a_move(verb, origin),
        op or an_operation(verb),
        an_audit(node_id),
        [an_event(node_id, to=WORKFLOWS[verb].during.value)],
        now,
        idempotency,
    )


def queue(db: Db, node_id: str, verb: SideVerb = SideVerb.REFRESH, now: Micros = NOW, **over: Any) -> str:
    return db.write(operations.queue_side, node_id, an_operation(verb, **over), an_audit(node_id), [], now)


def claim(db: Db, owner: str = "daemon-1", now: Micros = NOW, limit: int = 100, **options: Any) -> list[Claim]:
    caps = options.pop("caps", CAPS)
    return db.write(claims.claim_due, owner, now, limit, caps, **options)


def a_run(node_id: str, operation_id: str, step: str = STEPS[1], **over: Any) -> Run:
    run = Run(
        operation_id, node_id, Verb.INSPECT, State.ENROLLED, STEPS, ("undo",), step, 900 * SECOND, NOW, wake_at=NOW
    )
    return replace(run, **over)


def an_end(
    node_id: str,
    operation_id: str,
    state: State = State.INSPECTED,
    status: EndStatus = EndStatus.DONE,
    verb: Verb = Verb.INSPECT,
    touched: bool = True,
) -> Ended:
    error = None if status is EndStatus.DONE else LastError("bmc-unreachable", "no answer", STEPS[0], NOW)
    return Ended(operation_id, node_id, verb, status, state, touched, error)


def under_way(db: Db, verb: Verb = Verb.INSPECT, origin: State = State.ENROLLED, **over: Any) -> tuple[str, str, Claim]:
    """A node whose workflow was claimed: the node, the operation, the claim."""
    node_id = a_node(db, **over)
    if origin is not State.ENROLLED:
        db.sql("UPDATE nodes SET state = :state WHERE node_id = :node_id", state=origin.value, node_id=node_id)
    operation_id = start(db, node_id, verb, origin)
    [held] = [one for one in claim(db) if one.node_id == node_id]
    return node_id, operation_id, held


def save(
    db: Db, held: Claim, operation_id: str, run: Run | Ended, facts: Sequence[Fact] = (), now: Micros = NOW
) -> Claim:
    return db.write(claims.save, held, operation_id, run, None, facts, now)


def facts_of(db: Db, node_id: str) -> Any:
    row = db.read(nodes.get, node_id)
    assert row is not None
    return row


def state_of(db: Db, node_id: str) -> State:
    state: State = facts_of(db, node_id).facts.state
    return state


def bmc_of(db: Db, node_id: str) -> Any:
    return facts_of(db, node_id).bmc


def operation_of(db: Db, operation_id: str) -> Any:
    row = db.read(operations.get, operation_id)
    assert row is not None
    return row


def doc_of(db: Db, node_id: str) -> dict[str, Any]:
    [view] = db.read(views.read, [node_id])
    return view.doc


def uuid(value: str, usable: bool = True) -> Identifier:
    return Identifier("uuid", value, value.upper(), "bmc", usable)


def mac(value: str) -> Identifier:
    return Identifier("mac", value, value, "bmc", True)


def serial(value: str, source: str = "bmc", usable: bool = True) -> Identifier:
    return Identifier("serial", value.casefold(), value, source, usable)


def know(db: Db, node_id: str, *facts: Fact, now: Micros = NOW) -> None:
    db.write(nodes.apply, node_id, facts, now)
