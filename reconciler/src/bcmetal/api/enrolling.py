"""Enrolling a machine by its BMC, and changing what is known of that BMC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr
from sqlalchemy import Connection

from bcmetal import models, models_words
from bcmetal.answers import NodeView
from bcmetal.api.calls import Call, method
from bcmetal.api.metal import given_of
from bcmetal.api.places import Place, length_faults, place_of, reference_faults, refuse
from bcmetal.api.verbs import ATTEMPTS, Decided, decided, instant, replayed, run_verb
from bcmetal.api.views import answer
from bcmetal.decisions import SECOND, Params, decide
from bcmetal.errors import Conflict, Fault, Internal, InvalidInput, InvalidState, Lost, Unavailable, VaultError
from bcmetal.settings_grants import Action
from bcmetal.states import SideVerb, State, Verb
from bcmetal.store import logins, nodes, operations, sealed, views
from bcmetal.store.values import BmcRow, Json, NewBmc, NewEvent, NewNode, NewOperation, NodeRow, Sealed
from bcmetal.vault import Vault, bmc_binding
from bcmetal.workflows.identity import identities_shown
from bcmetal_drivers.connection import TrustKind

A = Action
BMC = "bmc"  # purpose and owner kind of a BMC's secrets in the vault


@dataclass(frozen=True, slots=True)
class Secrets:
    username: SecretStr
    password: SecretStr

    def sealed(self, vault: Vault, bmc: BmcRow, slot: str = "current") -> tuple[Sealed, ...]:
        """Bound to where the BMC is and how it is trusted: nobody redirects them by SQL."""
        binding = bmc_binding(bmc.host, bmc.trust_kind, bmc.trust_value)
        return tuple(
            vault.seal(BMC, BMC, bmc.bmc_id, field, secret, bind=binding, slot=slot)
            for field, secret in (("username", self.username), ("password", self.password))
        )

    def are(self, vault: Vault, bmc: BmcRow, rows: Sequence[Sealed]) -> bool:
        """Whether these are the stored ones."""
        binding = bmc_binding(bmc.host, bmc.trust_kind, bmc.trust_value)
        try:
            stored = {row.field: vault.open(row, BMC, binding) for row in rows if row.slot == "current"}
        except VaultError:
            return False
        return stored == {"username": self.username, "password": self.password}


# ---------------------------------------------------------------- enroll


@method("metal", models.Enroll, NodeView, A.ENROLL)
async def enroll(call: Call[models.Enroll]) -> Json:
    """Enrol a machine by its BMC's address. Unless `inspect` is false, an inspect by the daemon follows."""
    asked = call.input.bmc
    place, faults = place_of(call.settings, asked.address, asked.driver, asked.system_id, asked.tls)
    if place is not None and asked.credential_ref is not None:
        faults += reference_faults(call.settings, asked.credential_ref, place)
    if place is not None and asked.username is not None and asked.password is not None:
        username, password = asked.username.get_secret_value(), asked.password.get_secret_value()
        faults += length_faults(place.address.scheme, username, password, "bmc.")
    refuse(faults)
    if place is None:
        raise Internal("no place and no fault")
    hosts = await _hosts(call, place)
    for _ in range(ATTEMPTS):
        done = await replayed(call)
        if done is not None:
            return done
        new = _new_node(call, place)
        operation_id = call.new_id("op")
        try:
            await call.store.write(_enroll, call, new, operation_id, hosts)
        except Conflict as error:  # perhaps with a twin of this very call, which is then what answers
            if not isinstance(error, Lost) and await replayed(call) is None:
                raise
            continue
        call.services.wake(new.node_id)
        return await answer(call, new.node_id, operation_id)
    raise Unavailable


async def _hosts(call: Call[models.Enroll], place: Place) -> tuple[str, ...]:
    """Under which logins at this BMC were counted before: as it is written, and by the address that a name leads to."""
    host = place.address.host
    if call.services.doctor is None or not await call.store.read(logins.of_strangers):
        return (host,)
    return await call.services.doctor.hosts(host, place.network)


def _new_node(call: Call[models.Enroll], place: Place) -> NewNode:
    asked, address = call.input, place.address
    node_id = call.new_id("nd")
    return NewNode(
        node_id=node_id,
        tenant_id=call.its_pool.owner,
        site_id=call.its_pool.site,
        pool_id=call.its_pool.name,
        name=asked.name or f"node-{node_id[-12:]}",
        bmc_id=call.new_id("bm"),
        bmc=NewBmc(
            place.network.name,
            address.scheme,
            address.host,
            address.port,
            place.trust_kind,
            place.trust_value,
            asked.bmc.credential_ref,
        ),
        system_path=address.system_path,
        boot_mac=asked.boot_mac,
        location_room=asked.location.room,
        location_rack=asked.location.rack,
        location_unit=asked.location.unit,
        asset_tag=asked.asset_tag,
        root_device=_json(asked.root_device),
        labels=asked.labels,
    )


