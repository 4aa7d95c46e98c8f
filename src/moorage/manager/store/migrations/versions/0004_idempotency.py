"""Requests to create that may be sent again: the key under which each was made, and what was asked.

The row is written by the statement that makes the session, so a manager that dies between commit and answer
leaves both or neither. The primary key refuses a second session for one key, whoever asks for it.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE idempotency_keys ("
        "scope text NOT NULL, "  # whose key it is: the id of an API key
        "key text NOT NULL CHECK (key <> ''), "
        "asked text NOT NULL CHECK (asked ~ '^[0-9a-f]{64}$'), "  # SHA-256 of what was asked for
        "session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE, "
        "created_at timestamptz NOT NULL DEFAULT now(), "
        "PRIMARY KEY (scope, key))"
    )
    op.execute("CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at)")
    op.execute("CREATE INDEX idempotency_keys_session ON idempotency_keys (session_id)")
