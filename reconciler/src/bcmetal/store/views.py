"""The node's metal view as ready JSON, rewritten in each transaction that changes what it shows.

What moves too often to be stored is put in when it is read: power and health from the sightings, and the node as a member. The API adds `allowedVerbs`. The
budget that is left is as of the last settle, which is when it is counted. The view holds no secret: it is made of columns that hold none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, func, select, update

from bcmetal.decisions import SECOND, Micros, NodeFacts
from bcmetal.errors import hint_for
from bcmetal.states import SideVerb
from bcmetal.store import conditions, identifiers, jsontext, rescues, rows, side_operations
from bcmetal.store.join_tables import certificates, members
from bcmetal.store.logins import ROTATING
from bcmetal.store.tables import bmcs, node_views, nodes, operations, sealed, sightings
from bcmetal.store.upsert import insert
from bcmetal.store.values import Identifier, Json

_put = insert(node_views)
_PUT: Final = _put.on_conflict_do_update(
    index_elements=[node_views.c.node_id],
    set_={name: _put.excluded[name] for name in ("doc", "serial", "held_by_other")},
)
_OPERATION: Final = select(operations).where(operations.c.operation_id == bindparam("operation_id"))
_SLOTS: Final = select(sealed.c.slot).where(sealed.c.owner_kind == "bmc", sealed.c.owner_id == bindparam("bmc_id"))
_certified = (
    select(func.max(certificates.c.not_after_at))
    .where(certificates.c.node_id == nodes.c.node_id, certificates.c.revoked_at.is_(None))
    .correlate(nodes)
    .scalar_subquery()
    .label("certified_until")
)
_ATTENTION: Final = (
    update(nodes).where(nodes.c.node_id == bindparam("a_node_id")).values(needs_attention=bindparam("a_needs"))
)
_READ: Final = (
    select(
        node_views.c.doc,
        node_views.c.serial,
        node_views.c.held_by_other,
        *(
            nodes.c[name]
            for name in (
                *("node_id", "tenant_id", "pool_id", "state", "generation", "desired_power", "disks", "system"),
                *("maintenance", "quiet", "protected", "protected_until", "protected_reason", "fenced_reason"),
                *("not_erased", "failed_verb", "failed_origin"),
            )
        ),
        bmcs.c.scheme,
        sightings.c.power,
        sightings.c.power_at,
        sightings.c.boot_mode,
        sightings.c.health,
        sightings.c.swept_at,
        sightings.c.certificate_fp,
        sightings.c.clock_skew_ms,
        members.c.state.label("member_state"),
        members.c.trust,
        members.c.last_seen_at,
        _certified,
    )
    .select_from(
        nodes.join(node_views, node_views.c.node_id == nodes.c.node_id)
        .outerjoin(bmcs, bmcs.c.bmc_id == nodes.c.bmc_id)
        .outerjoin(sightings, sightings.c.node_id == nodes.c.node_id)
        .outerjoin(members, members.c.node_id == nodes.c.node_id)
    )
    .where(nodes.c.node_id.in_(bindparam("node_ids", expanding=True)))
)


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A node's view but for `allowedVerbs`, which is to be decided from `facts`."""

    stored: str
    facts: NodeFacts
    generation: int
    tenant_id: str
    pool_id: str
    desired_power: str | None
    sighting: Json | None
    agent: Json

    @property
    def doc(self) -> dict[str, Any]:
        """The whole of it, a new one each time."""
        return {**jsontext.load(self.stored), **self._seen()}

    def text(self, allowed_verbs: str) -> str:
        """The whole as JSON text, with the JSON of `allowedVerbs`. For lists: nothing that is stored is parsed."""
        return f'{{"allowedVerbs":{allowed_verbs},{jsontext.dump(self._seen())[1:-1]},{self.stored[1:]}'

    def _seen(self) -> dict[str, Any]:
        sighting = self.sighting or {}
        return {
            "power": {
                "observed": sighting.get("power"),
                "desired": self.desired_power,
                "observedAt": stamp(sighting.get("power_at")),
            },
            "health": sighting.get("health"),
            "agent": self.agent,
        }


