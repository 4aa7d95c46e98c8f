"""Sessions of several kernels, each with a host name of its own; and the key pair that they share.

What was the role, ``main1``, was a host name all the time: it is called so now. The key pair lies apart from
the session, so that nothing which lists sessions can show it.
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
        "ADD COLUMN cluster_role text NOT NULL DEFAULT 'main' CHECK (cluster_role IN ('main', 'sub')), "
        "ADD COLUMN cluster_index integer NOT NULL DEFAULT 1 CHECK (cluster_index >= 1), "
        # With the unique host name of an attempt: one main1, and each sub once.
        "ADD CONSTRAINT one_main CHECK (cluster_role = 'sub' OR cluster_index = 1), "
        "ADD CONSTRAINT named_by_role CHECK (hostname = cluster_role || cluster_index::text)"
    )
    op.execute(
        "CREATE TABLE session_keys ("
        "session_id uuid PRIMARY KEY REFERENCES sessions ON DELETE CASCADE, "
        "private_key text NOT NULL, public_key text NOT NULL)"
    )
