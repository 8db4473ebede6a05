"""Verbs and side operations of the metal group: each a model, the actions that it needs, and one call of `run_verb`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import SecretStr
from sqlalchemy import Connection

from bcmetal import models, models_words
from bcmetal.answers import NodeView
from bcmetal.api.access import WORKFLOW_ACTIONS, actions_for
from bcmetal.api.calls import Call, method
from bcmetal.api.checks import check_input, kind_of, service_faults
from bcmetal.api.places import refuse
from bcmetal.api.times import micros
from bcmetal.api.verbs import Decided, Seal, event_of, instant, not_in_this_build, run_verb, state_event
from bcmetal.decisions import Micros
from bcmetal.errors import Fault, InvalidInput, InvalidState, Lost
from bcmetal.join.leaving import leave, withdraw_tokens
from bcmetal.settings_grants import Action
from bcmetal.settling import Ended, EndStatus, LastError
from bcmetal.states import WORKFLOWS, SideVerb, State, System, Verb, failure_of
from bcmetal.store import freezes, idempotency, members, meta, nodes, operations, sealed
from bcmetal.store.values import Json, NewOperation, NodeRow, Sealed

A = Action
DELIVERED: Final = ("user-data", "meta-data", "network-data", "password-hash")  # what a retry has again


def given_of(call: Call[models_words.NodeMutation], *names: str) -> dict[str, Any]:
    """The named fields of the input, as JSON; what was not given is left out."""
    fields = {name for name in names if name in call.input.model_fields_set}
    return call.input.model_dump(mode="json", by_alias=True, include=fields, exclude_none=True)


# ---------------------------------------------------------------- workflows


@method("metal", models.Inspect, NodeView, WORKFLOW_ACTIONS[Verb.INSPECT])
async def inspect(call: Call[models.Inspect]) -> Json:
    """Read who the machine is and what it is made of, through its BMC."""
    return await run_verb(call, Verb.INSPECT, given_of(call, "deep"))


@method("metal", models.Commission, NodeView, WORKFLOW_ACTIONS[Verb.COMMISSION])
async def commission(call: Call[models.Commission]) -> Json:
    """Make a machine ready to be deployed, by the named profile or the pool's."""
    check_input(call.input, call.settings, call.its_pool)
    profile = call.settings.profiles.commission.get(call.input.profile or call.its_pool.commission)
    if profile is not None and profile.rotate_bmc:
        await _require_recovery(call)
    return await run_verb(call, Verb.COMMISSION, given_of(call, "profile", "confirm_erase"))


async def _require_recovery(call: Call[Any]) -> None:
    """Told here, and not after hours of work."""
    if await call.store.read(meta.get, meta.RECOVERY) != call.services.vault.key_id:
        why = "a random password would be lost with the vault's key: first `bcmetal vault recovery export` and `verify` on the daemon's host"
        raise InvalidState(why, reason="recovery-not-exercised")


def _deploy_actions(asked: models.Deploy) -> frozenset[Action]:
    return actions_for(Verb.DEPLOY, {"rebuild": asked.rebuild})


@method("metal", models.Deploy, NodeView, _deploy_actions)
async def deploy(call: Call[models.Deploy]) -> Json:
    """Start the machine from an image: an ISO boots as it is, any other is written to a disk by the agent, and its system joins the pool."""
    check_input(call.input, call.settings, call.its_pool)
    given = given_of(call, "image", "rebuild", "confirm_erase", "ssh_keys")
    given["kind"] = kind_of(call.input, call.settings)
    secrets = {
        "user-data": call.input.user_data,
        "meta-data": call.input.meta_data,
        "network-data": call.input.network_data,
    }
    return await run_verb(call, Verb.DEPLOY, given, seal=_sealing(call, secrets))


