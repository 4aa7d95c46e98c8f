"""Limits of budgets that were reached: each one once in a period, whoever sums up."""

from alembic import op

revision = "0066"
down_revision = "0065"
branch_labels = None
depends_on = None

ALERTS = """
CREATE TABLE budget_alerts (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope     text NOT NULL,
    name      text NOT NULL,
    unit      text NOT NULL,
    period    text NOT NULL,
    resets_at timestamptz NOT NULL,
    level     text NOT NULL CHECK (level IN ('soft', 'hard')),
    threshold bigint NOT NULL,
    used      bigint NOT NULL CHECK (used >= threshold),
    at        timestamptz NOT NULL DEFAULT now(),
    UNIQUE (scope, name, unit, period, resets_at, level, threshold)
)
"""


def upgrade() -> None:
    op.execute(ALERTS)
    op.execute("CREATE INDEX budget_alerts_by_time ON budget_alerts (at)")
