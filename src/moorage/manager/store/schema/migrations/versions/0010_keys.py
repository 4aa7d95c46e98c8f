"""Management of API keys: who created or revoked a key, and when it was last used.

A name belongs to at most one key that is not revoked. Where SQL inserted several, the younger ones
get their id appended to the name.
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

SCHEMA = """
ALTER TABLE api_keys ADD COLUMN last_used_at timestamptz,
    ADD COLUMN created_by text NOT NULL DEFAULT '',
    ADD COLUMN revoked_by text NOT NULL DEFAULT '';
UPDATE api_keys k SET name = k.name || '-' || k.id WHERE k.revoked_at IS NULL AND EXISTS (
    SELECT FROM api_keys o
    WHERE o.name = k.name AND o.revoked_at IS NULL AND (o.created_at, o.id) < (k.created_at, k.id));
CREATE UNIQUE INDEX one_live_key_per_name ON api_keys (name) WHERE revoked_at IS NULL;
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
