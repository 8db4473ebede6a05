"""Steps about the node as a member of its pool: ended before its disks are touched, awaited after a deploy."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from bcmetal.decisions import Again, Done, Failed, Micros
from bcmetal.errors import Stale
from bcmetal.join.leaving import leave, withdraw_tokens
from bcmetal.states import System
from bcmetal.store import claims, join_tokens, members
from bcmetal.store.values import SetNode
from bcmetal.workflows.machine import Machine, Outcome

JOIN_POLL_S: Final = 5.0
JOIN_PATIENCE_S: Final = 2400.0
_ENDS_AS: Final = {"retire": "retired"}


async def end_the_membership(m: Machine) -> Outcome:
    """Revoke the node's certificates and the join tokens that were minted for it: whoever has its disk's key is nobody from now on."""
    node_id = m.node.node_id
    if not await m.doors.store.read(has_any, node_id, m.node.pool_id):
        return Done()
    await m.ready_to_act()
    verb = m.operation.verb
    await m.doors.store.write(end, node_id, m.node.pool_id, m.node.site_id, _ENDS_AS.get(verb, "released"), verb, m.now)
    return Done()


def has_any(c: Connection, node_id: str, pool_id: str) -> bool:
    """Whether there is something to end. A join that is under way is through by then; the next one sees the verb."""
    members.lock_pool(c, pool_id)
    member = members.get(c, node_id)
    joined = member is not None and member.state in (members.LIVE, "locked")
    return joined or bool(join_tokens.unused_of_node(c, node_id))


def end(c: Connection, node_id: str, pool_id: str, site_id: str, state: str, verb: str, now: Micros) -> None:
    members.lock_pool(c, pool_id)
    leave(c, node_id, state, f"{verb} began", now)
    withdraw_tokens(c, node_id, site_id, now)


async def put_the_old_machine_out(m: Machine, reason: str) -> None:
    """Revoke the certificates, the unused tokens and the TPM on record of a machine that is no longer the one behind this node."""
    holds = await m.doors.store.read(claims.holds, m.lease.claim, m.operation.operation_id)
    if not holds.ours:
        raise Stale
    rotate = await m.doors.store.write(_put_out, m.node.node_id, m.node.pool_id, m.node.site_id, reason, m.now)
    if rotate is not None:
        m.tell("security.node.evicted", by=m.operation.by, reason=reason, rotate=rotate, tokens=[])


def _put_out(c: Connection, node_id: str, pool_id: str, site_id: str, reason: str, now: Micros) -> list[str] | None:
    """The secrets that it was given; None: it was no member."""
    members.lock_pool(c, pool_id)
    left = leave(c, node_id, "released", reason, now)
    withdraw_tokens(c, node_id, site_id, now)
    members.forget_tpm(c, node_id)
    return None if left is None else [name for name, _, _ in members.secrets_of(c, node_id)]


async def wait_for_the_join(m: Machine) -> Outcome:
    """Where the pool's sign of life is its agent: the machine joined, for this deploy."""
    if m.pool.sign_of_life != "agent":
        return Done()
    member = await m.doors.store.read(members.get, m.node.node_id)
    if member is not None and member.state == members.LIVE and member.last_join_at >= m.operation.created_at:
        m.note(SetNode({"system": System.PRESENT}))
        m.remember(proof="agent")
        return Done()
    waited = m.since_s("join_awaited_at")
    if waited is None:
        m.remember(join_awaited_at=m.now)
    elif waited > JOIN_PATIENCE_S:
        return Failed("no-sign-of-life", f"started {waited:.0f} s ago, and its agent did not join the pool")
    return Again(
        "waits for its agent to join the pool; `bcmetal request list` shows a join that needs a person", JOIN_POLL_S
    )
