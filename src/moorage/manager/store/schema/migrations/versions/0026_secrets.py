"""Secrets of projects, encrypted with a key that is not in the database.

``sealed``: nonce, ciphertext and tag. ``deleted_at``: hidden, and kept for the sessions that refer
to it.
"""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE secrets ("
        " project text NOT NULL, name text NOT NULL, version bigint NOT NULL DEFAULT 1,"
        " key_id text NOT NULL, sealed bytea NOT NULL,"
        " created_at timestamptz NOT NULL DEFAULT now(), created_by text NOT NULL,"
        " changed_at timestamptz NOT NULL DEFAULT now(), changed_by text NOT NULL, deleted_at "
        "timestamptz,"
        " PRIMARY KEY (project, name))"
    )