def _json(model: models_words.Input | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _enroll(c: Connection, call: Call[models.Enroll], new: NewNode, operation_id: str, hosts: Sequence[str]) -> None:
    """Node, BMC, its secrets, and the inspect that follows: one transaction."""
    nodes.insert(c, new, call.now)
    row = nodes.get(c, new.node_id)
    if row is None or row.bmc is None:
        raise Internal("a node that was just inserted is not there")
    logins.move(c, hosts, row.bmc.bmc_id)
    _keep_secrets(c, call, new, row.bmc)
    shown = views.address(new.bmc.scheme, new.bmc.host, new.bmc.port, new.system_path)
    event = NewEvent(
        call.new_id("ev"),
        new.node_id,
        new.tenant_id,
        new.pool_id,
        new.site_id,
        "metal.node.enrolled",
        {"name": new.name, "bmc": shown},
    )
    given = {"name": new.name, "bmc": shown, "credentialRef": new.bmc.cred_ref}
    resource = f"compute-pool/{new.pool_id}/nodes/{new.node_id}"
    audit = call.audit(resource, "allowed", new.node_id, {"operation": operation_id, "input": given})
    known = call.idempotency()
    if not call.input.inspect:
        operation = NewOperation(operation_id, "instant", "enroll", call.who.name, given)
        operations.record_instant(c, new.node_id, None, None, None, operation, audit, [event], call.now, known)
        return
    move = decided(call, row, decide(row.facts, Verb.INSPECT, Params(), call.policy, call.now))
    steps = tuple(call.services.steps_of(Verb.INSPECT, row, {}, call.its_pool))
    operation = NewOperation(
        operation_id,
        "workflow",
        Verb.INSPECT,
        call.who.name,
        {},
        first_step=steps[0],
        budget_us=move.budget_s * SECOND,
        steps=steps,
    )
    data = {"from": State.ENROLLED.value, "to": State.INSPECTING.value, "verb": "inspect", "operationId": operation_id}
    changed = NewEvent(
        call.new_id("ev"), new.node_id, new.tenant_id, new.pool_id, new.site_id, "metal.state.changed", data
    )
    operations.start(c, new.node_id, row.generation, move, operation, audit, [event, changed], call.now, known)


def _keep_secrets(c: Connection, call: Call[models.Enroll], new: NewNode, bmc: BmcRow) -> None:
    """A BMC that is known already, because another of its systems is enrolled, keeps the credentials that were proven."""
    asked, vault = call.input.bmc, call.services.vault
    shared = bmc.bmc_id != new.bmc_id
    differs = (bmc.trust_kind, bmc.trust_value) != (new.bmc.trust_kind, new.bmc.trust_value)
    if shared and differs and asked.tls.model_fields_set:
        raise Conflict(
            "this BMC is enrolled already, with another trust: leave tls out, or use update",
            reason="bmc-trust-differs",
            field="bmc.tls",
        )
    rows = sealed.get(c, BMC, bmc.bmc_id)
    has = bmc.cred_ref is not None or any(row.slot == "current" for row in rows)
    if asked.username is None or asked.password is None:
        if asked.credential_ref is None and not has:
            text = "is missing: give username and password, or credentialRef (`bcmetal`: --username or --credential)"
            raise InvalidInput([Fault("bmc.credentialRef", text)])
        if shared and asked.credential_ref is not None and asked.credential_ref != bmc.cred_ref:
            raise _differs("bmc.credentialRef")
        return
    given = Secrets(asked.username, asked.password)
    if shared and bmc.cred_ref is not None:
        raise _differs("bmc.username")
    if shared and bmc.proven_at is not None and has:
        if not given.are(vault, bmc, rows):
            raise _differs("bmc.password")
        return
    sealed.put(c, given.sealed(vault, bmc))


def _differs(field: str) -> Conflict:
    return Conflict(
        "this BMC is enrolled already, with other credentials: leave them out, or change them first (`bcmetal node credentials`)",
        reason="bmc-credentials-differ",
        field=field,
    )


# ---------------------------------------------------------------- credentials


def _bmc_of(row: NodeRow) -> BmcRow:
    if row.bmc is None:
        raise InvalidState("the node has no BMC", reason="no-bmc", state=row.facts.state.value)
    return row.bmc


@method("metal", models.SetBmcCredentials, NodeView, A.CREDENTIALS)
async def set_bmc_credentials(call: Call[models.SetBmcCredentials]) -> Json:
    """Give the BMC's user name and password. They are pending until a login proved them; the old ones stay till then."""
    new = Secrets(call.input.username, call.input.password)

    def check(row: NodeRow) -> None:
        refuse(
            list(length_faults(_bmc_of(row).scheme, new.username.get_secret_value(), new.password.get_secret_value()))
        )

    def seal(row: NodeRow, operation_id: str) -> tuple[Sealed, ...]:
        return new.sealed(call.services.vault, _bmc_of(row), "candidate")

    return await run_verb(call, SideVerb.SET_BMC_CREDENTIALS, check=check, seal=seal)


# ---------------------------------------------------------------- update


def _update_actions(asked: models.Update) -> frozenset[Action]:
    wanted = set()
    if asked.bmc is not None:
        wanted.add(A.CREDENTIALS)
    if asked.accept_identity:
        wanted.add(A.RETIRE)
    if columns_of(asked) or not wanted:
        wanted.add(A.ENROLL)
    return frozenset(wanted)


@method("metal", models.Update, NodeView, _update_actions)
async def update(call: Call[models.Update]) -> Json:
    """Change what is recorded of a node. A new address, trust or system of its BMC is pending until the BMC was proven with it.

    `acceptIdentity`, after a board or a BMC was swapped: the machine that is there now is this node's; the old one's certificates end.
    """
    asked = call.input
    if asked.accept_identity and asked.reason is None:
        raise InvalidInput([Fault("reason", "is missing: it says to others why another machine is accepted")])
    columns = columns_of(asked)
    if asked.bmc is None and not asked.accept_identity:
        if not columns:
            raise InvalidInput([Fault("", "nothing to change was given")])
        given = given_of(call, "name", "labels", "location", "asset_tag", "boot_mac", "root_device", "reason")
        return await run_verb(call, "update", given, record=instant(columns))
    change = asked.bmc

    def check(row: NodeRow) -> Json:
        wanted: dict[str, Any] = {} if change is None else {"bmc": _wanted(call, change, row)}
        if asked.accept_identity:
            _bmc_of(row)
            old = identities_shown(one for one in row.identifiers if one.source == "bmc")
            wanted |= {"acceptIdentity": True, "reason": asked.reason, "old": old}
        return wanted

    def record(c: Connection, plan: Decided) -> None:
        if columns:
            also = NewOperation(call.new_id("op"), "instant", "update", call.who.name, _shown(columns))
            noted = call.audit(plan.audit.resource, "allowed", plan.row.node_id, {"operation": also.operation_id})
            operations.record_instant(
                c, plan.row.node_id, columns, plan.expected_generation, None, also, noted, [], call.now
            )
        operations.queue_side(c, plan.row.node_id, plan.operation, plan.audit, plan.events, call.now, plan.idempotency)

    return await run_verb(call, SideVerb.UPDATE, check=check, record=record)


def columns_of(asked: models.Update) -> dict[str, Any]:
    """Columns of the node that change at once. A null clears; what was not named stays."""
    columns: dict[str, Any] = {}
    named = asked.model_fields_set
    if asked.name is not None:
        columns["name"] = asked.name
    if asked.labels is not None:
        columns["labels"] = dict(asked.labels)
    if asked.location is not None:
        columns |= {f"location_{part}": getattr(asked.location, part) for part in asked.location.model_fields_set}
    if "asset_tag" in named:
        columns["asset_tag"] = asked.asset_tag
    if "boot_mac" in named:
        columns["boot_mac"] = asked.boot_mac
    if "root_device" in named:
        columns["root_device"] = _json(asked.root_device)
    return columns


def _shown(columns: Json) -> dict[str, Any]:
    return {name: value for name, value in columns.items() if value is not None}


def _wanted(call: Call[models.Update], change: models.BmcChange, row: NodeRow) -> dict[str, Any]:
    """What the side operation is to prove."""
    bmc = _bmc_of(row)
    text = change.address or views.address(bmc.scheme, bmc.host, bmc.port, row.system_path)
    system_id = change.system_id
    if system_id is not None and change.address is None:  # the old address names the old system
        text = views.address(bmc.scheme, bmc.host, bmc.port, None)
    place, faults = place_of(call.settings, text, change.driver, system_id, change.tls, bmc)
    if place is not None and (change.credential_ref or bmc.cred_ref) is not None:
        faults += reference_faults(call.settings, str(change.credential_ref or bmc.cred_ref), place)
    listed = call.settings.credentials.get(change.credential_ref or "")
    if listed is not None and listed.of_one_machine:
        faults.append(Fault("bmc.credentialRef", "is a list of labels, which are for an enrolment"))
    if place is not None and place.address.system_path is not None and not place.address.scheme:
        faults.append(Fault("bmc.address", "with a system, the address needs its scheme (redfish://…)"))
    refuse(faults)
    if place is None:
        raise Internal("no place and no fault")
    address = place.address
    return {
        "address": views.address(address.scheme, address.host, address.port, address.system_path),
        "network": place.network.name,
        "trustKind": TrustKind(place.trust_kind).value,
        "trustValue": place.trust_value,
        **({"credentialRef": change.credential_ref} if change.credential_ref is not None else {}),
    }