def _sealing(call: Call[Any], secrets: Mapping[str, str | None]) -> Seal:
    """Keep what may hold secrets with the operation alone, sealed."""

    def seal(row: NodeRow, operation_id: str) -> list[Sealed]:
        return [
            call.services.vault.seal("operation", "operation", operation_id, name, SecretStr(text))
            for name, text in secrets.items()
            if text is not None
        ]

    return seal


@method("metal", models.Rescue, NodeView, WORKFLOW_ACTIONS[Verb.RESCUE])
async def rescue(call: Call[models.Rescue]) -> Json:
    """Start a system beside the machine's own: with keys or a password the agent's, else the pool's rescue ISO. Its disks stay as they are."""
    given = given_of(call, "ssh_keys", "expires_after_s")
    crypted = call.input.password_hash
    if crypted is not None:
        given["passwordHash"] = True
    secrets = {"password-hash": None if crypted is None else crypted.get_secret_value()}
    return await run_verb(call, Verb.RESCUE, given, seal=_sealing(call, secrets))


@method("metal", models_words.NodeMutation, NodeView, WORKFLOW_ACTIONS[Verb.UNRESCUE])
async def unrescue(call: Call[models_words.NodeMutation]) -> Json:
    """End a rescue: eject its medium and start the machine's own system."""
    return await run_verb(call, Verb.UNRESCUE)


def _release_actions(asked: models.Release) -> frozenset[Action]:
    return actions_for(Verb.RELEASE, {"eraseWaiver": asked.erase_waiver})


@method("metal", models.Release, NodeView, _release_actions)
async def release(call: Call[models.Release]) -> Json:
    """Take the machine back: power off, erase by the profile, verify, compare the BMC with its baseline. Cannot be aborted."""
    check_input(call.input, call.settings, call.its_pool)
    profile = call.settings.profiles.release.get(call.input.profile or call.its_pool.release)
    if profile is not None and profile.rotate_bmc:
        await _require_recovery(call)
    return await run_verb(call, Verb.RELEASE, given_of(call, "profile", "confirm_erase", "erase_waiver"))


def _retire_actions(asked: models.Retire) -> frozenset[Action]:
    return actions_for(Verb.RETIRE, {"eraseWaiver": asked.erase_waiver})


@method("metal", models.Retire, NodeView, _retire_actions)
async def retire(call: Call[models.Retire]) -> Json:
    """Take the machine out of service: as release, then hand the BMC over. Cannot be aborted."""
    fields = ("confirm_erase", "erase_waiver", "keep_credentials", "discard_credentials")
    return await run_verb(call, Verb.RETIRE, given_of(call, *fields))


@method("metal", models_words.NodeMutation, NodeView, A.OPERATE)
async def retry(call: Call[models_words.NodeMutation]) -> Json:
    """Do the failed operation again, with the input that it had. Needs what that verb needs as well."""

    kept: list[Sealed] = []
    vault = call.services.vault

    def failed_input(c: Connection, row: NodeRow) -> Json:
        failed = operations.last_failed(c, row.node_id)
        if failed is None:
            return {}
        kept[:] = sealed.get(c, "operation", failed.operation_id)
        return failed.input

    def seal(row: NodeRow, operation_id: str) -> list[Sealed]:
        return [
            vault.seal("operation", "operation", operation_id, one.field, vault.open(one, "operation"))
            for one in kept
            if one.field in DELIVERED
        ]

    return await run_verb(call, Verb.RETRY, look=failed_input, seal=seal)


@method("metal", models_words.NodeMutation, NodeView, A.OPERATE)
async def abort(call: Call[models_words.NodeMutation]) -> Json:
    """End what is under way, after the step that it is in; what it did to the machine is undone."""
    return await run_verb(call, Verb.ABORT, record=_abort)


