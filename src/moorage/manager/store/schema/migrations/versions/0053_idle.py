"""Idle criteria of interactive sessions: their traffic, and what was observed of them.

The counters are seconds of observation, not times of the day: no clock that jumps ends a session.
The indexes have running interactive sessions only, so that looking for those with criteria costs no
others.
"""

from alembic import op

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None

_RUNNING = "type = 'interactive' AND status = 'RUNNING'"


def upgrade() -> None:
    op.execute("ALTER TABLE proxy_reports ADD COLUMN tells_apps boolean NOT NULL DEFAULT false")
    op.execute(
        "CREATE TABLE session_traffic (session_id uuid PRIMARY KEY REFERENCES sessions ON DELETE "
        "CASCADE, "
        "sightings bigint NOT NULL, at timestamptz NOT NULL)"
    )
    op.execute(
        "CREATE TABLE session_idle (session_id uuid PRIMARY KEY REFERENCES sessions ON DELETE "
        "CASCADE, "
        "attempt integer NOT NULL, observed_s float8 NOT NULL CHECK (observed_s >= 0), "
        "traffic_s float8 NOT NULL CHECK (traffic_s <= observed_s), sightings bigint NOT NULL, "
        "warned_s float8, extended_s float8 NOT NULL DEFAULT 0, "
        "extensions integer NOT NULL DEFAULT 0 CHECK (extensions >= 0), "
        "remaining jsonb NOT NULL, criterion text NOT NULL DEFAULT '', ends_in_s float8, "
        "at timestamptz NOT NULL)"
    )
    op.execute(f"CREATE INDEX sessions_interactive ON sessions (resource_group) WHERE {_RUNNING}")
    op.execute(
        f"CREATE INDEX sessions_with_idle ON sessions (id) WHERE {_RUNNING} AND spec ? 'idle'"
    )
