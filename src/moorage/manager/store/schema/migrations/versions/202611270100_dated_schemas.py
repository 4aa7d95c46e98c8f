"""Schemas that are named by the time at which their migration was written.

Up to 0081 they were numbered. Text of digits keeps their order, also for managers of earlier
releases.
"""

from alembic import op

revision = "202611270100"
down_revision = "0081"
branch_labels = None
depends_on = None

SCHEMA = """
ALTER TABLE schema_compatibility
    DROP CONSTRAINT schema_compatibility_compatible_since_check,
    DROP CONSTRAINT schema_compatibility_leads_since_check,
    ADD CHECK (compatible_since ~ '^([0-9]{4}|[0-9]{12})$'),
    ADD CHECK (leads_since ~ '^([0-9]{4}|[0-9]{12})$')
"""


def upgrade() -> None:
    op.execute(SCHEMA)
