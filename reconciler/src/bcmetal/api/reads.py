"""Reading nodes: list, get, inventory, timeline, plan. Nothing is written and nothing is asked of a machine."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from bcmetal import models, models_words
from bcmetal.answers import (
    ConsoleWaysAnswer,
    EventLogAnswer,
    InventoryAnswer,
    NodeList,
    NodeView,
    PlanAnswer,
    SensorsAnswer,
    TimelineAnswer,
)
from bcmetal.api.access import actions_on_pool, pool_of, pools_allowing, require
from bcmetal.api.calls import METHODS, Call, Method, method
from bcmetal.api.checks import check_input, kind_of
from bcmetal.api.faults import input_faults
from bcmetal.api.times import micros
from bcmetal.api.verbs import node_of, params_of, refused
from bcmetal.api.views import answer, shown
from bcmetal.decisions import Move, Refusal, decide, erases_disks
from bcmetal.errors import BcmetalError, Fault, InvalidInput
from bcmetal.settings_grants import Action
from bcmetal.states import WORKFLOWS, SideVerb, Verb
from bcmetal.store import inventories, nodes, operations, side_operations, views
from bcmetal.store.inventories import InventoryRow
from bcmetal.store.nodes import NodeFilter
from bcmetal.store.values import Json, NodeRow
from bcmetal.store.views import ViewRow, stamp

A = Action
OF_THE_PLACE = frozenset({"tenantId", "poolId", "nodeId"})


@method("metal", models.List, NodeList, None, name="list")
async def list_nodes(call: Call[models.List]) -> Json:
    """Nodes of one pool, or of every pool of the tenant that the caller may read, in the order of their making."""
    asked = call.input
    if asked.pool_id is not None:
        pool = pool_of(call.settings, call.who, asked.tenant_id, asked.pool_id)
        require(actions_on_pool(call.settings, call.who, pool), {A.READ}, call.who, f"compute-pool/{pool.name}")
        pools = [pool]
    else:
        pools = pools_allowing(call.settings, call.who, asked.tenant_id, A.READ)
    wanted = NodeFilter(
        [pool.name for pool in pools],
        asked.state,
        asked.labels,
        asked.query,
        asked.condition,
        asked.needs_attention,
    )
    rows, cursor = await call.store.read(_page, wanted, asked.limit, asked.cursor)
    return {"nodes": [shown(row, call.settings, call.now) for row in rows], "cursor": cursor}


def _page(c: Connection, wanted: NodeFilter, limit: int, cursor: str | None) -> tuple[list[ViewRow], str | None]:
    ids, more = nodes.list_page(c, wanted, limit, cursor)
    return views.read(c, ids), more


@method("metal", models_words.OfNode, NodeView, A.READ)
async def get(call: Call[models_words.OfNode]) -> Json:
    """The node's view."""
    row = await node_of(call)
    return await answer(call, row.node_id)


@method("metal", models.Inventory, InventoryAnswer, A.READ)
async def inventory(call: Call[models.Inventory]) -> Json:
    """What the machine is made of, as the last inspect or refresh found it; `deep`: as the agent inside saw it."""
    row = await node_of(call)
    latest = await call.store.read(inventories.latest, row.node_id)
    deep = await call.store.read(inventories.latest, row.node_id, "agent")
    found: dict[str, Any] = {
        "node": await answer(call, row.node_id),
        "inventory": None if latest is None else _inventory(latest),
        "deep": None if deep is None else _inventory(deep),
    }
    if call.input.since is not None:
        since = await call.store.read(inventories.since, row.node_id, micros(call.input.since))
        found["inventories"] = [_inventory(one) for one in since]
    return found


def _inventory(row: InventoryRow) -> dict[str, Any]:
    return {
        "inventoryId": row.inventory_id,
        "source": row.source,
        "takenAt": stamp(row.taken_at),
        "digest": row.digest,
        "sections": dict(row.sections),
        "doc": dict(row.doc),
    }


async def _told(call: Call[models_words.OfNode], verb: SideVerb) -> tuple[dict[str, Any], Json]:
    """The answer's frame, and what the last such reading of the BMC found."""
    row = await node_of(call)
    found = await call.store.read(side_operations.last_result, row.node_id, verb)
    frame = {"node": await answer(call, row.node_id), "takenAt": None if found is None else stamp(found.at)}
    return frame, {} if found is None else found.result


@method("metal", models_words.OfNode, SensorsAnswer, A.READ)
async def sensors(call: Call[models_words.OfNode]) -> Json:
    """The sensors as they were read last by `readSensors`; null before the first time."""
    frame, found = await _told(call, SideVerb.READ_SENSORS)
    return {**frame, "sensors": found.get("sensors"), "powerDrawW": found.get("powerDrawW")}