def _abort(c: Connection, plan: Decided) -> None:
    """In maintenance and in a freeze no step acts, so the operation ends at once, and what it did is undone when the hold lifts."""
    row, call = plan.row, plan.call
    under_way = operations.get(c, row.operation_id) if row.operation_id is not None else None
    if under_way is None:
        raise Lost
    frozen = freezes.covering(c, row.site_id, row.pool_id, row.location_rack)
    if row.facts.maintenance or row.facts.quiet or frozen is not None:
        cleanup = None
        if under_way.touched:
            left = {"memo": dict(under_way.memo)}
            cleanup = NewOperation(call.new_id("op"), "side", SideVerb.CLEANUP, call.who.name, left)
        verb, origin = Verb(under_way.verb), State(under_way.origin_state)
        state = failure_of(WORKFLOWS[verb], origin) if under_way.touched else origin
        error = LastError("aborted", "somebody aborted it", under_way.step or "", Micros(call.now))
        ended = Ended(under_way.operation_id, row.node_id, verb, EndStatus.ABORTED, state, under_way.touched, error)
        event = state_event(call, row, state, Verb.ABORT.value, under_way.operation_id)
        operations.end_now(c, row.node_id, ended, plan.audit, [event], call.now, cleanup)
    elif operations.request_abort(c, row.node_id, call.who.name, plan.audit, plan.events, call.now) is None:
        raise Lost
    if plan.idempotency is not None:
        idempotency.add(c, plan.idempotency, under_way.operation_id, row.node_id, call.now)


# ---------------------------------------------------------------- what ends at once


@method("metal", models_words.NodeMutation, NodeView, A.OPERATE)
async def adopt(call: Call[models_words.NodeMutation]) -> Json:
    """Take an inspected machine as it is, with the system that it came with. Nothing is touched."""
    return await run_verb(call, Verb.ADOPT, record=instant({"system": System.PRESENT}, State.DEPLOYED))


@method("metal", models.Remove, NodeView, A.RETIRE)
async def remove(call: Call[models.Remove]) -> Json:
    """Forget the node; the machine is not touched. History, drives and erasure records stay. Answers with its last view."""
    return await run_verb(call, Verb.REMOVE, given_of(call, "abandon"), record=_remove)


def _remove(c: Connection, plan: Decided) -> None:
    row, call = plan.row, plan.call
    members.lock_pool(c, row.pool_id)  # a join that is under way is through by then, and ends here
    reason = str(plan.operation.input.get("abandon") or "removed")
    event = event_of(call, row, "metal.node.removed", {"name": row.name, "reason": reason})
    operations.record_instant(
        c,
        row.node_id,
        None,
        plan.expected_generation,
        None,
        plan.operation,
        plan.audit,
        [event],
        call.now,
        plan.idempotency,
        expected_state=row.facts.state,
    )
    leave(c, row.node_id, "retired", reason, call.now)
    withdraw_tokens(c, row.node_id, row.site_id, call.now)
    nodes.tombstone_and_delete(c, row.node_id, reason, call.now)


@method("metal", models.SetMaintenance, NodeView, A.OPERATE)
async def set_maintenance(call: Call[models.SetMaintenance]) -> Json:
    """Hold new steps on the node, or let them go on. `quiet`: no contact with its BMC at all."""
    asked = call.input
    until = _until(call, asked.on, asked.reason)
    columns = {
        "maintenance": asked.on,
        "quiet": asked.on and asked.quiet,
        "maintenance_reason": asked.reason if asked.on else None,
        "maintenance_until": until if asked.on else None,
    }
    return await run_verb(
        call, "setMaintenance", given_of(call, "on", "reason", "until", "quiet"), record=instant(columns)
    )


@method("metal", models.SetProtected, NodeView, A.OPERATE)
async def set_protected(call: Call[models.SetProtected]) -> Json:
    """Refuse power and erasing verbs on the node to everybody, until it is lifted or its time is up."""
    asked = call.input
    until = _until(call, asked.on, asked.reason)
    columns = {
        "protected": asked.on,
        "protected_reason": asked.reason if asked.on else None,
        "protected_until": until if asked.on else None,
    }
    return await run_verb(call, "setProtected", given_of(call, "on", "reason", "until"), record=instant(columns))


