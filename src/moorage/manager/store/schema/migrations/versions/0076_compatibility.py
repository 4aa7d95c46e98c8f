"""Which managers of earlier releases work on this schema, and which of them may lead.

A manager begins a term only if it says (``moorage.schema``, set by the statement) that it knows the
schema ``leads_since`` or a newer one. Releases before this one say nothing; they know 0075 at most.
A term that has begun goes on.
"""

from alembic import op

revision = "0076"
down_revision = "0075"
branch_labels = None
depends_on = None
# The oldest schema whose managers start on this one: those of earlier ones do not read this table.
compatible_since = "0076"

SCHEMA = """
CREATE TABLE schema_compatibility (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    compatible_since  text NOT NULL CHECK (compatible_since ~ '^[0-9]{4}$'),
    leads_since       text NOT NULL CHECK (leads_since ~ '^[0-9]{4}$')
)
"""
# Terms that a restore or a failover raises have ended when they begin.
FENCE = """
CREATE FUNCTION refuse_older_leader() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.expires_at > now() AND (SELECT leads_since FROM schema_compatibility) COLLATE "C"
        > coalesce(nullif(current_setting('moorage.schema', true), ''), '0075') THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$
"""


def upgrade() -> None:
    op.execute(SCHEMA)
    op.execute(FENCE)
    op.execute(
        "CREATE TRIGGER leases_refuse_older_leader BEFORE UPDATE ON leases FOR EACH ROW "
        "WHEN (NEW.term <> OLD.term) EXECUTE FUNCTION refuse_older_leader()"
    )
