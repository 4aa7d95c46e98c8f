"""Users and projects can be archived, and deleted while nothing names them. Triggers refuse rows for
archived or unknown ones (``require_owner``).

An archived user or project is also disabled, so managers of the previous release refuse its keys.
"""

from alembic import op

from moorage.manager.store.schema.database_functions import function_statements

revision = "202611280758"
down_revision = "202611280750"
branch_labels = None
depends_on = None
functions = "40e5499b87fb7efa"

_FUNCTIONS = (
    "require_owner",
    "require_owners_of_work",
    "require_owner_of_row",
    "refuse_archiving_in_use",
    "refuse_change_of_archived",
    "delete_only_empty",
)
_COLUMNS = """
ALTER TABLE {table}
    ADD COLUMN archived_at timestamptz,
    ADD COLUMN archived_by text NOT NULL DEFAULT '',
    -- The status that a restoration brings back.
    ADD COLUMN archived_status text CHECK (archived_status IN ('active', 'disabled')),
    ADD CONSTRAINT archived_{table}_are_disabled CHECK (
        (archived_at IS NULL) = (archived_status IS NULL)
        AND (archived_at IS NULL OR status = 'disabled'))
"""
_CHANGES = {
    "projects": "status, max_priority, requests_per_minute, tokens_per_minute, "
    "concurrent_requests, reuse",
    "users": "email, status, platform_role",
}
_ARCHIVING = """
CREATE TRIGGER {table}_archive BEFORE UPDATE OF archived_at ON {table} FOR EACH ROW
    WHEN (OLD.archived_at IS NULL AND NEW.archived_at IS NOT NULL)
    EXECUTE FUNCTION refuse_archiving_in_use('{kind}')
"""
_CHANGING = """
CREATE TRIGGER {table}_stay_archived BEFORE UPDATE OF {columns} ON {table} FOR EACH ROW
    WHEN (OLD.archived_at IS NOT NULL AND NEW.archived_at IS NOT NULL)
    EXECUTE FUNCTION refuse_change_of_archived('{kind}')
"""
_DELETING = """
CREATE TRIGGER {table}_delete BEFORE DELETE ON {table} FOR EACH ROW
    EXECUTE FUNCTION delete_only_empty('{kind}')
"""
_ADDED = """
CREATE TRIGGER {table}_require_owners AFTER INSERT ON {table} REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION require_owners_of_work()
"""
_ROW = """
CREATE TRIGGER {table}_require_owner AFTER {events} ON {table} FOR EACH ROW
    EXECUTE FUNCTION require_owner_of_row()
"""
# The changes of a row that need its owner. A budget is also measured, a secret is encrypted again,
# and a key is revoked and used, for which its owner may be archived.
_EVENTS = {
    "memberships": "INSERT OR UPDATE",
    "quotas": "INSERT OR UPDATE OF slots, sessions, pending, node_seconds, system_sessions",
    "budgets": "INSERT OR UPDATE OF soft, hard, policy",
    "api_keys": "INSERT OR UPDATE OF scopes, models, max_priority, requests_per_minute, "
    "tokens_per_minute, concurrent_requests, expires_at, sha256",
    "user_passwords": "INSERT OR UPDATE",
    "user_ssh_keys": "INSERT",
    "oidc_identities": "INSERT",
    "templates": "INSERT",
    "secrets": "INSERT OR UPDATE OF version",
}


def upgrade() -> None:
    for name in _FUNCTIONS:
        op.execute(function_statements()[name])
    for table in ("projects", "users"):
        names = {"table": table, "kind": table.removesuffix("s"), "columns": _CHANGES[table]}
        for statement in (_COLUMNS, _ARCHIVING, _CHANGING, _DELETING):
            op.execute(statement.format(**names))

    # Keys that name no project belong to this one.
    op.execute(
        "ALTER TABLE projects ADD CONSTRAINT default_is_not_archived "
        "CHECK (name <> 'default' OR archived_at IS NULL)"
    )
    for table in ("sessions", "endpoints"):
        op.execute(_ADDED.format(table=table))
    for table, events in _EVENTS.items():
        op.execute(_ROW.format(table=table, events=events))