def _until(call: Call[models.SetMaintenance] | Call[models.SetProtected], on: bool, reason: str | None) -> int | None:
    faults = []
    until = None if call.input.until is None else micros(call.input.until)
    if on and reason is None:
        faults.append(Fault("reason", "is missing: it says to others why"))
    if on and until is not None and until <= call.now:
        faults.append(Fault("until", "lies in the past"))
    if faults:
        raise InvalidInput(faults)
    return until


# ---------------------------------------------------------------- side operations


@method("metal", models.Refresh, NodeView, A.OPERATE)
async def refresh(call: Call[models.Refresh]) -> Json:
    """Read the BMC again. The only look at a machine that is available or deployed."""
    if call.input.deep:
        raise not_in_this_build("a deep refresh", "deep")
    return await run_verb(call, SideVerb.REFRESH)


@method("metal", models.SetPower, NodeView, A.POWER)
async def set_power(call: Call[models.SetPower]) -> Json:
    """Switch the power through the BMC."""
    return await run_verb(call, SideVerb.SET_POWER, given_of(call, "action"))


@method("metal", models.Service, NodeView, WORKFLOW_ACTIONS[Verb.SERVICE])
async def service(call: Call[models.Service]) -> Json:
    """Named works on a deployed or available machine, which is taken down for them where they need it and brought up again. Its disks stay."""

    def check(row: NodeRow) -> Json:
        name = call.input.profile or row.profile or call.its_pool.commission
        refuse(list(service_faults(call.input, name, call.settings)))
        return {"profile": name}

    return await run_verb(call, Verb.SERVICE, given_of(call, "steps", "force"), check=check)


@method("metal", models_words.NodeMutation, NodeView, A.CREDENTIALS)
async def rotate_bmc_credentials(call: Call[models_words.NodeMutation]) -> Json:
    """Give the BMC a new random password. The old one is kept until the new one was proven by a login.

    Refused (`recovery-not-exercised`) until somebody proved that the vault's key can be recovered.
    """
    await _require_recovery(call)
    return await run_verb(call, SideVerb.ROTATE_BMC_CREDENTIALS)


@method("metal", models_words.NodeMutation, NodeView, A.RESCUE)
async def console(call: Call[models_words.NodeMutation]) -> Json:
    """Ask the BMC for the ways to the machine's serial console; `consoleWays` answers them once it did."""
    return await run_verb(call, SideVerb.CONSOLE)


@method("metal", models.ResetBmc, NodeView, A.OPERATE)
async def reset_bmc(call: Call[models.ResetBmc]) -> Json:
    """Restart the BMC, and see that it stays back. The machine is not touched."""
    return await run_verb(call, SideVerb.RESET_BMC, given_of(call, "hard"))


@method("metal", models.Identify, NodeView, A.OPERATE)
async def identify(call: Call[models.Identify]) -> Json:
    """Switch the machine's identify light."""
    return await run_verb(call, SideVerb.IDENTIFY, {"on": call.input.on})


@method("metal", models_words.NodeMutation, NodeView, A.OPERATE)
async def read_sensors(call: Call[models_words.NodeMutation]) -> Json:
    """Read the sensors through the BMC; `sensors` answers them once it did."""
    return await run_verb(call, SideVerb.READ_SENSORS)


@method("metal", models.ReadEventLog, NodeView, A.OPERATE)
async def read_event_log(call: Call[models.ReadEventLog]) -> Json:
    """Read the newest entries of the BMC's event log; `eventLog` answers them once it did."""
    return await run_verb(call, SideVerb.READ_EVENT_LOG, {"limit": call.input.limit})


@method("metal", models_words.NodeMutation, NodeView, A.OPERATE)
async def clear_event_log(call: Call[models_words.NodeMutation]) -> Json:
    """Clear the BMC's event log. What was read of it before stays here."""
    return await run_verb(call, SideVerb.CLEAR_EVENT_LOG)