def stamp(at: int | None) -> str | None:
    """RFC 3339, UTC, milliseconds."""
    if at is None:
        return None
    whole = datetime.fromtimestamp(at // SECOND, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{at % SECOND // 1000:03d}Z"


def read(c: Connection, node_ids: Sequence[str]) -> list[ViewRow]:
    """The views in the order that was asked; ids that name no node are left out."""
    if not node_ids:
        return []
    found = {row.node_id: row for row in c.execute(_READ, {"node_ids": list(node_ids)})}
    return [_view(found[node_id]) for node_id in node_ids if node_id in found]


def _view(row: Row[Any]) -> ViewRow:
    sighting = None
    if row.swept_at is not None:
        sighting = {
            "power": row.power,
            "power_at": row.power_at,
            "boot_mode": row.boot_mode,
            "health": row.health,
            "swept_at": row.swept_at,
            "certificate_fp": row.certificate_fp,
            "clock_skew_ms": row.clock_skew_ms,
        }
    return ViewRow(
        stored=row.doc,
        facts=rows.facts_from(row, row.serial, row.scheme, row.held_by_other),
        generation=row.generation,
        tenant_id=row.tenant_id,
        pool_id=row.pool_id,
        desired_power=row.desired_power,
        sighting=sighting,
        agent=_agent(row),
    )


def _agent(row: Row[Any]) -> dict[str, Any]:
    """The node as a member of its pool."""
    joined = row.member_state == "live"
    return {
        "joined": joined,
        "certificateExpiresAt": stamp(row.certified_until) if joined else None,
        "lastSeenAt": stamp(row.last_seen_at),
        "trust": row.trust if joined else None,
    }


def rewrite(c: Connection, node_id: str, now: Micros) -> None:
    """Store the view of a node as its rows are now, and with it `needsAttention`. A node that is gone has none."""
    row = c.execute(rows.NODE, {"node_id": node_id}).one_or_none()
    if row is None:
        return
    found = conditions.list(c, node_id)
    attention = conditions.needs_attention(row.state, found, row.maintenance, row.maintenance_until, now)
    if attention != row.needs_attention:
        c.execute(_ATTENTION, {"a_node_id": node_id, "a_needs": attention})
    named = identifiers.of_node(c, node_id)
    operation = _operation(c, row)
    queued = side_operations.queued(c, node_id)
    doc = {
        "nodeId": row.node_id,
        "name": row.name,
        "poolId": row.pool_id,
        "tenantId": row.tenant_id,
        "siteId": row.site_id,
        "state": row.state,
        "generation": row.generation,
        "bmc": _bmc(c, row, proving=any(one.verb == SideVerb.UPDATE.value for one in queued)),
        "identity": _identity(named),
        "hardware": jsontext.load_or_none(row.hardware),
        "disks": row.disks,
        "system": row.system,
        "notErased": row.not_erased,
        "profile": row.profile,
        "location": {"room": row.location_room, "rack": row.location_rack, "unit": row.location_unit},
        "assetTag": row.asset_tag,
        "bootMac": row.boot_mac,
        "rootDevice": jsontext.load_or_none(row.root_device),
        "labels": jsontext.load(row.labels),
        "conditions": [
            {
                "type": one.type,
                "status": one.status,
                "severity": one.severity,
                "reason": one.reason,
                "message": one.message,
                "since": stamp(one.since_at),
            }
            for one in found
        ],
        "needsAttention": attention,
        "maintenance": {
            "on": row.maintenance,
            "quiet": row.quiet,
            "reason": row.maintenance_reason,
            "until": stamp(row.maintenance_until),
        },
        "protected": {
            "on": row.protected,
            "reason": row.protected_reason,
            "until": stamp(row.protected_until),
        },
        "fenced": row.fenced_reason,
        "rescue": rescues.told(rescues.of(c, node_id), stamp) if row.state == "rescued" else None,
        "operation": operation,
        "sideOperations": [_side(row, one) for one in (*queued, *side_operations.failed(c, node_id))],
        # what troubles the operation under way; else what the last one ended with
        "lastError": (operation and operation["error"]) or last_error(jsontext.load_or_none(row.last_error), row.name),
        "createdAt": stamp(row.created_at),
        "updatedAt": stamp(row.updated_at),
    }
    c.execute(
        _PUT,
        {
            "node_id": node_id,
            "doc": jsontext.dump(doc),
            "serial": identifiers.serial_of(named),
            "held_by_other": bool(row.held_by_other),
        },
    )


def _bmc(c: Connection, row: Row[Any], *, proving: bool) -> dict[str, Any] | None:
    if row.b_bmc_id is None:
        return None
    slots = set(c.execute(_SLOTS, {"bmc_id": row.b_bmc_id}).scalars())
    return {
        "address": address(row.b_scheme, row.b_host, row.b_port, row.system_path),
        "driver": row.b_family or None,
        "network": row.b_network,
        "maker": row.b_maker,
        "model": row.b_model,
        "firmware": row.b_firmware,
        "credentialRef": row.b_cred_ref,
        "credentialsSet": row.b_cred_ref is not None or "current" in slots,
        "credentialsVerifiedAt": stamp(row.b_cred_verified_at),
        # new credentials, or a new address or trust, that the BMC was not proven with yet
        "pending": bool(slots & {"candidate", ROTATING}) or proving,
        "tls": {
            "verify": row.b_trust_kind,
            "fingerprint": row.b_trust_value if row.b_trust_kind == "fingerprint" else None,
        },
        "learned": jsontext.load(row.b_learned),
        "unreachableSince": stamp(row.b_breaker_since_at),
    }


def address(scheme: str, host: str, port: int, system_path: str | None) -> str:
    """As an admin would type it."""
    name = f"[{host}]" if ":" in host else host
    where = f"{name}:{port}" if port else name
    if not scheme:
        return where
    return f"{scheme}://{where}{system_path or ''}"


def _identity(found: tuple[Identifier, ...]) -> dict[str, Any]:
    return {
        "productUuid": identifiers.raw_of(
            "uuid", found
        ),  # in the BMC's own byte order: the normal form is for comparing alone
        "serial": identifiers.serial_of(found),
        "sku": identifiers.raw_of("sku", found),
        "macs": sorted({one.value_norm for one in found if one.kind == "mac" and one.usable}),
    }


def _operation(c: Connection, row: Row[Any]) -> dict[str, Any] | None:
    if row.operation_id is None:
        return None
    one = c.execute(_OPERATION, {"operation_id": row.operation_id}).one_or_none()
    if one is None:
        return None
    return {
        "id": one.operation_id,
        "verb": one.verb,
        "step": one.step,
        "stepNumber": one.step_number,
        "steps": one.steps,
        "cleaning": one.cleaning,
        "aborting": one.abort_at is not None,
        "progress": one.progress,
        "waitingFor": one.waiting_for,
        "since": stamp(one.waiting_since_at or one.started_at or one.created_at),
        "startedAt": stamp(one.started_at),
        "attempts": one.step_attempt,
        "nextTryAt": stamp(one.wake_at),
        "touched": one.touched,
        "budgetLeftS": max(0, one.budget_us - one.budget_used_us) // SECOND,
        "error": last_error(jsontext.load_or_none(one.error), row.name),
    }


def _side(node: Row[Any], one: Row[Any]) -> dict[str, Any]:
    """A hold of the whole node is said here: nothing is claimed meanwhile, so that the operation itself learns of none."""
    held = "the node is in maintenance" if node.maintenance or node.quiet else None
    queued = one.status == "queued"
    return {
        "id": one.operation_id,
        "verb": one.verb,
        "status": one.status,
        "by": one.by,
        "waitingFor": (held or one.waiting_for) if queued else None,
        "since": stamp(one.created_at),
        "nextTryAt": stamp(one.wake_at) if queued and held is None else None,
        "endedAt": stamp(one.ended_at),
        "error": last_error(jsontext.load_or_none(one.error), node.name),
    }


def last_error(error: Mapping[str, Any] | None, node_name: str) -> dict[str, Any] | None:
    """As the API shows it: with the hint that helps."""
    if error is None:
        return None
    return {
        "code": error["code"],
        "message": error["message"],
        "step": error.get("step"),
        "at": stamp(error.get("at")),
        "hint": hint_for(str(error["code"]), node_name),
    }
