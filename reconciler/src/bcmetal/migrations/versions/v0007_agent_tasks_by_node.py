"""The agent's tasks are found by their node."""

from collections.abc import Sequence

from alembic import op

revision = "0007"
down_revision: str | None = "0006"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_index("agent_tasks_node", "agent_tasks", ["node_id", "created_at"], unique=False)
