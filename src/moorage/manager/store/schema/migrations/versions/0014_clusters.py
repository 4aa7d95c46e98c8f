"""Clusters: sessions of several kernels, each with its own host name, and their shared SSH key
pair.

The former ``role`` (``main1``) always was a host name and is renamed. Key pairs have a table of
their own, so that no listing of sessions can expose them.
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE kernels RENAME COLUMN role TO hostname")
    op.execute(
        "ALTER TABLE kernels "
        "ADD COLUMN cluster_role text NOT NULL DEFAULT 'main' CHECK (cluster_role IN ('main', "
        "'sub')), "
        "ADD COLUMN cluster_index integer NOT NULL DEFAULT 1 CHECK (cluster_index >= 1), "
        # Host names are unique within an attempt, so there is one main1, and each sub exists once.
        "ADD CONSTRAINT one_main CHECK (cluster_role = 'sub' OR cluster_index = 1), "
        "ADD CONSTRAINT named_by_role CHECK (hostname = cluster_role || cluster_index::text)"
    )
    op.execute(
        "CREATE TABLE session_keys ("
        "session_id uuid PRIMARY KEY REFERENCES sessions ON DELETE CASCADE, "
        "private_key text NOT NULL, public_key text NOT NULL)"
    )
