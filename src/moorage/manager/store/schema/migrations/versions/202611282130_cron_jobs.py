"""Cron jobs and their runs, and time limits of pipelines.

A run starts at most once: ``cron_runs`` is unique by cron job and scheduled time, and the statement
that creates the session of a run also marks the run as started, by a trigger on its idempotency
key.
"""

from alembic import op

from moorage.manager.store.schema.database_functions import function_statements

revision = "202611282130"
down_revision = "202611282100"
branch_labels = None
depends_on = None
functions = "b79e5f96d7606692"

_STATEMENTS = (
    """
    CREATE TABLE cron_jobs (
        id            uuid PRIMARY KEY,
        name          text NOT NULL CHECK (name <> ''),
        project       text NOT NULL,
        owner         text NOT NULL,
        granted_role  text NOT NULL
            CHECK (granted_role IN ('viewer', 'member', 'project-admin', 'auditor', 'admin')),
        spec          jsonb NOT NULL,
        suspended     boolean NOT NULL DEFAULT false,
        next_at       timestamptz,
        planned_at    timestamptz NOT NULL DEFAULT now(),
        trimmed_to    timestamptz,
        runs          bigint NOT NULL DEFAULT 0,
        refusals      integer NOT NULL DEFAULT 0 CHECK (refusals >= 0),
        created_at    timestamptz NOT NULL DEFAULT now(),
        created_by    text NOT NULL,
        version       bigint NOT NULL DEFAULT nextval('resource_versions'),
        UNIQUE (project, name),
        CONSTRAINT nothing_due_while_suspended CHECK (NOT suspended OR next_at IS NULL)
    )
    """,
    "CREATE INDEX cron_jobs_due ON cron_jobs (next_at) WHERE next_at IS NOT NULL",
    "CREATE INDEX cron_jobs_planned ON cron_jobs (planned_at) WHERE next_at IS NOT NULL",
    """
    CREATE TRIGGER cron_jobs_take_version BEFORE UPDATE OF spec, suspended ON cron_jobs
        FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION take_version()
    """,
    """
    CREATE TABLE cron_runs (
        id            uuid PRIMARY KEY,
        cron_job      uuid NOT NULL REFERENCES cron_jobs ON DELETE CASCADE,
        scheduled_at  timestamptz NOT NULL,
        state         text NOT NULL
            CHECK (state IN ('starting', 'pending', 'refused', 'skipped', 'missed')),
        by_hand       boolean NOT NULL DEFAULT false,
        reason        text NOT NULL DEFAULT '',
        missed        integer NOT NULL DEFAULT 0 CHECK ((state = 'missed') = (missed > 0)),
        missed_to     timestamptz,
        session_id    uuid UNIQUE REFERENCES sessions ON DELETE SET NULL,
        pipeline_id   uuid REFERENCES pipelines ON DELETE SET NULL,
        created_at    timestamptz NOT NULL DEFAULT now(),
        created_by    text NOT NULL DEFAULT '',
        CONSTRAINT cron_runs_once UNIQUE (cron_job, scheduled_at),
        CONSTRAINT only_started_runs_have_sessions CHECK (session_id IS NULL OR state = 'pending')
    )
    """,
    "CREATE INDEX cron_runs_starting ON cron_runs (created_at) WHERE state = 'starting'",
    "CREATE INDEX cron_runs_pipeline ON cron_runs (pipeline_id) WHERE pipeline_id IS NOT NULL",
)


_TIMEOUTS = (
    "ALTER TABLE pipelines ADD COLUMN deadline_at timestamptz",
    "CREATE INDEX pipelines_overdue ON pipelines (deadline_at) WHERE deadline_at IS NOT NULL",
    "ALTER TABLE session_stops ADD COLUMN reason text NOT NULL DEFAULT 'user-requested'",
)


def upgrade() -> None:
    for statement in (*_STATEMENTS, *_TIMEOUTS):
        op.execute(statement)
    op.execute(function_statements()["cron_run_started"])
    op.execute(
        "CREATE TRIGGER idempotency_keys_start_cron_run AFTER INSERT ON idempotency_keys "
        "FOR EACH ROW WHEN (NEW.scope = 'cron') EXECUTE FUNCTION cron_run_started()"
    )
