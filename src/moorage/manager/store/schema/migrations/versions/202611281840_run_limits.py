"""Limits of resource groups, keys and templates: time limits, largest requests, and numbers of
sessions per user.

The limits of groups have columns of their own rather than being part of `options`: a manager of the
previous release leaves them as they are when it changes a group, and still reads the group.
"""

from alembic import op

revision = "202611281840"
down_revision = "202611281830"
branch_labels = None
depends_on = None
functions = "210391bec6c6183a"

_LIMITED = "scopes, models, max_priority, requests_per_minute, tokens_per_minute, "
_LIMITED += "concurrent_requests, max_body_bytes, max_time_s, max_per_session, expires_at, sha256"
_SECONDS = "float8 CHECK ({0} > 0 AND {0} <= 315360000)"
_PER_USER = "integer CHECK ({0} BETWEEN 1 AND 1000000)"
_SLOTS = "jsonb NOT NULL DEFAULT '{{}}' CHECK (jsonb_typeof({0}) = 'object')"
_TIMES = (
    "max_batch_time_s",
    "default_batch_time_s",
    "max_interactive_time_s",
    "default_interactive_time_s",
)
_COLUMNS = (
    *((name, _SECONDS) for name in _TIMES),
    ("max_per_session", _SLOTS),
    ("max_per_user", _SLOTS),
    ("max_running_per_user", _PER_USER),
    ("max_pending_per_user", _PER_USER),
)


def upgrade() -> None:
    columns = ", ".join(f"{name} {kind.format(name)}" for name, kind in _COLUMNS)
    op.execute(
        "CREATE TABLE group_limits ("
        "resource_group text PRIMARY KEY REFERENCES resource_groups "
        f"ON UPDATE CASCADE ON DELETE CASCADE, {columns}, "
        "CONSTRAINT default_batch_time_is_allowed "
        "CHECK (default_batch_time_s <= max_batch_time_s), "
        "CONSTRAINT default_interactive_time_is_allowed "
        "CHECK (default_interactive_time_s <= max_interactive_time_s))"
    )
    op.execute(
        f"ALTER TABLE api_keys ADD COLUMN max_time_s {_SECONDS.format('max_time_s')}, "
        "ADD COLUMN max_per_session jsonb CHECK (jsonb_typeof(max_per_session) = 'object')"
    )
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
