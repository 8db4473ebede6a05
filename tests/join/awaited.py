"""A node whose deploy stands at the step that waits for its machine to join."""

from __future__ import annotations

from bcmetal.decisions import SECOND, Move
from bcmetal.states import WORKFLOWS, State, Verb
from bcmetal.store import operations
from bcmetal.store.members import JOIN_STEP
from bcmetal.store.values import NewAudit, NewOperation
from join.site import OWNER, POOL, Box, JoinSite


def a_deploying_node(site: JoinSite, box: Box, pool: str = POOL, step: str = JOIN_STEP) -> str:
    """Enrolled, and in the midst of its deploy."""
    node_id = site.enrolled(box, pool, state="available")
    row = WORKFLOWS[Verb.DEPLOY]
    move = Move(Verb.DEPLOY, State.AVAILABLE, row.during, row.success, row.failure, row.budget_s)
    op = NewOperation(site.new_id("op"), "workflow", Verb.DEPLOY, "key:owner", {}, step, 3600 * SECOND, steps=(step,))
    entry = NewAudit(
        site.new_id("au"), "key:owner", OWNER, "192.0.2.1", "compute:metal:operate", pool, "allowed", "trace", node_id
    )
    site.write(operations.start, node_id, None, move, op, entry, (), site.now())
    return node_id
