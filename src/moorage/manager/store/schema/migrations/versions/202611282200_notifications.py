"""Notifications: subscriptions of users and projects, the outbox of events, and deliveries.

Triggers write the outbox in the transaction of what happens, so a manager of the previous release
also writes it.
"""

from alembic import op

from moorage.manager.store.schema.database_functions import function_statements

revision = "202611282200"
down_revision = "202611282155"
branch_labels = None
depends_on = None
functions = "1ec5797b59b01a39"

_FUNCTIONS = ("outbox_sessions", "outbox_budgets", "outbox_agents")
_EVENTS = (
    "session.started",
    "session.ended",
    "session.failed",
    "session.time-limit",
    "session.waiting",
    "pipeline.ended",
    "pipeline.failed",
    "budget.warning",
    "budget.exhausted",
    "endpoint.degraded",
    "node.lost",
)
_CHANGED = (
    "events",
    "own",
    "resource_groups",
    "selector",
    "session_name",
    "waiting_s",
    "before_end_s",
    "enabled",
    "previous_secret_until",
)
_ENDS = "'TERMINATED', 'CANCELLED', 'ERROR'"


def upgrade() -> None:
    events = ", ".join(f"'{event}'" for event in _EVENTS)
    _create_subscriptions(events)
    _create_queues(events)
    statements = function_statements()
    for name in _FUNCTIONS:
        op.execute(statements[name])
    _create_triggers()


def _create_subscriptions(events: str) -> None:
    # `project`: NULL means all. `target`: as it is shown; the URL and the secret are in `secrets`.
    # `next_at`: when a delivery is due; `retry_at`: no attempt before then. `woken` counts the
    # additions to the queue, so that whoever sets `next_at` after a run notices one in the
    # meantime. `lease`: the run of a manager that sends its deliveries, until `leased_until`.
    # `checked_at`: waiting sessions were examined up to this time. `after_event`: the newest row of
    # the outbox when it was created, which a clock that is set back does not change.
    op.execute(
        "CREATE TABLE subscriptions ("
        "id uuid PRIMARY KEY, "
        "name text NOT NULL CHECK (name <> ''), "
        "project text REFERENCES projects ON DELETE CASCADE, "
        "user_name text NOT NULL REFERENCES users ON DELETE CASCADE, "
        "shared boolean NOT NULL, "
        "channel text NOT NULL CHECK (channel IN ('webhook', 'mail')), "
        "target text NOT NULL, "
        "format text NOT NULL CHECK (format IN ('json', 'slack', 'discord')), "
        f"events text[] NOT NULL CHECK (events <@ ARRAY[{events}]), "
        "own boolean NOT NULL, "
        "resource_groups text[] NOT NULL, "
        "selector text NOT NULL, "
        "session_name text NOT NULL, "
        "waiting_s float8 NOT NULL CHECK (waiting_s > 0), "
        "before_end_s float8 NOT NULL CHECK (before_end_s > 0), "
        "enabled boolean NOT NULL DEFAULT true, "
        "reason text NOT NULL DEFAULT '', "
        "failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0), "
        "failing_since timestamptz, "
        "queued integer NOT NULL DEFAULT 0 CHECK (queued >= 0), "
        "dropped bigint NOT NULL DEFAULT 0 CHECK (dropped >= 0), "
        "next_at timestamptz, "
        "retry_at timestamptz, "
        "woken bigint NOT NULL DEFAULT 0, "
        "lease uuid, "
        "leased_until timestamptz, "
        "checked_at timestamptz NOT NULL DEFAULT now(), "
        "after_event bigint NOT NULL DEFAULT 0, "
        "previous_secret_until timestamptz, "
        "version bigint NOT NULL DEFAULT nextval('resource_versions'), "
        "created_at timestamptz NOT NULL DEFAULT now(), "
        "created_by text NOT NULL, "
        "CONSTRAINT shared_subscriptions_have_a_project CHECK (NOT shared OR project IS NOT NULL), "
        "CONSTRAINT webhooks_have_a_target CHECK (channel = 'mail' OR target <> ''), "
        "CONSTRAINT disabled_subscriptions_have_a_reason CHECK (enabled OR reason <> ''))"
    )
    op.execute(
        "CREATE UNIQUE INDEX subscriptions_of_user ON subscriptions "
        "(user_name, coalesce(project, ''), name) WHERE NOT shared"
    )
    op.execute(
        "CREATE UNIQUE INDEX subscriptions_of_project ON subscriptions (project, name) WHERE shared"
    )
    op.execute("CREATE INDEX subscriptions_enabled ON subscriptions (id) WHERE enabled")
    op.execute(
        "CREATE INDEX subscriptions_due ON subscriptions (next_at) WHERE next_at IS NOT NULL"
    )


