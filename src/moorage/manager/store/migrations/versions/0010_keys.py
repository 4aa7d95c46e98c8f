"""Keys are made and revoked by the API: by whom, under which name, and when one was last used.

Of one name there is one key that is not revoked. Where SQL made several, the younger ones get their id behind
the name.
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
