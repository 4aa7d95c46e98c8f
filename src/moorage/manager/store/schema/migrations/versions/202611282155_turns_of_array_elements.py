"""Elements of an array with a limit wait for their turns, instead of for an earlier element.

An element that waited for an earlier one started as soon as that one had ended, also if it was
stopped before it had run, so that more elements ran than the limit allowed.
"""

from alembic import op

revision = "202611282155"
down_revision = "202611282150"
branch_labels = None
depends_on = None
functions = "fb3d8d6851863812"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE pipeline_steps "
        "ADD COLUMN at_once integer CHECK (at_once > 0), "
        "ADD COLUMN turn text, "
        "ADD CONSTRAINT pipeline_steps_turn_check CHECK ("
        "turn IS NULL OR (turn IN ('waiting', 'taken') AND at_once IS NOT NULL))"
    )
    op.execute(
        "CREATE INDEX pipeline_turns ON pipeline_steps (pipeline_id, step, turn, position) "
        "WHERE turn IS NOT NULL"
    )
