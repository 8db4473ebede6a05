"""The claim: which nodes are due, taken in one statement.

A node's due time has an index of its own for work under way, and another for workflows that wait for their first claim, by verb. So a
claim looks at as many rows as it may take and no more, however many machines wait at their caps. BMCs that are away are claimed only
from a slow lane, which begins at the BMCs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Select,
    Subquery,
    and_,
    bindparam,
    case,
    func,
    literal,
    null,
    or_,
    select,
    text,
    union_all,
    update,
)

from bcmetal.decisions import SECOND, Micros
from bcmetal.states import WORKFLOWS, Verb
from bcmetal.store import daemons
from bcmetal.store.freezes import covering_node
from bcmetal.store.tables import bmcs, nodes, operations
from bcmetal.store.time import db_now
from bcmetal.store.values import Claim
from bcmetal_drivers.connection import Limits

TAKEOVER_WAIT_S: Final = (
    Limits().total_s + 10
)  # longer than a BMC call that began with its whole deadline left on a lease that then ended
SLOW_LANE: Final = 4
_LOCK: Final = 0x62636D63  # claims that start workflows go one after the other, so that caps are exact

n = nodes.c
# From its first failure on, until it answers: one whose time is over is tried again, and takes no place of a healthy one for that.
_away: Final = bmcs.c.breaker_until_at.is_not(None)
_near: Final = bmcs.c.breaker_until_at.is_(None)
_free: Final = or_(
    n.claim_owner.is_(None),
    n.claim_until < db_now() - case((n.claim_owner == bindparam("owner"), 0), else_=bindparam("takeover_us")),
)
_claimable: Final = and_(n.due_at <= bindparam("now"), ~n.maintenance, ~n.quiet, _free)
_with_bmc: Final = nodes.outerjoin(bmcs, bmcs.c.bmc_id == n.bmc_id)


def _arm(waiting: Select[Any], limit: str) -> Subquery:
    return waiting.order_by(n.due_at, n.node_id).limit(bindparam(limit)).subquery()


def _under_way() -> Subquery:
    return _arm(
        select(n.node_id, n.due_at, null().label("verb"), literal(0).label("away"))
        .select_from(_with_bmc)
        .where(_claimable, n.queued_verb.is_(None), or_(bmcs.c.bmc_id.is_(None), _near)),
        "limit",
    )


def _waiting(verb: Verb) -> Subquery:
    return _arm(
        select(n.node_id, n.due_at, n.queued_verb.label("verb"), literal(0).label("away"))
        .select_from(_with_bmc)
        .where(_claimable, n.queued_verb == text(f"'{verb.value}'"), or_(bmcs.c.bmc_id.is_(None), _near)),
        f"room_{verb.value}",
    )


def _slow_lane() -> Subquery:
    """Begins at the few BMCs that are away: the sum keeps SQLite from walking the index of due nodes instead."""
    due = n.due_at + literal(0)
    return (
        select(n.node_id, n.due_at, n.queued_verb.label("verb"), literal(1).label("away"))
        .select_from(bmcs.join(nodes, bmcs.c.bmc_id == n.bmc_id))
        .where(_away, due <= bindparam("now"), ~n.maintenance, ~n.quiet, _free)
        .order_by(due, n.node_id)
        .limit(bindparam("limit"))
        .subquery()
    )


_found: Final = union_all(
    *(select(arm) for arm in (_under_way(), *(_waiting(verb) for verb in WORKFLOWS), _slow_lane()))
).cte("found")
_mine_away = nodes.alias("mine")
_lane_taken: Final = (
    select(func.count())
    .select_from(_mine_away.join(bmcs, bmcs.c.bmc_id == _mine_away.c.bmc_id))
    .where(
        _mine_away.c.claim_owner == bindparam("owner"),
        _mine_away.c.claim_until >= db_now(),
        _away,
    )
    .scalar_subquery()
)
_ranked: Final = select(
    _found.c.node_id,
    _found.c.due_at,
    _found.c.verb,
    _found.c.away,
    func.row_number().over(partition_by=_found.c.verb, order_by=(_found.c.away, _found.c.due_at)).label("of_verb"),
    func.row_number().over(partition_by=_found.c.away, order_by=(_found.c.due_at, _found.c.node_id)).label("of_lane"),
).cte("ranked")
_oldest: Final = (
    select(_ranked.c.node_id)
    .where(
        or_(
            _ranked.c.verb.is_(None),
            _ranked.c.of_verb
            <= case(
                *((_ranked.c.verb == verb.value, bindparam(f"room_{verb.value}")) for verb in WORKFLOWS),
                else_=bindparam("limit"),
            ),
        ),
        or_(_ranked.c.away == 0, _ranked.c.of_lane <= bindparam("slow_lane") - _lane_taken),
    )
    .order_by(_ranked.c.due_at, _ranked.c.node_id)
    .limit(bindparam("limit"))
    .cte("oldest")
)
_picked: Final = (
    select(n.node_id)
    .where(n.node_id.in_(select(_oldest.c.node_id)), _claimable)
    .with_for_update(skip_locked=True, of=nodes)
    .cte("picked")
    .prefix_with("MATERIALIZED", dialect="postgresql")
)
_CLAIM: Final = (
    update(nodes)
    .where(n.node_id.in_(select(_picked.c.node_id)))
    .values(
        claim_owner=bindparam("owner"),
        claim_epoch=n.claim_epoch + 1,
        claim_until=db_now() + bindparam("lease_us"),
        queued_verb=None,
    )
    .returning(n.node_id, n.claim_epoch, n.claim_until, n.due_at, n.operation_id)
)
# What is held (maintenance, a freeze) or waits for a BMC that is away takes no place: it would keep healthy machines waiting for hours.
_RUNNING: Final = (
    select(operations.c.verb, func.count().label("running"))
    .select_from(
        operations.join(nodes, n.operation_id == operations.c.operation_id).outerjoin(bmcs, bmcs.c.bmc_id == n.bmc_id)
    )
    .where(
        operations.c.kind == "workflow",
        operations.c.status == text("'running'"),
        operations.c.started_at.is_not(None),
        ~n.maintenance,
        ~n.quiet,
        or_(bmcs.c.bmc_id.is_(None), _near),
        covering_node.is_(None),
    )
    .group_by(operations.c.verb)
)
_BEGUN: Final = (
    update(operations)
    .where(operations.c.operation_id.in_(bindparam("operation_ids", expanding=True)), operations.c.started_at.is_(None))
    .values(started_at=bindparam("a_now"))
)
_ANY_WAITING: Final = select(n.node_id).where(n.queued_verb.is_not(None), n.due_at <= bindparam("now")).limit(1)


def claim_due(
    c: Connection,
    owner: str,
    now: Micros,
    limit: int,
    caps: Mapping[Verb, int],
    lease_s: float = 60,
    *,
    slow_lane: int = SLOW_LANE,
    takeover_s: float = TAKEOVER_WAIT_S,
) -> list[Claim]:
    """Up to `limit` nodes that are due and free, oldest first, each under a new epoch.

    Another's claim is free once it lapsed and `takeover_s` more went by. A workflow's first claim waits for room under the cap of its
    verb, which counts for each live daemon; a verb without a cap has room. Nodes in maintenance, and quiet ones, are left out. Of BMCs
    that are away (that did not answer the last time) this owner holds at most `slow_lane`.
    """
    if limit <= 0:
        return []
    room = dict.fromkeys(WORKFLOWS, 0)
    if c.execute(_ANY_WAITING, {"now": now}).first() is not None:
        if c.dialect.name == "postgresql":
            c.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        alive = daemons.agreeing(c, owner)
        running = {row.verb: row.running for row in c.execute(_RUNNING, {"now": now})}
        for verb in WORKFLOWS:
            left = caps[verb] * alive - running.get(verb.value, 0) if verb in caps else limit
            room[verb] = max(0, min(limit, left))
    values: dict[str, Any] = {
        "owner": owner,
        "now": now,
        "limit": limit,
        "slow_lane": slow_lane,
        "takeover_us": int(takeover_s * SECOND),
        "lease_us": int(lease_s * SECOND),
        **{f"room_{verb.value}": many for verb, many in room.items()},
    }
    taken = c.execute(_CLAIM, values).all()
    begun = [row.operation_id for row in taken if row.operation_id is not None]
    if begun:
        c.execute(_BEGUN, {"operation_ids": begun, "a_now": now})
    taken = sorted(taken, key=lambda row: (row.due_at, row.node_id))
    return [Claim(row.node_id, owner, row.claim_epoch, Micros(row.claim_until)) for row in taken]
