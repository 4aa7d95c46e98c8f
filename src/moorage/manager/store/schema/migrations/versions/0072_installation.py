"""The installation that a database belongs to, and which copy of its data this is.

Backups and standbys keep the first; the restore of a backup makes a new copy.
"""

from alembic import op

revision = "0072"
down_revision = "0071"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE lineage ADD COLUMN installation uuid NOT NULL DEFAULT gen_random_uuid(), "
        "ADD COLUMN copy uuid NOT NULL DEFAULT gen_random_uuid()"
    )
