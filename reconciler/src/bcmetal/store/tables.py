"""The tables.

Ids are text that sorts as bytes; times are BIGINT microseconds (`*_at`); states and other words are text without a CHECK (SQLite cannot
alter a constraint); uniqueness is by named indexes; JSON is text. Nothing that outlives a node points at it with a foreign key.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    Table,
    text,
)

from bcmetal.store.columns import (
    Seq,
    count,
    flag,
    ident,
    key,
    maybe_ident,
    maybe_moment,
    maybe_words,
    moment,
    words,
)
from bcmetal.store.columns import (
    metadata as metadata,
)

meta = Table("meta", metadata, key("name"), words("value"))
counters = Table("counters", metadata, key("name"), count("value"))
leases = Table("leases", metadata, key("name"), ident("owner"), count("epoch"), moment("until_at"))
daemons = Table(
    "daemons",
    metadata,
    key("daemon_id"),
    count("code"),
    words("config_digest"),
    moment("config_at"),  # since when it goes by this configuration
    moment("heartbeat_at"),
)

bmcs = Table(
    "bmcs",
    metadata,
    key("bmc_id"),
    ident("tenant_id"),
    ident("network"),
    words("scheme"),
    words("family"),  # redfish, ipmi, "" while not probed: what an address means
    ident("host"),
    Column("port", Integer, nullable=False),
    words("trust_kind"),
    words("trust_value"),
    count("generation", 1),
    maybe_words("cred_ref"),
    maybe_moment("cred_verified_at"),
    maybe_moment("proven_at"),
    flag("exclusive"),  # proven, and a live node is behind it
    maybe_words("maker"),
    maybe_words("model"),
    maybe_words("firmware"),
    words("learned", server_default="{}"),
    count("breaker_failures"),
    maybe_moment("breaker_since_at"),
    maybe_moment("breaker_until_at"),
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
    "bmc_logins", metadata, ident("bmc_id"), ident("account_digest"), moment("at"), words("outcome"), words("by")
)
Index("bmc_logins_account", bmc_logins.c.bmc_id, bmc_logins.c.account_digest, bmc_logins.c.at)
Index("bmc_logins_at", bmc_logins.c.at)

nodes = Table(
    "nodes",
    metadata,
    key("node_id"),
    ident("tenant_id"),
    ident("site_id"),
    ident("pool_id"),
    ident("name"),
    words("state"),
    count("generation", 1),
    maybe_ident("bmc_id"),
    maybe_ident("system_path"),
    words("disks"),
    words("system"),
    maybe_words("desired_power"),
    flag("maintenance"),
    maybe_words("maintenance_reason"),
    maybe_moment("maintenance_until"),
    flag("quiet"),
    flag("protected"),
    maybe_moment("protected_until"),
    maybe_words("protected_reason"),
    flag("needs_attention"),
    flag("not_erased"),
    maybe_words("fenced_reason"),
    maybe_words("profile"),
    maybe_words("location_room"),
    maybe_ident("location_rack"),
    maybe_words("location_unit"),
    maybe_words("asset_tag"),
    maybe_words("boot_mac"),
    maybe_words("root_device"),
    words("labels", server_default="{}"),
    maybe_words("hardware"),  # the summary of the last inventory
    maybe_ident("operation_id"),
    maybe_words("last_error"),
    maybe_words("failed_verb"),
    maybe_words("failed_origin"),
    maybe_moment("due_at"),
    maybe_moment("side_due_at"),  # the earliest of the queued side operations
    maybe_words("queued_verb"),  # a workflow that waits for its first claim, under its cap
    maybe_ident("claim_owner"),
    count("claim_epoch"),
    maybe_moment("claim_until"),
    moment("created_at"),
    moment("updated_at"),
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

node_labels = Table("node_labels", metadata, key("node_id"), key("key"), ident("value"))
Index("node_labels_value", node_labels.c.key, node_labels.c.value, node_labels.c.node_id)

node_identifiers = Table(
    "node_identifiers",
    metadata,
    key("node_id"),
    key("kind"),
    key("value_norm"),
    key("source"),
    words("raw"),
    flag("usable"),
    moment("seen_at"),
)
Index("node_identifiers_value", node_identifiers.c.kind, node_identifiers.c.value_norm)

# An exclusive identifier (uuid, mac) of a live node, whatever the source that named it.
identities = Table("identities", metadata, key("kind"), key("value_norm"), ident("node_id"))
Index("identities_node", identities.c.node_id)

node_views = Table("node_views", metadata, key("node_id"), words("doc"), maybe_words("serial"), flag("held_by_other"))

sightings = Table(
    "sightings",
    metadata,
    key("node_id"),
    maybe_words("power"),
    maybe_moment("power_at"),
    maybe_words("boot_mode"),
    maybe_words("health"),
    maybe_words("certificate_fp"),
    maybe_moment("clock_skew_ms"),
    moment("swept_at"),
)
Index("sightings_swept", sightings.c.swept_at)

conditions = Table(
    "conditions",
    metadata,
    key("node_id"),
    key("type"),
    words("status"),
    words("severity"),
    words("reason"),
    words("message"),
    moment("since_at"),
    maybe_words("acked_by"),
    maybe_moment("snoozed_until_at"),
)
_error = conditions.c.status == text("'error'")
Index("conditions_error", conditions.c.since_at, sqlite_where=_error, postgresql_where=_error)

operations = Table(
    "operations",
    metadata,
    key("operation_id"),
    ident("node_id"),
    ident("tenant_id"),
    words("kind"),
    words("verb"),
    words("status"),
    words("origin_state"),
    words("input"),
    words("by"),
    maybe_words("step"),
    maybe_moment("step_number"),
    maybe_moment("steps"),
    count("step_attempt"),
    count("backs"),
    flag("touched"),
    maybe_moment("abort_at"),
    maybe_words("abort_by"),
    flag("cleaning"),
    maybe_moment("wake_at"),
    count("asked_wait_us"),
    moment("counted_at"),
    count("budget_us"),
    count("budget_used_us"),
    maybe_words("waiting_for"),
    maybe_moment("waiting_since_at"),
    Column("progress", Float, nullable=True),
    maybe_words("error"),
    words("memo", server_default="{}"),
    moment("created_at"),
    maybe_moment("started_at"),
    maybe_moment("ended_at"),
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
    key("operation_id"),
    Column("n", Integer, primary_key=True, autoincrement=False),
    words("name"),
    words("args_digest"),
    moment("begun_at"),
    maybe_moment("ended_at"),
    maybe_words("outcome"),
)

step_runs = Table(
    "step_runs",
    metadata,
    Column("n", Seq, primary_key=True, autoincrement=True),
    ident("operation_id"),
    words("step"),
    Column("attempt", Integer, nullable=False),
    words("outcome"),
    maybe_words("why"),
    maybe_words("model"),
    moment("started_at"),
    moment("ended_at"),
    maybe_words("daemon_id"),
)
Index("step_runs_operation", step_runs.c.operation_id, step_runs.c.n)
Index("step_runs_duration", step_runs.c.step, step_runs.c.model, step_runs.c.ended_at)

sealed = Table(
    "sealed",
    metadata,
    key("owner_kind"),
    key("owner_id"),
    key("field"),
    key("slot"),
    words("key_id"),
    Column("nonce", LargeBinary, nullable=False),
    Column("blob", LargeBinary, nullable=False),
)
Index("sealed_owner", sealed.c.owner_id)

inventories = Table(
    "inventories",
    metadata,
    key("inventory_id"),
    ident("node_id"),
    words("source"),
    moment("taken_at"),
    words("digest"),
    words("sections"),
    words("doc"),
)
Index("inventories_node", inventories.c.node_id, inventories.c.source, inventories.c.taken_at)

baselines = Table("baselines", metadata, key("node_id"), moment("taken_at"), words("digest"), words("doc"))

drives = Table(
    "drives",
    metadata,
    key("model_norm"),
    key("serial_norm"),
    words("serial"),
    maybe_words("model"),
    maybe_words("wwn"),
    maybe_moment("capacity_bytes"),
    maybe_ident("node_id"),
    maybe_ident("holder_tenant"),
    flag("may_hold_data"),
    flag("shared"),
    moment("first_at"),
    moment("last_at"),
)
Index("drives_node", drives.c.node_id)
Index("drives_wwn", drives.c.wwn)

# Which node sees which drive now. More than one live node: the drive is shared, and never written.
drive_reports = Table(
    "drive_reports", metadata, key("node_id"), key("model_norm"), key("serial_norm"), maybe_words("wwn_norm")
)
Index("drive_reports_drive", drive_reports.c.model_norm, drive_reports.c.serial_norm)
Index("drive_reports_wwn", drive_reports.c.wwn_norm)

erasure_records = Table(
    "erasure_records",
    metadata,
    key("record_id"),
    words("serial"),
    ident("node_id"),
    ident("tenant_id"),
    ident("pool_id"),
    words("doc"),
    Column("signature", LargeBinary, nullable=True),
    moment("at"),
)
Index("erasure_records_tenant", erasure_records.c.tenant_id, erasure_records.c.at)

# Public halves of the keys that sign erasure records, for ever; the private half of the one that signs now is sealed under its id.
proof_keys = Table(
    "proof_keys", metadata, key("key_id"), words("public_key"), moment("created_at"), maybe_moment("retired_at")
)

tombstones = Table(
    "tombstones",
    metadata,
    key("node_id"),
    ident("tenant_id"),
    ident("pool_id"),
    words("name"),
    words("reason"),
    words("doc"),  # the last view
    moment("at"),
)

audit = Table(
    "audit",
    metadata,
    key("audit_id"),
    moment("at"),
    words("identity"),
    ident("tenant_id"),
    words("address"),
    words("action"),
    words("resource"),
    maybe_ident("node_id"),
    words("outcome"),
    words("trace_id"),
    words("doc"),
)
Index("audit_tenant", audit.c.tenant_id, audit.c.at)
Index("audit_node", audit.c.node_id, audit.c.at)

outbox = Table(
    "outbox",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=True),
    ident("event_id"),
    maybe_ident("node_id"),
    ident("tenant_id"),
    ident("pool_id"),
    ident("site_id"),
    words("type"),
    words("data"),
    moment("at"),
    maybe_moment("position"),
    sqlite_autoincrement=True,  # a pruned number is never given again
)
Index("outbox_event", outbox.c.event_id, unique=True)
Index("outbox_position", outbox.c.position, unique=True)
_undelivered = outbox.c.position.is_(None)
Index("outbox_undelivered", outbox.c.seq, sqlite_where=_undelivered, postgresql_where=_undelivered)

sinks = Table("sinks", metadata, key("name"), count("position"), maybe_moment("backlog_from"))

api_keys = Table(
    "api_keys",
    metadata,
    key("key_id"),
    Column("sha256", LargeBinary, nullable=False),
    ident("identity"),
    ident("tenant_id"),
    moment("created_at"),
    maybe_moment("expires_at"),
    maybe_moment("last_used_at"),
    maybe_moment("revoked_at"),
)
Index("api_keys_sha256", api_keys.c.sha256, unique=True)

idempotency = Table(
    "idempotency",
    metadata,
    key("tenant_id"),
    key("identity"),
    key("key"),
    words("method"),
    words("digest"),
    maybe_ident("operation_id"),
    maybe_ident("node_id"),
    maybe_ident("token_id"),
    moment("at"),
)
Index("idempotency_at", idempotency.c.at)

freezes = Table("freezes", metadata, key("scope_kind"), key("scope_id"), words("reason"), words("by"), moment("at"))

rack_slots = Table(
    "rack_slots",
    metadata,
    key("site_id"),
    key("rack"),
    Column("slot", Integer, primary_key=True, autoincrement=False),
    moment("taken_at"),
)

media = Table(
    "media",
    metadata,
    key("path"),
    ident("node_id"),
    ident("operation_id"),
    words("sha256"),
    words("file"),
    words("bmc_host"),
    maybe_moment("token_offset"),  # where the boot token's file lies on it; none: it has no place for one
    maybe_moment("expires_at"),
    count("served"),
    maybe_moment("served_at"),
    moment("created_at"),
    maybe_moment("ended_at"),
)
Index("media_node", media.c.node_id)
Index("media_operation", media.c.operation_id)