@method("metal", models_words.OfNode, EventLogAnswer, A.READ)
async def event_log(call: Call[models_words.OfNode]) -> Json:
    """The BMC's event log as it was read last by `readEventLog`, oldest first; null before the first time."""
    frame, found = await _told(call, SideVerb.READ_EVENT_LOG)
    return {**frame, "entries": found.get("entries")}


@method("metal", models_words.OfNode, ConsoleWaysAnswer, A.RESCUE)
async def console_ways(call: Call[models_words.OfNode]) -> Json:
    """The ways to the serial console as `console` found them last, best first; null before the first time."""
    frame, found = await _told(call, SideVerb.CONSOLE)
    return {**frame, "ways": found.get("ways")}


@method("metal", models.Timeline, TimelineAnswer, A.READ)
async def timeline(call: Call[models.Timeline]) -> Json:
    """What was done to the node, newest first: operations with their steps."""
    row = await node_of(call)
    found = await call.store.read(operations.timeline, row.node_id, call.input.limit)
    return {
        "node": await answer(call, row.node_id),
        "operations": [{"operationId": one["id"], **one} for one in found],
    }


# ---------------------------------------------------------------- plan


@method("metal", models.Plan, PlanAnswer, A.READ)
async def plan(call: Call[models.Plan]) -> Json:
    """What a verb would do to the node, and whether it would be refused. Nothing is done."""
    verb = call.input.verb
    planned = METHODS.get(f"/api/compute/metal/{verb}")
    if planned is None or not isinstance(verb, Verb | SideVerb) or verb is Verb.ENROLL:
        raise InvalidInput([Fault("verb", "is not one that is asked of a node")])
    asked = _asked(call, planned)
    row = await node_of(call)
    given = asked.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
    if isinstance(asked, models.Deploy):
        given["kind"] = kind_of(asked, call.settings)
    does: Verb | SideVerb | None = verb
    if verb is Verb.RETRY:
        failed = await call.store.read(operations.last_failed, row.node_id)
        given, does = dict(failed.input) if failed is not None else {}, row.facts.failed_verb
    params = params_of(does, given, call.settings, call.its_pool)
    decision = decide(row.facts, verb, params, call.policy, call.now)
    needed = planned.actions(asked) if planned.actions is not None else frozenset()
    missing = needed - actions_on_pool(call.settings, call.who, call.its_pool)
    why_not = _why_not(call, asked, row, decision)
    done: dict[str, Any] = {
        "verb": verb.value,
        "allowed": why_not is None and not missing,
        "refusal": why_not,
        "actions": sorted(action.value for action in needed),
        "actionsMissing": sorted(action.value for action in missing),
        "erasesDisks": isinstance(does, Verb) and erases_disks(does, params, call.policy),
        "steps": _steps(call, does, row, given),
    }
    if isinstance(decision, Move):
        done |= {
            "leadsTo": decision.success,
            "onFailure": decision.failure,
            "budgetS": decision.budget_s or None,
        }
    return {"node": await answer(call, row.node_id), "plan": done}


def _steps(call: Call[models.Plan], verb: Verb | SideVerb | None, row: NodeRow, given: Json) -> list[str]:
    if not isinstance(verb, Verb) or verb not in WORKFLOWS:
        return []
    return list(call.services.steps_of(verb, row, given, call.its_pool))


def _asked(call: Call[models.Plan], planned: Method) -> models_words.Input:
    """The verb's own input, checked by its own model. Raises InvalidInput with paths under `input`."""
    given = {name: value for name, value in call.input.input.items() if name not in OF_THE_PLACE}
    place = {name: call.body[name] for name in OF_THE_PLACE}
    try:
        return planned.model.model_validate_json(json.dumps({**given, **place}))
    except ValidationError as error:
        found = input_faults(error).faults
        raise InvalidInput([Fault(f"input.{fault.path}", fault.message) for fault in found]) from None


def _why_not(
    call: Call[models.Plan], asked: models_words.Input, row: NodeRow, decision: Move | Refusal
) -> dict[str, Any] | None:
    error: Exception | None = None
    try:
        check_input(asked, call.settings, call.its_pool)
    except InvalidInput as found:
        error = found
    if error is None and isinstance(decision, Refusal):
        error = refused(decision, row, call.policy, call)
    if not isinstance(error, BcmetalError):
        return None
    return {"code": error.api_code, "message": str(error), "details": dict(error.details)}
