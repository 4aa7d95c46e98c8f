"""Occupancy of resource groups over time: spans of a minute, an hour and a day, with means of their
samples.

Every sample goes into the three spans that it lies in, so nothing is rolled up later; each length
of span has its own retention. A group that is renamed or deleted takes its history along.
"""

from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

COMMON = (
    "resource_group text NOT NULL REFERENCES resource_groups (name) ON UPDATE CASCADE ON DELETE "
    "CASCADE, "
    "seconds integer NOT NULL CHECK (seconds IN (60, 3600, 86400)), at timestamptz NOT NULL, "
    "samples integer NOT NULL CHECK (samples > 0)"
)


def upgrade() -> None:
    op.execute(
        f"CREATE TABLE occupancy_spans ({COMMON}, slot text NOT NULL, capacity double precision "
        "NOT NULL, "
        "used double precision NOT NULL, used_peak bigint NOT NULL, "
        "PRIMARY KEY (resource_group, seconds, at, slot))"
    )
    op.execute(
        f"CREATE TABLE queue_spans ({COMMON}, pending double precision NOT NULL, "
        "pending_peak integer NOT NULL, running double precision NOT NULL, "
        "PRIMARY KEY (resource_group, seconds, at))"
    )
    for table in ("occupancy_spans", "queue_spans"):
        op.execute(f"CREATE INDEX {table}_age ON {table} (seconds, at)")
