"""A session may wait for any of a set of sessions to succeed or fail: ``any-failure:STEP``."""

from alembic import op

revision = "202611280750"
down_revision = "202611280353"
branch_labels = None
depends_on = None
functions = "e45989b141fef3c5"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE session_dependencies DROP CONSTRAINT session_dependencies_condition_check, "
        "ADD CONSTRAINT session_dependencies_condition_check CHECK ("
        "condition IN ('success', 'any', 'failure', 'adopted') "
        "OR condition ~ '^any-(success|failure):.') NOT VALID"
    )
