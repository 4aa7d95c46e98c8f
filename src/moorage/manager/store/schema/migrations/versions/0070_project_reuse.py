"""Reuse of equal sessions as a setting of a project. NULL: as the resource group says."""

from alembic import op

revision = "0070"
down_revision = "0069"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE projects ADD COLUMN reuse text CHECK (reuse IN ('never', 'success', 'live', "
        "'both'))"
    )
    op.execute("DROP TRIGGER projects_take_version ON projects")
    op.execute(
        "CREATE TRIGGER projects_take_version BEFORE UPDATE OF status, max_priority, "
        "resource_groups, "
        "requests_per_minute, tokens_per_minute, concurrent_requests, reuse ON projects FOR EACH "
        "ROW "
        "WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION take_version()"
    )