def _create_queues(events: str) -> None:
    # What has happened and has not yet been assigned to subscriptions. A row lives for a second.
    op.execute(
        "CREATE TABLE event_outbox ("
        "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        f"event text NOT NULL CHECK (event IN ({events})), "
        "subject text NOT NULL, "
        "revision bigint NOT NULL, "
        "at timestamptz NOT NULL, "
        "body jsonb NOT NULL)"
    )
    # The unique key decides that a subscription gets an event only once.
    op.execute(
        "CREATE TABLE deliveries ("
        "id uuid PRIMARY KEY, "
        "subscription_id uuid NOT NULL REFERENCES subscriptions ON DELETE CASCADE, "
        "event text NOT NULL, "
        "key text NOT NULL CHECK (key <> ''), "
        "subject text NOT NULL, "
        "happened_at timestamptz NOT NULL, "
        "body jsonb NOT NULL, "
        "state text NOT NULL DEFAULT 'pending' "
        "CHECK (state IN ('pending', 'delivered', 'failed')), "
        "attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0), "
        "attempted_at timestamptz, "
        "due_at timestamptz, "
        "ended_at timestamptz, "
        "answer text NOT NULL DEFAULT '', "
        "mail_id uuid, "
        "created_at timestamptz NOT NULL DEFAULT now(), "
        "UNIQUE (subscription_id, key), "
        "CONSTRAINT only_pending_deliveries_are_due CHECK ((state = 'pending') = (due_at IS NOT NULL)), "
        "CONSTRAINT ended_deliveries_have_a_time CHECK ((state = 'pending') = (ended_at IS NULL)))"
    )
    op.execute(
        "CREATE INDEX deliveries_due ON deliveries (subscription_id, due_at, id) "
        "WHERE state = 'pending'"
    )
    op.execute(
        "CREATE INDEX deliveries_pending_age ON deliveries (created_at) WHERE state = 'pending'"
    )
    op.execute("CREATE INDEX deliveries_ended ON deliveries (ended_at) WHERE state <> 'pending'")
    op.execute("CREATE INDEX deliveries_newest ON deliveries (subscription_id, created_at, id)")
    op.execute(
        "CREATE TABLE degraded_endpoints ("
        "endpoint_id uuid PRIMARY KEY REFERENCES endpoints ON DELETE CASCADE, "
        "since timestamptz NOT NULL DEFAULT now(), "
        "reported boolean NOT NULL DEFAULT false)"
    )


def _create_triggers() -> None:
    op.execute(
        "CREATE TRIGGER session_history_outbox AFTER INSERT ON session_history FOR EACH ROW "
        f"WHEN (NEW.to_status IN ('RUNNING', {_ENDS}) "
        "AND NEW.from_status IS DISTINCT FROM NEW.to_status) EXECUTE FUNCTION outbox_sessions()"
    )
    op.execute(
        "CREATE TRIGGER budget_alerts_outbox AFTER INSERT ON budget_alerts FOR EACH ROW "
        "EXECUTE FUNCTION outbox_budgets()"
    )
    op.execute(
        "CREATE TRIGGER agents_outbox AFTER UPDATE OF status ON agents FOR EACH ROW "
        "WHEN (NEW.status = 'LOST' AND OLD.status <> 'LOST') EXECUTE FUNCTION outbox_agents()"
    )
    op.execute(
        # Deliveries also update these rows; a version is for changes by people.
        f"CREATE TRIGGER subscriptions_take_version BEFORE UPDATE OF {', '.join(_CHANGED)} "
        f"ON subscriptions FOR EACH ROW WHEN (({', '.join(f'OLD.{name}' for name in _CHANGED)}) "
        f"IS DISTINCT FROM ({', '.join(f'NEW.{name}' for name in _CHANGED)})) "
        "EXECUTE FUNCTION take_version()"
    )
