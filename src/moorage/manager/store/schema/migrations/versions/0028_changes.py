"""Indexes by which the manager's loops find what has changed, without reading what exists.

``kernels_ended`` by time finds ends that nobody reconciled. ``agents_silent`` and
``agents_stopping`` hold the few agents that need attention. ``sessions_pending`` and
``sessions_running`` serve sweeps and counts. The usage of an agent's kernels is summed up when it
is written.
"""

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

LIVE = "status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')"

SCHEMA = f"""
CREATE INDEX kernels_ended ON kernels (status_since) WHERE status IN ('TERMINATED', 'CANCELLED', 'ERROR');
CREATE INDEX sessions_retried ON sessions (id) WHERE status = 'PENDING' AND attempt > requeued_from + 1;
CREATE INDEX agents_silent ON agents (id) WHERE status <> 'ALIVE';
CREATE INDEX agents_stopping ON agents (stop_at) WHERE cordon = 'drain';
CREATE INDEX sessions_live_replicas ON sessions (endpoint_id) WHERE endpoint_id IS NOT NULL AND {LIVE};
CREATE INDEX endpoints_live ON endpoints (id) WHERE deleted_at IS NULL;
CREATE INDEX sessions_serving ON sessions (id)
    WHERE status = 'RUNNING' AND type = 'inference' AND endpoint_id IS NULL;
CREATE INDEX sessions_begin ON sessions (resource_group, (greatest(not_before, starts_at)))
    WHERE status = 'PENDING' AND (not_before IS NOT NULL OR starts_at IS NOT NULL);
DROP INDEX sessions_pending;
CREATE INDEX sessions_pending ON sessions (resource_group, created_at, id) WHERE status = 'PENDING';
DROP INDEX sessions_running;
CREATE INDEX sessions_running ON sessions (resource_group, id) WHERE status = 'RUNNING';
ALTER TABLE agent_usage
    ADD COLUMN kernels_cpu bigint NOT NULL DEFAULT 0, ADD COLUMN kernels_memory bigint NOT NULL DEFAULT 0,
    ADD COLUMN kernels_gpu bigint NOT NULL DEFAULT 0, ADD COLUMN kernels_gpu_memory bigint NOT NULL DEFAULT 0
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        op.execute(statement)
