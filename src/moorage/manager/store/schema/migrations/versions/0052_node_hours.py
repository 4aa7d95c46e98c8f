"""Node-hours of jobs of sites: a limit of quotas, and when the nodes of a job were allocated.

Only kernels that are jobs have an end of the walltime, so the first index leaves out all others,
and a report about them does not touch it. The second holds the live sessions that are jobs.
"""

from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE quotas ADD COLUMN node_seconds bigint CHECK (node_seconds >= 0)")
    op.execute("ALTER TABLE kernels ADD COLUMN started_at timestamptz")
    op.execute(
        "UPDATE kernels k SET started_at = "
        "ends_at - make_interval(secs => (s.spec ->> 'walltime_s')::float8) "
        "FROM sessions s WHERE s.id = k.session_id AND k.ends_at IS NOT NULL"
    )
    op.execute("CREATE INDEX kernels_of_jobs ON kernels (ends_at) WHERE ends_at IS NOT NULL")
    op.execute(
        "CREATE INDEX sessions_live_jobs ON sessions (id) WHERE status IN "
        "('SCHEDULED', 'PREPARING', 'QUEUED', 'CREATING', 'RUNNING', 'TERMINATING') AND spec ? "
        "'job'"
    )
