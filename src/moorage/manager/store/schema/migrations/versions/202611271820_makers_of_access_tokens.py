"""Who made an access token, and with which key: it opens its service port while they may.

Tokens of which that cannot be told stay valid until they expire, also those that a manager of the
release before makes.
"""

from alembic import op

revision = "202611271820"
down_revision = "202611271810"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE access_tokens ADD COLUMN user_name text, ADD COLUMN key_id uuid")
    op.execute(
        "UPDATE access_tokens SET user_name = substring(created_by FROM '^user:(.*)$') "
        "WHERE created_by LIKE 'user:%' AND expires_at > now()"
    )
    op.execute(
        "UPDATE access_tokens t SET user_name = k.owner, key_id = k.id FROM api_keys k "
        "WHERE t.created_by = 'key:' || k.name AND k.revoked_at IS NULL AND t.expires_at > now()"
    )
