"""What programs report of their progress: the newest by kernel."""

from alembic import op

revision = "0059"
down_revision = "0058"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE kernel_progress (kernel_id uuid PRIMARY KEY REFERENCES kernels ON DELETE "
        "CASCADE, "
        "fraction double precision CHECK (fraction >= 0 AND fraction <= 1), "
        'step bigint CHECK (step >= 0), "of" bigint CHECK ("of" >= 0), '
        "message text NOT NULL, problem text NOT NULL, at timestamptz NOT NULL DEFAULT now())"
    )
