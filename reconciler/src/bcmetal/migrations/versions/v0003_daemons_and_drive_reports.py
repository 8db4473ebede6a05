"""Daemons that share a database, and which node sees which drive."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

ID = sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "daemons",
        sa.Column("daemon_id", ID, nullable=False),
        sa.Column("code", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("config_digest", sa.Text(), nullable=False),
        sa.Column("config_at", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("daemon_id"),
    )
    op.create_table(
        "drive_reports",
        sa.Column("node_id", ID, nullable=False),
        sa.Column("model_norm", ID, nullable=False),
        sa.Column("serial_norm", ID, nullable=False),
        sa.Column("wwn_norm", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("node_id", "model_norm", "serial_norm"),
    )
    op.create_index("drive_reports_drive", "drive_reports", ["model_norm", "serial_norm"], unique=False)
    op.create_index("drive_reports_wwn", "drive_reports", ["wwn_norm"], unique=False)
    op.execute(  # what is known so far: the node that saw it last
        "INSERT INTO drive_reports (node_id, model_norm, serial_norm, wwn_norm) "
        "SELECT node_id, model_norm, serial_norm, lower(wwn) FROM drives WHERE node_id IS NOT NULL"
    )
