"""Canaries: a new revision that gets a share of the requests before it replaces the stable one.

``canary_of``: the stable revision beside which ``target_revision`` is tried; NULL: there is no
canary.
"""

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE endpoints ADD COLUMN canary_of integer")
    op.execute(
        "ALTER TABLE endpoints ADD CONSTRAINT endpoints_canary FOREIGN KEY (id, canary_of) "
        "REFERENCES endpoint_revisions (endpoint_id, revision), "
        "ADD CONSTRAINT endpoints_canary_differs CHECK (canary_of <> target_revision)"
    )
