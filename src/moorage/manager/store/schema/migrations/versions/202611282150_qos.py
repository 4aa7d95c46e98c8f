"""Qualities of service of sessions, and the factor on prices that they set.

The factor is stored with each session and each charge, so that a change of a QoS changes no cost of
the past.
"""

from alembic import op

from moorage.manager.store.schema.database_functions import function_statements

revision = "202611282150"
down_revision = "202611282140"
branch_labels = None
depends_on = None
functions = "e81ff5c498381aba"

_SLOTS = "jsonb NOT NULL DEFAULT '{{}}' CHECK (jsonb_typeof({0}) = 'object')"
_COUNT = "integer CHECK ({0} BETWEEN 1 AND 1000000)"
_FACTOR = "numeric NOT NULL DEFAULT 1 CHECK (price_factor BETWEEN 0 AND 1000)"
_COLUMNS = (
    ("description", "text NOT NULL DEFAULT ''"),
    ("projects", "text[]"),
    ("priority", "integer CHECK ({0} BETWEEN 0 AND 100)"),
    ("preemptible", "boolean"),
    ("price_factor", _FACTOR),
    ("max_time_s", "float8 CHECK ({0} > 0 AND {0} <= 315360000)"),
    ("max_per_session", _SLOTS),
    ("max_per_user", _SLOTS),
    ("max_running_per_user", _COUNT),
    ("max_total", _SLOTS),
    ("max_running", _COUNT),
)


def upgrade() -> None:
    columns = ", ".join(f"{name} {kind.format(name)}" for name, kind in _COLUMNS)
    op.execute(
        f"CREATE TABLE qos (name text PRIMARY KEY CHECK (name <> ''), {columns}, "
        "version bigint NOT NULL DEFAULT nextval('resource_versions'), "
        "changed_at timestamptz NOT NULL DEFAULT now(), changed_by text NOT NULL)"
    )
    names = ", ".join(name for name, _ in _COLUMNS)
    op.execute(
        f"CREATE TRIGGER qos_take_version BEFORE UPDATE OF {names} ON qos "
        "FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION take_version()"
    )
    # A table of its own, because most sessions have none.
    op.execute(
        "CREATE TABLE session_qos ("
        "session_id uuid PRIMARY KEY REFERENCES sessions ON DELETE CASCADE, "
        f"qos text NOT NULL REFERENCES qos ON DELETE CASCADE, price_factor {_FACTOR})"
    )
    op.execute("CREATE INDEX session_qos_by_qos ON session_qos (qos)")
    op.execute(function_statements()["sessions_take_qos"])
    op.execute(
        "CREATE TRIGGER sessions_take_qos AFTER INSERT ON sessions "
        "FOR EACH ROW WHEN (NEW.spec ->> 'qos' IS NOT NULL) EXECUTE FUNCTION sessions_take_qos()"
    )
    op.execute("ALTER TABLE ledger ADD COLUMN price_factor numeric NOT NULL DEFAULT 1")
    op.execute(function_statements()["refuse_deleting_qos_in_use"])
    op.execute(
        "CREATE TRIGGER qos_refuse_deleting_in_use BEFORE DELETE ON qos "
        "FOR EACH ROW EXECUTE FUNCTION refuse_deleting_qos_in_use()"
    )
