"""Agents that get no new work until they and the database agree.

``restored_at``: when a backup that knows the agent was restored; until its next report, what it
runs is unknown. ``refuses_orders``: the agent does not apply its orders. ``unknown_kernels``:
kernels that it runs and the database does not know, as ``[{"kernel_id": …, "session_id": …}]``.
``ready``: none of these holds.
"""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE agents ADD COLUMN restored_at timestamptz,"
        " ADD COLUMN refuses_orders boolean NOT NULL DEFAULT false,"
        " ADD COLUMN unknown_kernels jsonb NOT NULL DEFAULT '[]'"
    )
    op.execute(
        "ALTER TABLE agents ADD COLUMN ready boolean NOT NULL GENERATED ALWAYS AS"
        " (restored_at IS NULL AND NOT refuses_orders AND unknown_kernels = '[]') STORED"
    )
    op.execute("CREATE INDEX agents_not_ready ON agents (id) WHERE NOT ready")
