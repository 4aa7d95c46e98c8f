"""Versions of users, projects, keys and quotas, for If-Match.

A trigger counts, so a write of a manager of the release before is seen, too. The numbers come from
one sequence: a quota that was deleted and made again, or a key whose name is used again, has
another version.
"""

from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None

_WATCHED = {
    "users": "email, status, platform_role",
    "projects": "status, max_priority, resource_groups, requests_per_minute, tokens_per_minute, "
    "concurrent_requests",
    "api_keys": "scopes, models, resource_groups, max_priority, requests_per_minute, "
    "tokens_per_minute, "
    "concurrent_requests, expires_at, sha256, revoked_at",
    "quotas": "slots, sessions, pending",
}


def upgrade() -> None:
    op.execute("CREATE SEQUENCE resource_versions")
    op.execute(
        "CREATE FUNCTION take_version() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "NEW.version := nextval('resource_versions'); RETURN NEW; END $$"
    )
    for table, columns in _WATCHED.items():
        op.execute(
            f"ALTER TABLE {table} ADD COLUMN version bigint NOT NULL DEFAULT "
            "nextval('resource_versions')"
        )
        op.execute(
            f"CREATE TRIGGER {table}_take_version BEFORE UPDATE OF {columns} ON {table} FOR EACH "
            "ROW "
            "WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION take_version()"
        )
