"""Task lists of batch sessions: their lines, and what is known of each task.

Lines are stored by their digest, before the session that works through them. A task has a row once
it was given to a kernel; the others are those from ``next`` on.
"""

from alembic import op

revision = "202611282140"
down_revision = "202611282130"
branch_labels = None
depends_on = None
functions = "7fffeceb628c573d"

_OPEN = "('WAITING', 'GIVEN')"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE task_lists ("
        "digest text PRIMARY KEY, "
        "used_at timestamptz NOT NULL DEFAULT now())"
    )
    op.execute("CREATE INDEX task_lists_used ON task_lists (used_at)")
    op.execute(
        "CREATE TABLE task_lines ("
        "digest text NOT NULL REFERENCES task_lists ON DELETE CASCADE, "
        "first integer NOT NULL CHECK (first > 0), "
        "lines text[] NOT NULL CHECK (cardinality(lines) BETWEEN 1 AND 1000), "
        "PRIMARY KEY (digest, first))"
    )
    op.execute(
        "CREATE INDEX sessions_task_list ON sessions ((spec #>> '{tasks,digest}')) "
        "WHERE spec ? 'tasks'"
    )
    op.execute(
        "CREATE TABLE session_task_lists ("
        "session_id uuid PRIMARY KEY REFERENCES sessions ON DELETE CASCADE, "
        "digest text NOT NULL, "
        "total integer NOT NULL CHECK (total > 0), "
        "retries integer NOT NULL CHECK (retries >= 0), "
        "next integer NOT NULL DEFAULT 1 CHECK (next BETWEEN 1 AND total + 1), "
        "succeeded integer NOT NULL DEFAULT 0, "
        "failed integer NOT NULL DEFAULT 0, "
        "lost integer NOT NULL DEFAULT 0, "
        "output_bytes bigint NOT NULL DEFAULT 0, "
        "CONSTRAINT each_task_ends_once CHECK (succeeded + failed + lost <= total))"
    )
    op.execute(
        "CREATE TABLE session_tasks ("
        "session_id uuid NOT NULL REFERENCES session_task_lists ON DELETE CASCADE, "
        "number integer NOT NULL CHECK (number > 0), "
        "attempt integer NOT NULL CHECK (attempt > 0), "
        "state text NOT NULL "
        "CHECK (state IN ('WAITING', 'GIVEN', 'SUCCEEDED', 'FAILED', 'LOST')), "
        "kernel_id uuid, "
        "seq bigint, "
        "exit_code integer, "
        "started_at timestamptz, "
        "seconds float8, "
        "output bytea, "
        "detail text NOT NULL DEFAULT '', "
        "PRIMARY KEY (session_id, number, attempt), "
        "CONSTRAINT given_to_a_kernel "
        "CHECK ((state = 'WAITING') = (kernel_id IS NULL) AND "
        "(kernel_id IS NULL) = (seq IS NULL)))"
    )
    # A task never runs twice at a time.
    op.execute(
        "CREATE UNIQUE INDEX session_tasks_open ON session_tasks (session_id, number) "
        f"WHERE state IN {_OPEN}"
    )
    op.execute(
        "CREATE UNIQUE INDEX session_tasks_given ON session_tasks (kernel_id, seq) "
        "WHERE kernel_id IS NOT NULL"
    )
