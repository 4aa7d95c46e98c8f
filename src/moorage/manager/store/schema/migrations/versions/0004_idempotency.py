"""Idempotency keys: the key and the digest of each request that created a session.

The row is written by the statement that creates the session, so a manager that dies between commit
and response leaves both or neither. The primary key prevents a second session for one key.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE idempotency_keys ("
        "scope text NOT NULL, "  # the id of the API key that the request used
        "key text NOT NULL CHECK (key <> ''), "
        "asked text NOT NULL CHECK (asked ~ '^[0-9a-f]{64}$'), "  # SHA-256 of the request
        "session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE, "
        "created_at timestamptz NOT NULL DEFAULT now(), "
        "PRIMARY KEY (scope, key))"
    )
    op.execute("CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at)")
    op.execute("CREATE INDEX idempotency_keys_session ON idempotency_keys (session_id)")
