"""Agents: whoever said hello with a boot token, and the key that proves each of its calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, case, func, insert, or_, select, update

from bcmetal.decisions import Micros
from bcmetal.store import jsontext
from bcmetal.store.agent_tables import agents, boot_tokens
from bcmetal.store.tables import nodes, operations
from bcmetal.store.values import Json

a = agents.c
n = nodes.c
o = operations.c


@dataclass(frozen=True, slots=True)
class AgentRow:
    """`identifiers`: as the machine said them, in the names of the wire. `token_n`: the number of the boot token that it came with.

    `sequence`: of its last call. `tpm_proven`: the TPM that is on record for the machine vouched for the key.
    """

    session_id: str
    operation_id: str
    token_n: int
    node_id: str
    public_key: bytes
    identifiers: Json
    version: str
    address: str
    hello_at: Micros
    seen_at: Micros
    sequence: int
    ended_at: Micros | None
    tpm_proven: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """An agent, and what became of its operation. `stop`: nobody waits for its task any more."""

    agent: AgentRow
    over: bool
    stop: bool
    in_clear: bool  # its boot token crossed a wire on which others may read


_ADD: Final = insert(agents)
_newest: Final = (
    select(func.max(boot_tokens.c.n)).where(boot_tokens.c.operation_id == a.operation_id).correlate(agents)
).scalar_subquery()
_CURRENT: Final = select(agents).where(
    a.operation_id == bindparam("operation_id"), a.token_n == _newest, a.ended_at.is_(None)
)
_OF_TOKEN: Final = select(agents).where(a.operation_id == bindparam("operation_id"), a.token_n == bindparam("token_n"))
_over = or_(
    a.ended_at.is_not(None),
    n.node_id.is_(None),
    o.operation_id.is_(None),
    o.ended_at.is_not(None),
    and_(o.kind == "workflow", n.operation_id.is_distinct_from(o.operation_id)),
)
_SESSION: Final = (
    select(
        agents,
        _over.label("over"),
        and_(o.abort_at.is_not(None), ~o.cleaning).label("stop"),
        func.coalesce(boot_tokens.c.in_clear, True).label("in_clear"),
    )
    .select_from(
        agents.outerjoin(operations, o.operation_id == a.operation_id)
        .outerjoin(nodes, n.node_id == a.node_id)
        .outerjoin(boot_tokens, and_(boot_tokens.c.operation_id == a.operation_id, boot_tokens.c.n == a.token_n))
    )
    .where(a.session_id == bindparam("session_id"))
)
_CALLS: Final = (
    update(agents)
    .where(a.session_id == bindparam("a_session_id"), a.sequence < bindparam("a_sequence"), a.ended_at.is_(None))
    .values(sequence=bindparam("a_sequence"), seen_at=bindparam("a_now"), address=bindparam("a_address"))
)
_LAST: Final = select(a.sequence).where(a.session_id == bindparam("session_id")).with_for_update()
_WAKE_NODE: Final = (
    update(nodes)
    .where(n.node_id == bindparam("a_node_id"), n.operation_id == bindparam("a_operation_id"))
    .values(due_at=case((n.due_at > bindparam("a_now"), bindparam("a_now")), else_=n.due_at))
)
_WAKE: Final = (
    update(operations)
    .where(
        o.operation_id == bindparam("a_operation_id"),
        o.status == "running",
        o.ended_at.is_(None),
        o.wake_at > bindparam("a_now"),
    )
    .values(wake_at=bindparam("a_now"))
)


def add(c: Connection, agent: AgentRow) -> None:
    """A session begins; its token has none yet."""
    c.execute(
        _ADD,
        {
            "session_id": agent.session_id,
            "operation_id": agent.operation_id,
            "token_n": agent.token_n,
            "node_id": agent.node_id,
            "public_key": agent.public_key,
            "identifiers": jsontext.dump(dict(agent.identifiers)),
            "version": agent.version,
            "address": agent.address,
            "hello_at": agent.hello_at,
            "seen_at": agent.seen_at,
            "sequence": agent.sequence,
            "tpm_proven": agent.tpm_proven,
        },
    )


def current(c: Connection, operation_id: str) -> AgentRow | None:
    """The agent that came with the operation's newest boot token; None: none has come yet, or its session ended."""
    row = c.execute(_CURRENT, {"operation_id": operation_id}).one_or_none()
    return None if row is None else _row(row)


def of_token(c: Connection, operation_id: str, token_n: int) -> AgentRow | None:
    """The session that a token began, whatever has become of it."""
    row = c.execute(_OF_TOKEN, {"operation_id": operation_id, "token_n": token_n}).one_or_none()
    return None if row is None else _row(row)


def session(c: Connection, session_id: str) -> Session | None:
    row = c.execute(_SESSION, {"session_id": session_id}).one_or_none()
    if row is None:
        return None
    return Session(_row(row), over=bool(row.over), stop=bool(row.stop), in_clear=bool(row.in_clear))


def calls(c: Connection, session_id: str, sequence: int, address: str, now: Micros) -> bool:
    """Note a call that was proven. False: one of that number, or a later one, came before it; or the session ended.

    It holds the agent's row until the transaction's end: calls of one agent write one after the other.
    """
    asked = {"a_session_id": session_id, "a_sequence": sequence, "a_address": address, "a_now": now}
    return bool(c.execute(_CALLS, asked).rowcount)


def is_last_call(c: Connection, session_id: str, sequence: int) -> bool:
    """Whether no later call came; none is counted before the transaction's end, for it holds the agent's row."""
    return c.execute(_LAST, {"session_id": session_id}).scalar_one_or_none() == sequence


def wake(c: Connection, node_id: str, operation_id: str, now: Micros) -> None:
    """What the operation waits for may be there: it is due now. The engine is the caller's to tell, after the commit."""
    c.execute(_WAKE_NODE, {"a_node_id": node_id, "a_operation_id": operation_id, "a_now": now})
    c.execute(_WAKE, {"a_operation_id": operation_id, "a_now": now})


def _row(row: Row[Any]) -> AgentRow:
    return AgentRow(
        session_id=row.session_id,
        operation_id=row.operation_id,
        token_n=row.token_n,
        node_id=row.node_id,
        public_key=bytes(row.public_key),
        identifiers=jsontext.load(row.identifiers),
        version=row.version,
        address=row.address,
        hello_at=Micros(row.hello_at),
        seen_at=Micros(row.seen_at),
        sequence=row.sequence,
        ended_at=row.ended_at,
        tpm_proven=row.tpm_proven,
    )
