"""Whether an agent's machine proved its TPM at hello."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision: str | None = "0005"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("agents", sa.Column("tpm_proven", sa.Boolean(), nullable=False, server_default=sa.text("false")))
