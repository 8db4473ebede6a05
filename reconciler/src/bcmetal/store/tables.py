"""The tables.

Ids are text that sorts as bytes; times are BIGINT microseconds (`*_at`); states and other words are text without a CHECK (SQLite cannot
alter a constraint); uniqueness is by named indexes; JSON is text. Nothing that outlives a node points at it with a foreign key.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    TEXT,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

metadata: Final = MetaData()

Id: Final = Text().with_variant(TEXT(collation="C"), "postgresql")
Seq: Final = BigInteger().with_variant(Integer(), "sqlite")


def _id(name: str, **kw: Any) -> Column[str]:
    return Column(name, Id, nullable=False, **kw)


def _key(name: str) -> Column[str]:
    return Column(name, Id, primary_key=True, nullable=False)


def _maybe_id(name: str) -> Column[str]:
    return Column(name, Id, nullable=True)


def _text(name: str, **kw: Any) -> Column[str]:
    return Column(name, Text, nullable=False, **kw)


def _maybe_text(name: str) -> Column[str]:
    return Column(name, Text, nullable=True)


def _at(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _maybe_at(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True)


def _int(name: str, default: int = 0) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=str(default))


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=text("false"))


meta = Table("meta", metadata, _key("name"), _text("value"))
counters = Table("counters", metadata, _key("name"), _int("value"))
leases = Table("leases", metadata, _key("name"), _id("owner"), _int("epoch"), _at("until_at"))

bmcs = Table(
    "bmcs",
    metadata,
    _key("bmc_id"),
    _id("tenant_id"),
    _id("network"),
    _text("scheme"),
    _text("family"),  # redfish, ipmi, "" while not probed: what an address means
    _id("host"),
    Column("port", Integer, nullable=False),
    _text("trust_kind"),
    _text("trust_value"),
    _int("generation", 1),
    _maybe_text("cred_ref"),
    _maybe_at("cred_verified_at"),
    _maybe_at("proven_at"),
    _flag("exclusive"),  # proven, and a live node is behind it
    _maybe_text("maker"),
    _maybe_text("model"),
    _maybe_text("firmware"),
    _text("learned", server_default="{}"),
    _int("breaker_failures"),
    _maybe_at("breaker_since_at"),
    _maybe_at("breaker_until_at"),
)
Index("bmcs_address", bmcs.c.network, bmcs.c.host, bmcs.c.port, bmcs.c.family)
Index(
    "bmcs_proven_address",
    bmcs.c.network,
    bmcs.c.host,
    bmcs.c.port,
    bmcs.c.family,
    unique=True,
    sqlite_where=text("exclusive"),
    postgresql_where=text("exclusive"),
)
Index(
    "bmcs_away",
    bmcs.c.breaker_until_at,
    sqlite_where=bmcs.c.breaker_until_at.is_not(None),
    postgresql_where=bmcs.c.breaker_until_at.is_not(None),
)

bmc_logins = Table(
    "bmc_logins", metadata, _id("bmc_id"), _id("account_digest"), _at("at"), _text("outcome"), _text("by")
)
Index("bmc_logins_account", bmc_logins.c.bmc_id, bmc_logins.c.account_digest, bmc_logins.c.at)
Index("bmc_logins_at", bmc_logins.c.at)

nodes = Table(
    "nodes",
    metadata,
    _key("node_id"),
    _id("tenant_id"),
    _id("site_id"),
    _id("pool_id"),
    _id("name"),
    _text("state"),
    _int("generation", 1),
    _maybe_id("bmc_id"),
    _maybe_id("system_path"),
    _text("disks"),
    _text("system"),
    _maybe_text("desired_power"),
    _flag("maintenance"),
    _maybe_text("maintenance_reason"),
    _maybe_at("maintenance_until"),
    _flag("quiet"),
    _flag("protected"),
    _maybe_at("protected_until"),
    _maybe_text("protected_reason"),
    _flag("needs_attention"),
    _flag("not_erased"),
    _maybe_text("fenced_reason"),
    _maybe_text("profile"),
    _maybe_text("location_room"),
    _maybe_id("location_rack"),
    _maybe_text("location_unit"),
    _maybe_text("asset_tag"),
    _maybe_text("boot_mac"),
    _maybe_text("root_device"),
    _text("labels", server_default="{}"),
    _maybe_text("hardware"),  # the summary of the last inventory
    _maybe_id("operation_id"),
    _maybe_text("last_error"),
    _maybe_text("failed_verb"),
    _maybe_text("failed_origin"),
    _maybe_at("due_at"),
    _maybe_at("side_due_at"),  # the earliest of the queued side operations
    _maybe_text("queued_verb"),  # a workflow that waits for its first claim, under its cap
    _maybe_id("claim_owner"),
    _int("claim_epoch"),
    _maybe_at("claim_until"),
    _at("created_at"),
    _at("updated_at"),
)
Index("nodes_name", nodes.c.pool_id, nodes.c.name, unique=True)
Index("nodes_system", nodes.c.bmc_id, nodes.c.system_path, unique=True)
Index("nodes_pool_state", nodes.c.pool_id, nodes.c.state, nodes.c.node_id)
Index("nodes_pool", nodes.c.pool_id, nodes.c.node_id)
_running = nodes.c.due_at.is_not(None) & nodes.c.queued_verb.is_(None)
Index("nodes_due", nodes.c.due_at, nodes.c.node_id, sqlite_where=_running, postgresql_where=_running)
_waiting = nodes.c.queued_verb.is_not(None)
Index("nodes_queued", nodes.c.queued_verb, nodes.c.due_at, sqlite_where=_waiting, postgresql_where=_waiting)
_claimed = nodes.c.claim_owner.is_not(None)
Index("nodes_claimed", nodes.c.claim_owner, sqlite_where=_claimed, postgresql_where=_claimed)
_attention = text("needs_attention")
Index("nodes_attention", nodes.c.node_id, sqlite_where=_attention, postgresql_where=_attention)
Index("nodes_rack", nodes.c.location_rack)

node_labels = Table("node_labels", metadata, _key("node_id"), _key("key"), _id("value"))
Index("node_labels_value", node_labels.c.key, node_labels.c.value, node_labels.c.node_id)

node_identifiers = Table(
    "node_identifiers",
    metadata,
    _key("node_id"),
    _key("kind"),
    _key("value_norm"),
    _key("source"),
    _text("raw"),
    _flag("usable"),
    _at("seen_at"),
)
Index("node_identifiers_value", node_identifiers.c.kind, node_identifiers.c.value_norm)

# An exclusive identifier (uuid, mac) of a live node, whatever the source that named it.
identities = Table("identities", metadata, _key("kind"), _key("value_norm"), _id("node_id"))
Index("identities_node", identities.c.node_id)

node_views = Table("node_views", metadata, _key("node_id"), _text("doc"), _maybe_text("serial"), _flag("held_by_other"))

sightings = Table(
    "sightings",
    metadata,
    _key("node_id"),
    _maybe_text("power"),
    _maybe_at("power_at"),
    _maybe_text("boot_mode"),
    _maybe_text("health"),
    _maybe_text("certificate_fp"),
    _maybe_at("clock_skew_ms"),
    _at("swept_at"),
)
Index("sightings_swept", sightings.c.swept_at)

conditions = Table(
    "conditions",
    metadata,
    _key("node_id"),
    _key("type"),
    _text("status"),
    _text("severity"),
    _text("reason"),
    _text("message"),
    _at("since_at"),
    _maybe_text("acked_by"),
    _maybe_at("snoozed_until_at"),
)
_error = conditions.c.status == text("'error'")
Index("conditions_error", conditions.c.since_at, sqlite_where=_error, postgresql_where=_error)

operations = Table(
    "operations",
    metadata,
    _key("operation_id"),
    _id("node_id"),
    _id("tenant_id"),
    _text("kind"),
    _text("verb"),
    _text("status"),
    _text("origin_state"),
    _text("input"),
    _text("by"),
    _maybe_text("step"),
    _maybe_at("step_number"),
    _maybe_at("steps"),
    _int("step_attempt"),
    _int("backs"),
    _flag("touched"),
    _maybe_at("abort_at"),
    _maybe_text("abort_by"),
    _flag("cleaning"),
    _maybe_at("wake_at"),
    _int("asked_wait_us"),
    _at("counted_at"),
    _int("budget_us"),
    _int("budget_used_us"),
    _maybe_text("waiting_for"),
    _maybe_at("waiting_since_at"),
    Column("progress", Float, nullable=True),
    _maybe_text("error"),
    _text("memo", server_default="{}"),
    _at("created_at"),
    _maybe_at("started_at"),
    _maybe_at("ended_at"),
)
_open_workflow = (operations.c.kind == text("'workflow'")) & operations.c.ended_at.is_(None)
Index(
    "operations_one_workflow",
    operations.c.node_id,
    unique=True,
    sqlite_where=_open_workflow,
    postgresql_where=_open_workflow,
)
Index("operations_node", operations.c.node_id, operations.c.created_at)
_queued = operations.c.status == text("'queued'")
Index("operations_queued", operations.c.node_id, sqlite_where=_queued, postgresql_where=_queued)
_started = (operations.c.status == text("'running'")) & operations.c.started_at.is_not(None)
Index("operations_running", operations.c.verb, sqlite_where=_started, postgresql_where=_started)
Index("operations_ended", operations.c.ended_at)

intents = Table(
    "intents",
    metadata,
    _key("operation_id"),
    Column("n", Integer, primary_key=True, autoincrement=False),
    _text("name"),
    _text("args_digest"),
    _at("begun_at"),
    _maybe_at("ended_at"),
    _maybe_text("outcome"),
)

step_runs = Table(
    "step_runs",
    metadata,
    Column("n", Seq, primary_key=True, autoincrement=True),
    _id("operation_id"),
    _text("step"),
    Column("attempt", Integer, nullable=False),
    _text("outcome"),
    _maybe_text("why"),
    _maybe_text("model"),
    _at("started_at"),
    _at("ended_at"),
    _maybe_text("daemon_id"),
)
Index("step_runs_operation", step_runs.c.operation_id, step_runs.c.n)
Index("step_runs_duration", step_runs.c.step, step_runs.c.model, step_runs.c.ended_at)

sealed = Table(
    "sealed",
    metadata,
    _key("owner_kind"),
    _key("owner_id"),
    _key("field"),
    _key("slot"),
    _text("key_id"),
    Column("nonce", LargeBinary, nullable=False),
    Column("blob", LargeBinary, nullable=False),
)
Index("sealed_owner", sealed.c.owner_id)

inventories = Table(
    "inventories",
    metadata,
    _key("inventory_id"),
    _id("node_id"),
    _text("source"),
    _at("taken_at"),
    _text("digest"),
    _text("sections"),
    _text("doc"),
)
Index("inventories_node", inventories.c.node_id, inventories.c.source, inventories.c.taken_at)

baselines = Table("baselines", metadata, _key("node_id"), _at("taken_at"), _text("digest"), _text("doc"))

drives = Table(
    "drives",
    metadata,
    _key("model_norm"),
    _key("serial_norm"),
    _text("serial"),
    _maybe_text("model"),
    _maybe_text("wwn"),
    _maybe_at("capacity_bytes"),
    _maybe_id("node_id"),
    _maybe_id("holder_tenant"),
    _flag("may_hold_data"),
    _flag("shared"),
    _at("first_at"),
    _at("last_at"),
)
Index("drives_node", drives.c.node_id)
Index("drives_wwn", drives.c.wwn)

erasure_records = Table(
    "erasure_records",
    metadata,
    _key("record_id"),
    _text("serial"),
    _id("node_id"),
    _id("tenant_id"),
    _id("pool_id"),
    _text("doc"),
    Column("signature", LargeBinary, nullable=True),
    _at("at"),
)
Index("erasure_records_tenant", erasure_records.c.tenant_id, erasure_records.c.at)

tombstones = Table(
    "tombstones",
    metadata,
    _key("node_id"),
    _id("tenant_id"),
    _id("pool_id"),
    _text("name"),
    _text("reason"),
    _text("doc"),  # the last view
    _at("at"),
)

audit = Table(
    "audit",
    metadata,
    _key("audit_id"),
    _at("at"),
    _text("identity"),
    _id("tenant_id"),
    _text("address"),
    _text("action"),
    _text("resource"),
    _maybe_id("node_id"),
    _text("outcome"),
    _text("trace_id"),
    _text("doc"),
)
Index("audit_tenant", audit.c.tenant_id, audit.c.at)
Index("audit_node", audit.c.node_id, audit.c.at)

outbox = Table(
    "outbox",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=True),
    _id("event_id"),
    _maybe_id("node_id"),
    _id("tenant_id"),
    _id("pool_id"),
    _id("site_id"),
    _text("type"),
    _text("data"),
    _at("at"),
    _maybe_at("position"),
    sqlite_autoincrement=True,  # a pruned number is never given again
)
Index("outbox_event", outbox.c.event_id, unique=True)
Index("outbox_position", outbox.c.position, unique=True)
_undelivered = outbox.c.position.is_(None)
Index("outbox_undelivered", outbox.c.seq, sqlite_where=_undelivered, postgresql_where=_undelivered)

sinks = Table("sinks", metadata, _key("name"), _int("position"), _maybe_at("backlog_from"))

api_keys = Table(
    "api_keys",
    metadata,
    _key("key_id"),
    Column("sha256", LargeBinary, nullable=False),
    _id("identity"),
    _id("tenant_id"),
    _at("created_at"),
    _maybe_at("expires_at"),
    _maybe_at("last_used_at"),
    _maybe_at("revoked_at"),
)
Index("api_keys_sha256", api_keys.c.sha256, unique=True)

idempotency = Table(
    "idempotency",
    metadata,
    _key("tenant_id"),
    _key("identity"),
    _key("key"),
    _text("method"),
    _text("digest"),
    _maybe_id("operation_id"),
    _maybe_id("node_id"),
    _maybe_id("token_id"),
    _at("at"),
)
Index("idempotency_at", idempotency.c.at)

freezes = Table("freezes", metadata, _key("scope_kind"), _key("scope_id"), _text("reason"), _text("by"), _at("at"))

rack_slots = Table(
    "rack_slots",
    metadata,
    _key("site_id"),
    _key("rack"),
    Column("slot", Integer, primary_key=True, autoincrement=False),
    _at("taken_at"),
)

media = Table(
    "media",
    metadata,
    _key("path"),
    _id("node_id"),
    _id("operation_id"),
    _text("sha256"),
    _text("file"),
    _text("bmc_host"),
    _maybe_at("expires_at"),
    _int("served"),
    _maybe_at("served_at"),
    _at("created_at"),
    _maybe_at("ended_at"),
)
Index("media_node", media.c.node_id)
Index("media_operation", media.c.operation_id)
