"""Kernels whose jobs wait in the queue of a batch system, and when their jobs are expected to start
and end.

``sessions_of_site``: sessions of resource groups of kind hpc, whose waits and starts are the
history that later ones are planned by.
"""

from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

STATUSES = (
    "'PENDING', 'SCHEDULED', 'PREPARING', 'QUEUED', 'CREATING', 'RUNNING', 'TERMINATING', "
    "'TERMINATED', 'CANCELLED', 'ERROR'"
)


def upgrade() -> None:
    op.execute(
        "ALTER TABLE kernels ADD COLUMN expected_start timestamptz, ADD COLUMN ends_at timestamptz"
    )
    for table in ("sessions", "kernels"):
        name = f"{table}_status_check"
        op.execute(
            f"ALTER TABLE {table} DROP CONSTRAINT {name}, "
            f"ADD CONSTRAINT {name} CHECK (status IN ({STATUSES})) NOT VALID"
        )
        op.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")

    op.execute("DROP INDEX sessions_moving")
    op.execute(
        "CREATE INDEX sessions_moving ON sessions (id) "
        "WHERE status IN ('SCHEDULED', 'PREPARING', 'QUEUED', 'CREATING', 'TERMINATING')"
    )
    op.execute(
        "CREATE INDEX sessions_of_site ON sessions (resource_group, ready_at DESC) "
        "WHERE spec ? 'queue_timeout_s' AND ready_at IS NOT NULL"
    )
