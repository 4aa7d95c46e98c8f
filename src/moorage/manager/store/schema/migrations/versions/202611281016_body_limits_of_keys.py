"""A key may limit the size of the bodies of its requests to models."""

from alembic import op

revision = "202611281016"
down_revision = "202611280758"
branch_labels = None
depends_on = None

_LIMITED = "scopes, models, max_priority, requests_per_minute, tokens_per_minute, "
_LIMITED += "concurrent_requests, max_body_bytes, expires_at, sha256"


def upgrade() -> None:
    op.execute("ALTER TABLE api_keys ADD COLUMN max_body_bytes bigint CHECK (max_body_bytes >= 1)")
    op.execute(
        "CREATE OR REPLACE TRIGGER api_keys_take_version "
        f"BEFORE UPDATE OF {_LIMITED}, resource_groups, revoked_at ON api_keys "
        "FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION take_version()"
    )
    op.execute(
        "CREATE OR REPLACE TRIGGER api_keys_require_owner "
        f"AFTER INSERT OR UPDATE OF {_LIMITED} ON api_keys "
        "FOR EACH ROW EXECUTE FUNCTION require_owner_of_row()"
    )
