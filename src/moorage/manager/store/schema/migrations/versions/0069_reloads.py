"""Reloads of programs that were asked, and how the newest ended: one by kernel."""

from alembic import op

revision = "0069"
down_revision = "0068"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE kernel_reloads (kernel_id uuid PRIMARY KEY REFERENCES kernels ON DELETE "
        "CASCADE, "
        "generation bigint NOT NULL CHECK (generation > 0), requested_by text NOT NULL, "
        "requested_at timestamptz NOT NULL DEFAULT now(), "
        "ended bigint NOT NULL DEFAULT 0 CHECK (ended >= 0 AND ended <= generation), "
        "outcome text NOT NULL DEFAULT '' CHECK (outcome IN ('', 'reloaded', 'failed', "
        "'timed-out')), "
        "detail text NOT NULL DEFAULT '', ended_at timestamptz, "
        "CHECK ((ended = 0) = (outcome = '') AND (ended = 0) = (ended_at IS NULL)))"
    )
