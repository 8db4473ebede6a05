"""What runs on machines: boot tokens, agents, their tasks and logs."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision: str | None = "0003"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

ID = sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "boot_tokens",
        sa.Column("operation_id", ID, nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_id", ID, nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("in_clear", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("conflicts", sa.BigInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("operation_id", "n"),
    )
    op.create_index("boot_tokens_sha256", "boot_tokens", ["sha256"], unique=True)
    op.create_index("boot_tokens_node", "boot_tokens", ["node_id"], unique=False)
    op.create_table(
        "agents",
        sa.Column("session_id", ID, nullable=False),
        sa.Column("operation_id", ID, nullable=False),
        sa.Column("token_n", sa.Integer(), nullable=False),
        sa.Column("node_id", ID, nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("identifiers", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("hello_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("session_id"),
    )
    op.create_index("agents_token", "agents", ["operation_id", "token_n"], unique=True)
    op.create_index("agents_node", "agents", ["node_id"], unique=False)
    op.create_table(
        "agent_tasks",
        sa.Column("task_id", ID, nullable=False),
        sa.Column("operation_id", ID, nullable=False),
        sa.Column("node_id", ID, nullable=False),
        sa.Column("name", ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False, server_default="waiting"),
        sa.Column("progress", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("log_read", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("log_kept", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("handed_at", sa.BigInteger(), nullable=True),
        sa.Column("session_id", ID, nullable=True),
        sa.Column("reported_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_index("agent_tasks_name", "agent_tasks", ["operation_id", "name"], unique=True)
    op.create_index(
        "agent_tasks_open",
        "agent_tasks",
        ["operation_id"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "op_logs",
        sa.Column("operation_id", ID, nullable=False),
        sa.Column("stream", ID, nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", "stream", "start"),
    )
    op.add_column("media", sa.Column("token_offset", sa.BigInteger(), nullable=True))
