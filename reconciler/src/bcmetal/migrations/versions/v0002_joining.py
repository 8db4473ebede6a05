"""Joining: tokens, requests, members, certificates, and what signs them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

ID = sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "join_tokens",
        sa.Column("token_id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("pool_id", ID, nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("max_uses", sa.BigInteger(), nullable=False, server_default="1"),
        sa.Column("uses", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("reserved", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("expect", sa.Text(), nullable=True),
        sa.Column("allow_reclaim", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.Column("hosted", sa.Text(), nullable=True),
        sa.Column("node_id", ID, nullable=True),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("token_id"),
    )
    op.create_index(
        "join_tokens_node",
        "join_tokens",
        ["node_id"],
        unique=False,
        sqlite_where=sa.text("node_id IS NOT NULL"),
        postgresql_where=sa.text("node_id IS NOT NULL"),
    )
    op.create_index("join_tokens_pool", "join_tokens", ["pool_id", "token_id"], unique=False)
    op.create_table(
        "join_requests",
        sa.Column("request_id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("pool_id", ID, nullable=False),
        sa.Column("token_id", ID, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attestor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("csr_sha256", ID, nullable=False),
        sa.Column("key_sha256", sa.Text(), nullable=False),
        sa.Column("claim_sha256", sa.Text(), nullable=False),
        sa.Column("claim", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("node_id", ID, nullable=True),
        sa.Column("ek_sha256", ID, nullable=True),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False, server_default="1"),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("decision_reason", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("request_id"),
    )
    op.create_index(
        "join_requests_expiry",
        "join_requests",
        ["expires_at"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "join_requests_live",
        "join_requests",
        ["pool_id", "csr_sha256"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index("join_requests_pool", "join_requests", ["pool_id", "request_id"], unique=False)
    op.create_index("join_requests_token", "join_requests", ["token_id"], unique=False)
    op.create_table(
        "members",
        sa.Column("node_id", ID, nullable=False),
        sa.Column("tenant_id", ID, nullable=False),
        sa.Column("pool_id", ID, nullable=False),
        sa.Column("site_id", ID, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("trust", sa.Text(), nullable=False),
        sa.Column("hosted", sa.Text(), nullable=True),
        sa.Column("token_id", ID, nullable=True),
        sa.Column("request_id", ID, nullable=True),
        sa.Column("attestor", sa.Text(), nullable=False),
        sa.Column("admitted_by", sa.Text(), nullable=False),
        sa.Column("ek_sha256", ID, nullable=True),
        sa.Column("tpm_proven", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.Column("metal_node_id", ID, nullable=True),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("joined_at", sa.BigInteger(), nullable=False),
        sa.Column("last_join_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("node_id"),
    )
    op.create_index(
        "members_metal",
        "members",
        ["metal_node_id"],
        unique=False,
        sqlite_where=sa.text("metal_node_id IS NOT NULL"),
        postgresql_where=sa.text("metal_node_id IS NOT NULL"),
    )
    op.create_index("members_pool", "members", ["pool_id", "node_id"], unique=False)
    op.create_table(
        "member_identifiers",
        sa.Column("node_id", ID, nullable=False),
        sa.Column("kind", ID, nullable=False),
        sa.Column("value_norm", ID, nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.Column("usable", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", "kind", "value_norm"),
    )
    op.create_index("member_identifiers_value", "member_identifiers", ["kind", "value_norm"], unique=False)
    op.create_table(
        "certificates",
        sa.Column("serial", ID, nullable=False),
        sa.Column("node_id", ID, nullable=False),
        sa.Column("pool_id", ID, nullable=False),
        sa.Column("issuer_id", ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("csr_sha256", ID, nullable=False),
        sa.Column("key_sha256", sa.Text(), nullable=False),
        sa.Column("claim_sha256", sa.Text(), nullable=False),
        sa.Column("token_id", ID, nullable=True),
        sa.Column("chain", sa.Text(), nullable=False),
        sa.Column("not_before_at", sa.BigInteger(), nullable=False),
        sa.Column("not_after_at", sa.BigInteger(), nullable=False),
        sa.Column("renew_after_at", sa.BigInteger(), nullable=False),
        sa.Column("issued_at", sa.BigInteger(), nullable=False),
        sa.Column("renewed_from", ID, nullable=True),
        sa.Column("first_seen_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("revoke_reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("serial"),
    )
    op.create_index("certificates_csr", "certificates", ["csr_sha256", "issued_at"], unique=False)
    op.create_index("certificates_expiry", "certificates", ["not_after_at"], unique=False)
    op.create_index("certificates_node", "certificates", ["node_id", "issued_at"], unique=False)
    op.create_index(
        "certificates_renewal",
        "certificates",
        ["renewed_from"],
        unique=False,
        sqlite_where=sa.text("renewed_from IS NOT NULL"),
        postgresql_where=sa.text("renewed_from IS NOT NULL"),
    )
    op.create_table(
        "challenges",
        sa.Column("challenge_id", ID, nullable=False),
        sa.Column("pool_id", ID, nullable=False),
        sa.Column("token_id", ID, nullable=True),
        sa.Column("csr_sha256", ID, nullable=False),
        sa.Column("claim_sha256", sa.Text(), nullable=False),
        sa.Column("ek_sha256", sa.Text(), nullable=False),
        sa.Column("proof_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("challenge_id"),
    )
    op.create_index("challenges_expiry", "challenges", ["expires_at"], unique=False)
    op.create_table(
        "secrets_released",
        sa.Column("node_id", ID, nullable=False),
        sa.Column("name", ID, nullable=False),
        sa.Column("serial", ID, nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", "name"),
    )
    op.create_table(
        "issuers",
        sa.Column("issuer_id", ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("certificate", sa.Text(), nullable=False),
        sa.Column("chain", sa.Text(), nullable=False),
        sa.Column("root_sha256", sa.Text(), nullable=False),
        sa.Column("not_before_at", sa.BigInteger(), nullable=False),
        sa.Column("not_after_at", sa.BigInteger(), nullable=False),
        sa.Column("key_ref", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("issuer_id"),
    )
    op.create_index(
        "issuers_current",
        "issuers",
        ["kind"],
        unique=True,
        sqlite_where=sa.text("state = 'current'"),
        postgresql_where=sa.text("state = 'current'"),
    )
    op.create_table(
        "trust_roots",
        sa.Column("sha256", ID, nullable=False),
        sa.Column("certificate", sa.Text(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("sha256"),
    )
