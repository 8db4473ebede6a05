"""The first schema."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("identity", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("tenant_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key_id"),
    )
    op.create_index("api_keys_sha256", "api_keys", ["sha256"], unique=True)
    op.create_table(
        "audit",
        sa.Column("audit_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("audit_id"),
    )
    op.create_index("audit_node", "audit", ["node_id", "at"], unique=False)
    op.create_index("audit_tenant", "audit", ["tenant_id", "at"], unique=False)
    op.create_table(
        "baselines",
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("taken_at", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("node_id"),
    )
    op.create_table(
        "bmc_logins",
        sa.Column("bmc_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("account_digest", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
    )
    op.create_index("bmc_logins_account", "bmc_logins", ["bmc_id", "account_digest", "at"], unique=False)
    op.create_index("bmc_logins_at", "bmc_logins", ["at"], unique=False)
    op.create_table(
        "bmcs",
        sa.Column("bmc_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("tenant_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("network", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("scheme", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("host", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("trust_kind", sa.Text(), nullable=False),
        sa.Column("trust_value", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("cred_ref", sa.Text(), nullable=True),
        sa.Column("cred_verified_at", sa.BigInteger(), nullable=True),
        sa.Column("proven_at", sa.BigInteger(), nullable=True),
        sa.Column("exclusive", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("maker", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("firmware", sa.Text(), nullable=True),
        sa.Column("learned", sa.Text(), server_default="{}", nullable=False),
        sa.Column("breaker_failures", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("breaker_since_at", sa.BigInteger(), nullable=True),
        sa.Column("breaker_until_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("bmc_id"),
    )
    op.create_index("bmcs_address", "bmcs", ["network", "host", "port", "family"], unique=False)
    op.create_index(
        "bmcs_away",
        "bmcs",
        ["breaker_until_at"],
        unique=False,
        sqlite_where=sa.text("breaker_until_at IS NOT NULL"),
        postgresql_where=sa.text("breaker_until_at IS NOT NULL"),
    )
    op.create_index(
        "bmcs_proven_address",
        "bmcs",
        ["network", "host", "port", "family"],
        unique=True,
        sqlite_where=sa.text("exclusive"),
        postgresql_where=sa.text("exclusive"),
    )
    op.create_table(
        "conditions",
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("type", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("since_at", sa.BigInteger(), nullable=False),
        sa.Column("acked_by", sa.Text(), nullable=True),
        sa.Column("snoozed_until_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("node_id", "type"),
    )
    op.create_index(
        "conditions_error",
        "conditions",
        ["since_at"],
        unique=False,
        sqlite_where=sa.text("status = 'error'"),
        postgresql_where=sa.text("status = 'error'"),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("value", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "drives",
        sa.Column("model_norm", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("serial_norm", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("serial", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("wwn", sa.Text(), nullable=True),
        sa.Column("capacity_bytes", sa.BigInteger(), nullable=True),
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("holder_tenant", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("may_hold_data", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("shared", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("model_norm", "serial_norm"),
    )
    op.create_index("drives_node", "drives", ["node_id"], unique=False)
    op.create_index("drives_wwn", "drives", ["wwn"], unique=False)
    op.create_table(
        "erasure_records",
        sa.Column("record_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("serial", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("tenant_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("pool_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("record_id"),
    )
    op.create_index("erasure_records_tenant", "erasure_records", ["tenant_id", "at"], unique=False)
    op.create_table(
        "freezes",
        sa.Column("scope_kind", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("scope_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope_kind", "scope_id"),
    )
    op.create_table(
        "idempotency",
        sa.Column("tenant_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("identity", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("key", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("token_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "identity", "key"),
    )
    op.create_index("idempotency_at", "idempotency", ["at"], unique=False)
    op.create_table(
        "identities",
        sa.Column("kind", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("value_norm", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("kind", "value_norm"),
    )
    op.create_index("identities_node", "identities", ["node_id"], unique=False)
    op.create_table(
        "intents",
        sa.Column("operation_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("args_digest", sa.Text(), nullable=False),
        sa.Column("begun_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("operation_id", "n"),
    )
    op.create_table(
        "inventories",
        sa.Column("inventory_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("taken_at", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("sections", sa.Text(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("inventory_id"),
    )
    op.create_index("inventories_node", "inventories", ["node_id", "source", "taken_at"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("owner", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("until_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "media",
        sa.Column("path", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("operation_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("bmc_host", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("served", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("served_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("path"),
    )
    op.create_index("media_node", "media", ["node_id"], unique=False)
    op.create_index("media_operation", "media", ["operation_id"], unique=False)
    op.create_table(
        "meta",
        sa.Column("name", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "node_identifiers",
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("kind", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("value_norm", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("source", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.Column("usable", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", "kind", "value_norm", "source"),
    )
    op.create_index("node_identifiers_value", "node_identifiers", ["kind", "value_norm"], unique=False)
    op.create_table(
        "node_labels",
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("key", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("value", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("node_id", "key"),
    )
    op.create_index("node_labels_value", "node_labels", ["key", "value", "node_id"], unique=False)
    op.create_table(
        "node_views",
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.Column("serial", sa.Text(), nullable=True),
        sa.Column("held_by_other", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.PrimaryKeyConstraint("node_id"),
    )
    op.create_table(
        "nodes",
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("tenant_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("site_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("pool_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("name", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("bmc_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("system_path", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("disks", sa.Text(), nullable=False),
        sa.Column("system", sa.Text(), nullable=False),
        sa.Column("desired_power", sa.Text(), nullable=True),
        sa.Column("maintenance", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("maintenance_reason", sa.Text(), nullable=True),
        sa.Column("maintenance_until", sa.BigInteger(), nullable=True),
        sa.Column("quiet", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("protected", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("protected_until", sa.BigInteger(), nullable=True),
        sa.Column("protected_reason", sa.Text(), nullable=True),
        sa.Column("needs_attention", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("not_erased", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("fenced_reason", sa.Text(), nullable=True),
        sa.Column("profile", sa.Text(), nullable=True),
        sa.Column("location_room", sa.Text(), nullable=True),
        sa.Column("location_rack", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("location_unit", sa.Text(), nullable=True),
        sa.Column("asset_tag", sa.Text(), nullable=True),
        sa.Column("boot_mac", sa.Text(), nullable=True),
        sa.Column("root_device", sa.Text(), nullable=True),
        sa.Column("labels", sa.Text(), server_default="{}", nullable=False),
        sa.Column("hardware", sa.Text(), nullable=True),
        sa.Column("operation_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("failed_verb", sa.Text(), nullable=True),
        sa.Column("failed_origin", sa.Text(), nullable=True),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("side_due_at", sa.BigInteger(), nullable=True),
        sa.Column("queued_verb", sa.Text(), nullable=True),
        sa.Column("claim_owner", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("claim_epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("claim_until", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node_id"),
    )
    op.create_index(
        "nodes_attention",
        "nodes",
        ["node_id"],
        unique=False,
        sqlite_where=sa.text("needs_attention"),
        postgresql_where=sa.text("needs_attention"),
    )
    op.create_index(
        "nodes_claimed",
        "nodes",
        ["claim_owner"],
        unique=False,
        sqlite_where=sa.text("claim_owner IS NOT NULL"),
        postgresql_where=sa.text("claim_owner IS NOT NULL"),
    )
    op.create_index(
        "nodes_due",
        "nodes",
        ["due_at", "node_id"],
        unique=False,
        sqlite_where=sa.text("due_at IS NOT NULL AND queued_verb IS NULL"),
        postgresql_where=sa.text("due_at IS NOT NULL AND queued_verb IS NULL"),
    )
    op.create_index("nodes_name", "nodes", ["pool_id", "name"], unique=True)
    op.create_index("nodes_pool", "nodes", ["pool_id", "node_id"], unique=False)
    op.create_index("nodes_pool_state", "nodes", ["pool_id", "state", "node_id"], unique=False)
    op.create_index(
        "nodes_queued",
        "nodes",
        ["queued_verb", "due_at"],
        unique=False,
        sqlite_where=sa.text("queued_verb IS NOT NULL"),
        postgresql_where=sa.text("queued_verb IS NOT NULL"),
    )
    op.create_index("nodes_rack", "nodes", ["location_rack"], unique=False)
    op.create_index("nodes_system", "nodes", ["bmc_id", "system_path"], unique=True)
    op.create_table(
        "operations",
        sa.Column("operation_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("tenant_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("origin_state", sa.Text(), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=True),
        sa.Column("step_number", sa.BigInteger(), nullable=True),
        sa.Column("steps", sa.BigInteger(), nullable=True),
        sa.Column("step_attempt", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("backs", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("touched", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("abort_at", sa.BigInteger(), nullable=True),
        sa.Column("abort_by", sa.Text(), nullable=True),
        sa.Column("cleaning", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("wake_at", sa.BigInteger(), nullable=True),
        sa.Column("asked_wait_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("counted_at", sa.BigInteger(), nullable=False),
        sa.Column("budget_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("budget_used_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("waiting_for", sa.Text(), nullable=True),
        sa.Column("waiting_since_at", sa.BigInteger(), nullable=True),
        sa.Column("progress", sa.Float(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("memo", sa.Text(), server_default="{}", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("operation_id"),
    )
    op.create_index("operations_ended", "operations", ["ended_at"], unique=False)
    op.create_index("operations_node", "operations", ["node_id", "created_at"], unique=False)
    op.create_index(
        "operations_one_workflow",
        "operations",
        ["node_id"],
        unique=True,
        sqlite_where=sa.text("kind = 'workflow' AND ended_at IS NULL"),
        postgresql_where=sa.text("kind = 'workflow' AND ended_at IS NULL"),
    )
    op.create_index(
        "operations_queued",
        "operations",
        ["node_id"],
        unique=False,
        sqlite_where=sa.text("status = 'queued'"),
        postgresql_where=sa.text("status = 'queued'"),
    )
    op.create_index(
        "operations_running",
        "operations",
        ["verb"],
        unique=False,
        sqlite_where=sa.text("status = 'running' AND started_at IS NOT NULL"),
        postgresql_where=sa.text("status = 'running' AND started_at IS NOT NULL"),
    )
    op.create_table(
        "outbox",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("event_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("tenant_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("pool_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("site_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    op.create_index("outbox_event", "outbox", ["event_id"], unique=True)
    op.create_index("outbox_position", "outbox", ["position"], unique=True)
    op.create_index(
        "outbox_undelivered",
        "outbox",
        ["seq"],
        unique=False,
        sqlite_where=sa.text("position IS NULL"),
        postgresql_where=sa.text("position IS NULL"),
    )
    op.create_table(
        "rack_slots",
        sa.Column("site_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("rack", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("taken_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("site_id", "rack", "slot"),
    )
    op.create_table(
        "sealed",
        sa.Column("owner_kind", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("owner_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("field", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("slot", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("nonce", sa.LargeBinary(), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("owner_kind", "owner_id", "field", "slot"),
    )
    op.create_index("sealed_owner", "sealed", ["owner_id"], unique=False)
    op.create_table(
        "sightings",
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("power", sa.Text(), nullable=True),
        sa.Column("power_at", sa.BigInteger(), nullable=True),
        sa.Column("boot_mode", sa.Text(), nullable=True),
        sa.Column("health", sa.Text(), nullable=True),
        sa.Column("certificate_fp", sa.Text(), nullable=True),
        sa.Column("clock_skew_ms", sa.BigInteger(), nullable=True),
        sa.Column("swept_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node_id"),
    )
    op.create_index("sightings_swept", "sightings", ["swept_at"], unique=False)
    op.create_table(
        "sinks",
        sa.Column("name", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("position", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("backlog_from", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "step_runs",
        sa.Column("n", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("operation_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("daemon_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("n"),
    )
    op.create_index("step_runs_duration", "step_runs", ["step", "model", "ended_at"], unique=False)
    op.create_index("step_runs_operation", "step_runs", ["operation_id", "n"], unique=False)
    op.create_table(
        "tombstones",
        sa.Column("node_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("tenant_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("pool_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node_id"),
    )
