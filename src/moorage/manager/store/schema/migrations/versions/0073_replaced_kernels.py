"""Former ids of kernels that got new ones when the database was restored or failed over.

An agent that reports a former id knows a placement that the database has lost.
"""

from alembic import op

revision = "0073"
down_revision = "0072"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE replaced_kernels (id uuid PRIMARY KEY, "
        "kernel_id uuid NOT NULL REFERENCES kernels ON UPDATE CASCADE ON DELETE CASCADE)"
    )
    op.execute("CREATE INDEX replaced_kernels_by_kernel ON replaced_kernels (kernel_id)")
